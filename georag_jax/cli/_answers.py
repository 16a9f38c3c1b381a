"""What georag evaluate says of answers: exact match, F1, refusals and citations."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from georag_jax import metrics
from georag_jax._errors import require
from georag_jax._jsonl import read_records, string_list
from georag_jax.cli._shared import interval_of, shown, table
from georag_jax.documents import Question


@dataclass(frozen=True, eq=False)
class AnswerScores:
    """Per-question values [n] of one answers file.

    Attributes:
        ids: the n questions that have an answer in the file and accepted answers.
        of: questions with accepted answers.
        exact: 1 for an exact match, else 0.
        f1: in 0..1.
        refused: whether the model said that the chunks do not hold the answer.
        cited: whether it cites a chunk.
        gold_cited: share of its citations that are gold passages; NaN without citations or gold passages.
    """

    ids: list[str]
    of: int
    exact: np.ndarray
    f1: np.ndarray
    refused: np.ndarray
    cited: np.ndarray
    gold_cited: np.ndarray


def score(path: str | Path, questions: dict[str, Question]) -> AnswerScores | None:
    """Scores of the lines with an "answer"; None where there is none for a question with accepted answers.

    Raises:
        ValueError: a malformed line, or an id that no question has.
    """
    ids, rows = [], []
    for line in read_records(path):
        record, where = line.record, line.where
        require(record["id"] in questions, where, "an id of the questions", repr(record["id"]))
        question = questions[record["id"]]
        if "answer" not in record or not question.answers:
            continue
        text, refused = record["answer"], record.get("refused", False)
        require(isinstance(text, str), where, 'a string "answer"', type(text).__name__)
        require(isinstance(refused, bool), where, 'true or false as "refused"', repr(refused))
        cited, gold = string_list(record, "citations", where), set(question.gold_ids)
        right = np.mean([chunk in gold for chunk in cited]) if cited and gold else np.nan
        ids.append(question.id)
        pair = metrics.exact_match(text, question.answers), metrics.f1(text, question.answers)
        rows.append((*pair, refused, bool(cited), right))
    if not rows:
        return None
    columns = np.array(rows, float).T
    return AnswerScores(ids, sum(bool(question.answers) for question in questions.values()), *columns)


def summary(path: str | Path, scores: AnswerScores) -> dict[str, Any]:
    """Means and intervals, ready for JSON."""
    names = ("exact", "f1", "refused", "cited", "gold_cited")
    intervals = {name: interval_of(getattr(scores, name)) for name in names}
    return {"file": str(path), "questions": len(scores.ids), "of": scores.of, **intervals}


def compare(first: AnswerScores, second: AnswerScores) -> dict[str, Any]:
    """First minus second on the questions of both, with paired bootstrap intervals."""
    at = {identifier: row for row, identifier in enumerate(second.ids)}
    pairs = [(row, at[identifier]) for row, identifier in enumerate(first.ids) if identifier in at]
    require(bool(pairs), "PICKS.jsonl", "answers to questions that both files have", "none")
    one, two = np.array(pairs).T
    gains = {name: getattr(first, name)[one] - getattr(second, name)[two] for name in ("exact", "f1")}
    return {"questions": len(pairs), **{name: interval_of(gain) for name, gain in gains.items()}}


def page(report: dict[str, Any]) -> str:
    """A summary in words."""
    names = {"exact": "exact match", "f1": "F1", "refused": "refused", "cited": "with a citation"}
    rows = [[word, shown(report[name])] for name, word in (names | {"gold_cited": "citations that are gold"}).items()]
    head = f"{report['file']}: answers to {report['questions']} of {report['of']} questions"
    return f"{head}\n{table(['', 'mean [95 %]'], rows)}\n"


def difference_page(files: Sequence[str], difference: dict[str, Any]) -> str:
    """A comparison in words."""
    rows = [["exact match", shown(difference["exact"])], ["F1", shown(difference["f1"])]]
    head = f"{files[0]} minus {files[1]}: answers to {difference['questions']} questions of both, paired bootstrap"
    return f"{head}\n{table(['', 'mean [95 %]'], rows)}"
