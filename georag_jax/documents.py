"""What enters and leaves: chunks, questions, and the result of a selection."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


@dataclass(frozen=True, slots=True)
class Document:
    """One chunk of the corpus.

    Attributes:
        id: unique in its corpus.
        text: what is shown to the language model.
        title: may be empty; embedded and indexed together with the text.
        metadata: whatever else the source carried; never read here.
    """

    id: str
    text: str
    title: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def full_text(self) -> str:
        """Title and text as they are embedded and indexed: ``title + ". " + text``."""
        return f"{self.title}. {self.text}" if self.title else self.text


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        id: unique in its file.
        text: the question as asked.
        answers: accepted short answers, where known.
        gold_ids: chunks that hold the evidence, where known.
    """

    id: str
    text: str
    answers: tuple[str, ...] = ()
    gold_ids: tuple[str, ...] = ()


class Selection(NamedTuple):
    """Picks and diagnostics of one query, or of B queries with a leading axis on every field.

    Attributes:
        indices: [..., k] int32 pool positions in the order picked; -1 where nothing is left to pick. The first j are
            the picks for a budget of j.
        gains: [..., k] gain of each pick in the objective that chose it; 0 where the index is -1.
        demand: [..., K] the demand P_Q; sums to 1 over the valid candidates.
        coverage: [..., k] F_Q after each pick (Eq. 4 under ``demand``, whatever the objective).
        quality: [..., m] weights of the sub-queries; they sum to 1, 0 for those dropped.
        marginal_error: [...] largest L1 error of a transport marginal over steps and candidates; 0 without transport.
        status: [...] int32 bit field; ``georag_jax.describe`` says it in words.
        scores: [..., k] the retriever's score of each pick; 0 where the index is -1.
        stopped: [...] int32, a ``StopReason``.
        tokens: [...] int32 tokens that the picks take, where the selector counts tokens; else None.
    """

    indices: np.ndarray
    gains: np.ndarray
    demand: np.ndarray
    coverage: np.ndarray
    quality: np.ndarray
    marginal_error: np.ndarray
    status: np.ndarray
    scores: np.ndarray
    stopped: np.ndarray
    tokens: np.ndarray | None = None


class SubQuery(NamedTuple):
    """A sub-query and its weight after filter and reverse validation; 0 when it was dropped."""

    text: str
    weight: float


@dataclass(frozen=True, slots=True)
class Pick:
    """One chosen chunk.

    Attributes:
        document: the chunk.
        gain: of this pick in the objective.
        score: cosine to the question, or the reranker's score where there is one.
        serves: the sub-queries that this pick serves best among all picks, with their similarity to it.
        mass: the demand it reclaims: the share of P_Q that lies on candidates nearer to this pick than to any other.
    """

    document: Document
    gain: float
    score: float
    serves: tuple[tuple[str, float], ...]
    mass: float


@dataclass(frozen=True, slots=True)
class Result:
    """Everything about one question.

    Attributes:
        question: as asked.
        picks: in the order picked; the first j are the picks for a budget of j.
        subqueries: all of them with their weights.
        coverage: F_Q after each pick (Eq. 4).
        redundancy: mean cosine between the picks so far, after each pick; 0 for one pick.
        pool_ids: chunk ids of the candidate pool, best first.
        cosine: the chunks that ranking by cosine to the question alone would pick.
        status: bit field; ``georag_jax.describe`` says it in words.
        marginal_error: of the transport, where there was any.
    """

    question: Question
    picks: tuple[Pick, ...]
    subqueries: tuple[SubQuery, ...]
    coverage: tuple[float, ...]
    redundancy: tuple[float, ...]
    pool_ids: tuple[str, ...]
    cosine: tuple[Document, ...]
    status: int
    marginal_error: float
