"""Sub-queries that a language model writes."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from georag_jax._errors import require
from georag_jax._types import Encoder
from georag_jax.documents import Document, Question
from georag_jax.models.chat import ChatModel, Sampling
from georag_jax.models.subqueries._draft import Draft, Report
from georag_jax.models.subqueries.prompt import follow_up_messages, list_messages, sample_messages

_log = logging.getLogger(__name__)

Style = Literal["samples", "list"]
_TOP_UPS = 2  # further rounds, each of half the samples: at most twice n samples are drawn
_MAX_TOKENS = {"samples": 96, "list": 1024}


class GeneratedSubQueries:
    """Asks a language model, on this machine or behind a server, for sub-queries (stage 2 of the paper).

    With ``style="samples"`` n answers of a few lines are drawn for each question, independently, and where they hold
    fewer than n different sub-queries, twice n / 2 more; where they hold more, the ones that most answers hold remain.
    With ``style="list"`` one answer is asked for that lists n as JSON: far cheaper, and for large models as good.

    Args:
        model: any ``ChatModel``; a ``KeptModel`` asks nothing twice.
        n: most sub-queries a question, >= 1, and number of samples.
        style: "samples" or "list".
        temperature: of the sampling, >= 0; above 0 with "samples", since equal answers are of no use.
        seed: of the sampling, >= 0.
        encoder: what tells near duplicates and drift; None leaves it at the texts.

    Attributes:
        last_report: a ``Report`` of the last call that returned; None before.
        total_report: the sum over all calls that returned.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        n: int = 20,
        style: Style = "samples",
        temperature: float = 0.7,
        seed: int = 0,
        encoder: Encoder | None = None,
    ):
        require(n >= 1, "n", "a positive number", n)
        require(style in get_args(Style), "style", f"one of {list(get_args(Style))}", repr(style))
        require(style == "list" or temperature > 0, "temperature", 'more than 0 with style="samples"', temperature)
        self._sampling = Sampling(temperature=temperature, max_tokens=_MAX_TOKENS[style], seed=seed)
        self._model, self._n, self._style, self._encoder = model, n, style, encoder
        self.last_report: Report | None = None
        self.total_report = Report()

    def subqueries(self, questions: Sequence[Question]) -> list[list[str]]:
        """The sub-queries of each question; the question itself where the model wrote nothing usable.

        Args:
            questions: in any number; a blank one has no sub-queries and is not sent.

        Returns:
            One list a question, in the order of the questions, of at most n different sub-queries.
        """
        texts = [question.text.strip() for question in questions]
        ask = sample_messages if self._style == "samples" else lambda text: list_messages(text, self._n)
        drafts = [Draft(text, ask(text), self._style == "samples") for text in texts]
        written, report = self._write(drafts, self._n, _TOP_UPS)
        bare = [not own and bool(text) for text, own in zip(texts, written, strict=True)]
        self._note(report._replace(fallbacks=sum(bare)))
        return [[text] if alone else own for text, alone, own in zip(texts, bare, written, strict=True)]

    def follow_ups(
        self, questions: Sequence[Question], passages: Sequence[Sequence[Document]], known: Sequence[Sequence[str]]
    ) -> list[list[str]]:
        """Further sub-queries of each question, written in sight of passages: n / 2 samples, or one list.

        Args:
            questions: in any number.
            passages: of each question; where there are none, nothing is asked.
            known: sub-queries that each question has; they are not repeated.

        Returns:
            One list a question of at most n sub-queries, empty where nothing usable came.
        """
        rows = zip(questions, passages, known, strict=True)
        drafts = [
            Draft(
                q.text.strip() if own else "", follow_up_messages(q.text.strip(), own), self._style == "samples", before
            )
            for q, own, before in rows
        ]
        written, report = self._write(drafts, -(-self._n // 2), top_ups=0)
        self._note(report)
        return written

    def _write(self, drafts: list[Draft], samples: int, top_ups: int) -> tuple[list[list[str]], Report]:
        asked, many = [draft for draft in drafts if draft.question], self._style == "samples"
        self._draw(asked, samples if many else 1, self._sampling)
        half, seed = -(-self._n // 2), self._sampling.seed + self._n
        for round_ in range(top_ups if many else 0):
            lacking = [draft for draft in asked if len(draft) < self._n]
            # Servers that give one choice a request count the seed up: no seed is used twice.
            self._draw(lacking, half, replace(self._sampling, seed=seed + round_ * half))
            for draft in lacking:
                draft.counts = draft.counts.plus(Report(topped_up=half))
        written = [draft.best(self._n) for draft in drafts]
        return written, Report(*map(sum, zip(*(draft.counts for draft in drafts), strict=True)))

    def _draw(self, drafts: list[Draft], samples: int, sampling: Sampling) -> None:
        answers = self._model.complete([draft.chat for draft in drafts], samples, sampling) if drafts else []
        for draft, completions in zip(drafts, answers, strict=True):
            draft.read(completions, self._encoder)

    def _note(self, report: Report) -> None:
        self.last_report, self.total_report = report, self.total_report.plus(report)
        level = logging.WARNING if report.fallbacks else logging.INFO
        _log.log(level, "sub-queries by the model: %s", report)
