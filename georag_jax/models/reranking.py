"""A language model in a reranker's place: how much likelier "Yes" is than "No" when asked about a passage.

Reference: Nogueira, Jiang, Pradeep, Lin, "Document Ranking with a Pretrained Sequence-to-Sequence Model" (2020), whose
score has this form; that model is trained for it.

Dimensions: n pairs.
"""

import hashlib
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from georag_jax.models.chat import Chat

_INSTRUCTION = "You judge whether a passage is relevant to a question. Answer Yes or No."
_REQUEST = (
    "Passage: {passage}\n\nQuestion: {question}\n\n"
    "Is the passage about something that the question mentions or asks for? Answer Yes or No."
)
_OPTIONS = ("Yes", "No")
_LONGEST = 2000  # characters of a text that are shown to the model: about what a cross-encoder reads


@runtime_checkable
class OptionScorer(Protocol):
    """Says how likely given answers to chats are. ``fingerprint`` names weights and settings that change that."""

    fingerprint: str

    def option_scores(self, chats: Sequence[Chat], options: Sequence[str]) -> np.ndarray:
        """Log-probability [n, options] that the answer to each of n chats begins with each of the options."""
        ...


class YesNoReranker:
    """A stand-in for a reranker: a language model that was never trained to rank; implements ``georag_jax.Reranker``.

    With small models it is a weak one: measure it before use, and prefer a ``CrossEncoder`` where its weights can be
    had.

    Args:
        model: answers the question whether a passage is relevant.
        calibrated: whether a score is p(Yes) / (p(Yes) + p(No)), in 0..1, or its logit, log p(Yes) - log p(No).

    Attributes:
        fingerprint: names the model, the prompt and what is returned.
    """

    def __init__(self, model: OptionScorer, *, calibrated: bool = True):
        self._model, self._calibrated = model, calibrated
        prompt = hashlib.sha256(f"{_INSTRUCTION}{_REQUEST}{_OPTIONS}{_LONGEST}".encode()).hexdigest()[:6]
        self.fingerprint = f"yes-no:{model.fingerprint}:{prompt}:{'calibrated' if calibrated else 'logit'}"

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Scores [n] float32 of n pairs of question and passage, each text cut to 2000 characters."""
        scores = self._model.option_scores([_chat(question, passage) for question, passage in pairs], _OPTIONS)
        logits = (scores[:, 0] - scores[:, 1]).astype(np.float32)
        return sigmoid(logits) if self._calibrated else logits


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-logit)) without overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0]))
    array([0. , 0.5, 1. ])
    """
    return np.exp(-np.logaddexp(0, -logits))


def _chat(question: str, passage: str) -> Chat:
    request = _REQUEST.format(question=question[:_LONGEST], passage=passage[:_LONGEST])
    return [{"role": "system", "content": _INSTRUCTION}, {"role": "user", "content": request}]
