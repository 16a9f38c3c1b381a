"""Sources made of other sources: several joined, one that is watched, the nearest few of one."""

from collections.abc import Sequence

import numpy as np

from georag_jax._errors import require
from georag_jax._types import Encoder, Retriever, SubQuerySource
from georag_jax.documents import Question
from georag_jax.models.subqueries.parse import distinct

OWN_LIST, PRIMARY = 20, 200  # entries of a sub-query's list and of the question's, as in reverse validation (Eq. 7)


class JoinedSubQueries:
    """The sub-queries of several sources, one after the other.

    Args:
        sources: asked in this order; at least one.

    Raises:
        ValueError: there is no source.

    >>> from georag_jax.models.subqueries import Decomposer
    >>> len(JoinedSubQueries([Decomposer(), Decomposer()]).subqueries([Question("1", "Who wrote Emma?")])[0])
    2
    """

    def __init__(self, sources: Sequence[SubQuerySource]):
        require(bool(sources), "sources", "at least one", "none")
        self._sources = tuple(sources)

    def subqueries(self, questions: Sequence[Question]) -> list[list[str]]:
        """For each question the sub-queries of all sources, without those that differ in case and punctuation only."""
        lists = [source.subqueries(questions) for source in self._sources]
        return [list(distinct(text for own in row for text in own)) for row in zip(*lists, strict=True)]


class NearestSubQueries:
    """The few sub-queries of a source that lie nearest the question: the single-stage choice of the paper's ablation.

    Args:
        source: writes the sub-queries.
        encoder: what tells nearness.
        kept: most sub-queries that remain, >= 1.

    Raises:
        ValueError: ``kept`` is out of its range.
    """

    def __init__(self, source: SubQuerySource, encoder: Encoder, kept: int = 10):
        require(kept >= 1, "kept", "a positive number", kept)
        self._source, self._encoder, self._kept = source, encoder, kept

    def subqueries(self, questions: Sequence[Question]) -> list[list[str]]:
        """For each question the nearest by cosine, in the order of the source; ties go to the earlier one."""
        return [
            self._nearest(question, own)
            for question, own in zip(questions, self._source.subqueries(questions), strict=True)
        ]

    def _nearest(self, question: Question, own: list[str]) -> list[str]:
        if len(own) <= self._kept:
            return own
        vectors = self._encoder.encode([question.text, *own], kind="query")
        order = np.argsort(-(vectors[1:] @ vectors[0]), kind="stable")[: self._kept]
        return [own[i] for i in sorted(order)]


class GuardedSubQueries:
    """Falls back where the sub-queries of a source have lost the question.

    The sign is agreement: how much of the sub-queries' own lists lies in the question's own list, on average (the mean
    overlap of Eq. 7). On HotpotQA and MuSiQue with MiniLM, sub-queries that a large model wrote agree by .27 or more
    for 99 of 100 questions, and those of another question by less than .18 for 95 of 100.

    Args:
        source: the one that is watched.
        fallback: gives the sub-queries of the questions at which the source fails.
        retriever: searched for every sub-query and question; where it has an attribute ``dense``, that one is.
        encoder: must be the one that made the retriever's vectors.
        least: in 0..1; a question falls back where the agreement is less, or where the source gave nothing.

    Attributes:
        agreements: of the questions of the last call; NaN where there were no sub-queries.
        fallen_back: questions that fell back, over all calls.

    Raises:
        ValueError: ``least`` is out of its range.
    """

    def __init__(
        self,
        source: SubQuerySource,
        fallback: SubQuerySource,
        retriever: Retriever,
        encoder: Encoder,
        least: float = 0.25,
    ):
        require(0 <= least <= 1, "least", "a share from 0 to 1", least)
        self._source, self._fallback, self._least = source, fallback, least
        self._retriever, self._encoder = getattr(retriever, "dense", retriever), encoder
        self.agreements: list[float] = []
        self.fallen_back = 0

    def subqueries(self, questions: Sequence[Question]) -> list[list[str]]:
        """For each question the sub-queries of the source, or those of the fallback."""
        written = self._source.subqueries(questions)
        self.agreements = agreement(questions, written, self._retriever, self._encoder)
        failed = [i for i, value in enumerate(self.agreements) if not value >= self._least]
        self.fallen_back += len(failed)
        others = self._fallback.subqueries([questions[i] for i in failed]) if failed else []
        for i, own in zip(failed, others, strict=True):
            written[i] = own
        return written


def agreement(
    questions: Sequence[Question], subqueries: Sequence[Sequence[str]], retriever: Retriever, encoder: Encoder
) -> list[float]:
    """Mean share of each sub-query's top 20 that lies in its question's top 200; NaN for a question without any."""
    texts = [question.text for question in questions] + [text for own in subqueries for text in own]
    if not texts:
        return []
    vectors, n = encoder.encode(texts, kind="query"), len(questions)
    primary = retriever.search(texts[:n], vectors[:n], PRIMARY).numbers
    lists = iter(retriever.search(texts[n:], vectors[n:], OWN_LIST).numbers if len(texts) > n else ())
    shares = [
        [np.isin(row[row >= 0], primary[i]).mean() if (row >= 0).any() else 0.0 for row in (next(lists) for _ in own)]
        for i, own in enumerate(subqueries)
    ]
    return [float(np.mean(own)) if own else float("nan") for own in shares]
