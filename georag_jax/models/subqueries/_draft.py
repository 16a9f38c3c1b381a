"""Gathers the sub-queries of one question and counts what it drops."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from georag_jax._types import Encoder
from georag_jax.models.chat import Chat, Completion
from georag_jax.models.subqueries.parse import identity, parse
from georag_jax.models.subqueries.prompt import is_echo

SAME = 0.95  # cosine above which two sub-queries ask for the same
DRIFTED = 0.2  # cosine to the question under which a sub-query is counted as drifted


class Report(NamedTuple):
    """What became of the answers to one batch of questions.

    Attributes:
        samples: answers of the model.
        generated: sub-queries that the answers held, without malformed ones and echoes.
        duplicates: dropped, as they repeat another one or the question in other case or punctuation.
        near_duplicates: dropped, as their cosine to another one or to the question is above 0.95; 0 without an encoder.
        malformed: pieces of the answers dropped as no sub-query; where lines were asked for, all but questions.
        echoes: dropped, as they name what only the worked examples name.
        surplus: dropped, as n others stood in more of the answers.
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
    echoes: int = 0
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
        lines: whether the chat asks for lines that are questions.
        known: sub-queries that are there already: repeating one is a duplicate.
    """

    def __init__(self, question: str, chat: Chat, lines: bool, known: Iterable[str] = ()):
        self.question, self.chat = question, chat
        self.counts = Report()
        self._lines = lines
        self._given = [question, *known]
        self._texts: list[str] = []
        self._votes: list[int] = []  # answers that hold each text
        self._place = {identity(text): -1 for text in self._given}  # of each identity in the texts
        self._vectors: np.ndarray | None = None  # of what was given, then of the texts

    def __len__(self) -> int:
        return len(self._texts)

    def read(self, completions: Sequence[Completion], encoder: Encoder | None) -> None:
        """Takes in the sub-queries of further answers."""
        ballots = [self._clean(completion) for completion in completions]
        fresh: dict[str, str] = {}
        for text in (text for ballot in ballots for text in ballot):
            if identity(text) not in self._place:
                fresh.setdefault(identity(text), text)
        self._enter(fresh, encoder)
        total = sum(map(len, ballots))
        counts = Report(samples=len(ballots), generated=total, duplicates=total - len(fresh))
        self.counts = self.counts.plus(counts)
        for ballot in ballots:
            for place in {self._place[identity(text)] for text in ballot} - {-1}:
                self._votes[place] += 1

    def best(self, n: int) -> list[str]:
        """The n texts that most answers hold, ties by first mention; what is left over is counted."""
        order = sorted(range(len(self)), key=lambda i: (-self._votes[i], i))[:n]
        drifted = 0
        if self._vectors is not None:
            own = self._vectors[len(self._given) :][order]
            drifted = int((own @ self._vectors[0] < DRIFTED).sum())
        surplus = len(self) - len(order)
        self.counts = self.counts.plus(Report(surplus=surplus, kept=len(order), drifted=drifted))
        return [self._texts[i] for i in order]

    def _clean(self, completion: Completion) -> list[str]:
        """The sub-queries of one answer, without what is none."""
        parsed = parse(completion.text, completion.cut)
        asked = [text for text in parsed.subqueries if not self._lines or text.endswith("?")]
        own = [text for text in asked if not is_echo(text, self.question)]
        malformed = parsed.malformed + len(parsed.subqueries) - len(asked)
        self.counts = self.counts.plus(Report(malformed=malformed, echoes=len(asked) - len(own)))
        return own

    def _enter(self, fresh: dict[str, str], encoder: Encoder | None) -> None:
        """Gives each identity a place: that of a text which asks for the same, or a new one."""
        if encoder is not None and fresh:
            known = encoder.encode(self._given, kind="query") if self._vectors is None else self._vectors
            vectors, skipped = encoder.encode(list(fresh.values()), kind="query"), len(self._given)
            for (key, text), vector in zip(fresh.items(), vectors, strict=True):
                similar = known @ vector
                if similar.max() > SAME:
                    self._place[key] = max(int(similar.argmax()) - skipped, -1)
                    self.counts = self.counts.plus(Report(near_duplicates=1))
                else:
                    known = np.vstack([known, vector])
                    self._add(key, text)
            self._vectors = known
        else:
            for key, text in fresh.items():
                self._add(key, text)

    def _add(self, key: str, text: str) -> None:
        self._place[key] = len(self._texts)
        self._texts.append(text)
        self._votes.append(0)
