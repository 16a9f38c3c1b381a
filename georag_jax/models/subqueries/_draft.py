"""Gathers the sub-queries of one question and counts what it drops."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from georag_jax._types import Encoder
from georag_jax.models.chat import Chat, Completion
from georag_jax.models.subqueries.parse import identity, parse

SAME = 0.95  # cosine above which two sub-queries ask for the same
DRIFTED = 0.2  # cosine to the question under which a sub-query is counted as drifted


class Report(NamedTuple):
    """What became of the answers to one batch of questions.

    Attributes:
        samples: answers of the model.
        generated: sub-queries that the answers held, before anything was dropped.
        duplicates: dropped, as they repeat another one or the question in other case or punctuation.
        near_duplicates: dropped, as their cosine to another one or to the question is above 0.95; 0 without an encoder.
        malformed: pieces of the answers dropped as no sub-query.
        surplus: dropped, as the question had n already.
        kept: sub-queries that remained.
        drifted: of those, with a cosine to the question under 0.2; 0 without an encoder. They stay, since reverse
            validation weighs them.
        topped_up: answers asked for because the first ones held fewer than n different sub-queries.
        fallbacks: questions for which nothing usable came, so that the question stands for itself.
    """

    samples: int = 0
    generated: int = 0
    duplicates: int = 0
    near_duplicates: int = 0
    malformed: int = 0
    surplus: int = 0
    kept: int = 0
    drifted: int = 0
    topped_up: int = 0
    fallbacks: int = 0

    def plus(self, other: "Report") -> "Report":
        """The sum, count by count."""
        return Report(*(a + b for a, b in zip(self, other, strict=True)))


class Draft:
    """The sub-queries of one question while they are written.

    Args:
        question: its text.
        chat: what the model is asked.
        n: most sub-queries.
        known: sub-queries that are there already: repeating one is a duplicate.
    """

    def __init__(self, question: str, chat: Chat, n: int, known: Iterable[str] = ()):
        self.question, self.chat = question, chat
        self.kept: list[str] = []
        self.counts = Report()
        self._n = n
        self._given = [question, *known]
        self._seen = {identity(text) for text in self._given}
        self._vectors: np.ndarray | None = None  # of what was given, then of what is kept

    @property
    def full(self) -> bool:
        """Whether there are n."""
        return len(self.kept) >= self._n

    def fresh(self, completions: Sequence[Completion]) -> list[str]:
        """The sub-queries in the answers that are new by their text."""
        texts, generated, duplicates, malformed = [], 0, 0, 0
        for completion in completions:
            parsed = parse(completion.text, completion.cut)
            malformed += parsed.malformed
            for text in parsed.subqueries:
                generated += 1
                key = identity(text)
                if key in self._seen:
                    duplicates += 1
                    continue
                self._seen.add(key)
                texts.append(text)
        counts = Report(len(completions), generated, duplicates, malformed=malformed)
        self.counts = self.counts.plus(counts)
        return texts

    def add(self, texts: list[str], encoder: Encoder | None) -> None:
        """Keeps the texts in their order, up to n, without those that are near another one."""
        near = np.zeros(len(texts), bool)
        drifted = near
        if encoder is not None and texts:
            near, drifted = self._compare(texts, encoder)
        left = [i for i in range(len(texts)) if not near[i]]
        taken = left[: self._n - len(self.kept)]
        self.kept += [texts[i] for i in taken]
        self.counts = self.counts.plus(
            Report(
                near_duplicates=int(near.sum()),
                surplus=len(left) - len(taken),
                kept=len(taken),
                drifted=int(drifted[taken].sum()),
            )
        )

    def _compare(self, texts: list[str], encoder: Encoder) -> tuple[np.ndarray, np.ndarray]:
        """[n] whether each text is near an earlier one, and whether it is far from the question."""
        known = encoder.encode(self._given, kind="query") if self._vectors is None else self._vectors
        vectors = encoder.encode(texts, kind="query")
        near = np.zeros(len(texts), bool)
        for i, vector in enumerate(vectors):
            near[i] = (known @ vector).max() > SAME
            if not near[i]:
                known = np.vstack([known, vector])
        self._vectors = known
        return near, vectors @ known[0] < DRIFTED
