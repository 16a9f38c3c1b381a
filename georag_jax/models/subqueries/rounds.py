"""A second round of sub-queries, written in sight of what the first one found."""

from collections.abc import Sequence

from georag_jax._errors import require
from georag_jax._types import Encoder, Retriever
from georag_jax.documents import Document, Question
from georag_jax.models.subqueries.generated import GeneratedSubQueries
from georag_jax.models.subqueries.parse import distinct

_REACH = 20  # entries of each list that are fused


class TwoRoundSubQueries:
    """The sub-queries of a model, and those that it writes after it has seen their best chunks.

    A second hop can name what the first one found. The chunks shown are the best of the fused lists (reciprocal ranks)
    of the question and its first sub-queries.

    Args:
        first: writes both rounds.
        retriever: searched for the question and the first sub-queries.
        encoder: must be the one that made the retriever's vectors.
        shown: chunks that the second round sees, >= 1.

    Raises:
        ValueError: ``shown`` is out of its range.
    """

    def __init__(self, first: GeneratedSubQueries, retriever: Retriever, encoder: Encoder, shown: int = 4):
        require(shown >= 1, "shown", "a positive number of chunks", shown)
        self._first, self._retriever, self._encoder, self._shown = first, retriever, encoder, shown

    def subqueries(self, questions: Sequence[Question]) -> list[list[str]]:
        """For each question the sub-queries of both rounds, the first round's first."""
        before = self._first.subqueries(questions)
        after = self._first.follow_ups(questions, self._passages(questions, before), before)
        return [list(distinct([*one, *two])) for one, two in zip(before, after, strict=True)]

    def _passages(self, questions: Sequence[Question], subqueries: Sequence[Sequence[str]]) -> list[list[Document]]:
        groups = [[q.text, *own] if q.text.strip() else [] for q, own in zip(questions, subqueries, strict=True)]
        texts = [text for group in groups for text in group]
        if not texts:
            return [[] for _ in groups]
        lists = iter(self._retriever.search(texts, self._encoder.encode(texts, kind="query"), _REACH).numbers)
        return [self._best([next(lists).tolist() for _ in group]) for group in groups]

    def _best(self, lists: list[list[int]]) -> list[Document]:
        score: dict[int, float] = {}
        for numbers in lists:
            for rank, number in enumerate(numbers, 1):
                if number >= 0:
                    score[number] = score.get(number, 0.0) + 1 / (60 + rank)
        best = sorted(score, key=lambda number: (-score[number], number))[: self._shown]
        return self._retriever.documents(best)
