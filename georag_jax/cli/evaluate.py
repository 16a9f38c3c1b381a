"""Score picks and answers, with 95 % bootstrap intervals; two files are compared question by question.

Prints, for the first 1, 2, .. picks: recall, the share of questions with all gold passages picked, what cosine alone
and the best choice from the pool (the ceiling) would reach, redundancy (mean cosine between picks) and coverage (F_Q).
Where lines have an "answer", as georag answer writes it, and questions have "answers": exact match and F1 by HotpotQA's
rules, refusals, and citations.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from georag_jax import metrics
from georag_jax._errors import require
from georag_jax._jsonl import number_list, read_records, string_list
from georag_jax.cli import _answers
from georag_jax.cli._shared import few, interval_of, read_questions, shown, table
from georag_jax.documents import Question


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("picks", nargs="+", metavar="PICKS.jsonl", help="one file, or two to compare")
    parser.add_argument("--queries", required=True, metavar="Q.jsonl", help='questions with "gold_ids"')
    parser.add_argument("--strict", action="store_true", help="fail where a question with gold_ids has no picks")
    parser.add_argument("--json", action="store_true", help="report as JSON")


@dataclass(frozen=True)
class Scores:
    """Per-question values [n, k] of one picks file; NaN where the file does not say.

    Attributes:
        ids: the n questions that have gold passages and picks.
        without_gold: ids of the questions that cannot be scored.
        without_picks: ids of the others that the file has no line for.
    """

    ids: list[str]
    without_gold: list[str]
    without_picks: list[str]
    recall: np.ndarray
    cosine_recall: np.ndarray
    ceiling: np.ndarray
    redundancy: np.ndarray
    coverage: np.ndarray


def run(options: argparse.Namespace) -> None:
    """Prints the scores of one file, or of two and their paired differences."""
    require(len(options.picks) <= 2, "PICKS.jsonl", "one file, or two to compare", len(options.picks))
    questions = {question.id: question for question in read_questions(options.queries)}
    scored = [score(path, questions) for path in options.picks]
    answered = [_answers.score(path, questions) for path in options.picks]
    for path, scores, answers in zip(options.picks, scored, answered, strict=True):
        expected = "picks for questions with gold passages, or answers for questions with answers"
        require(scores is not None or answers is not None, path, expected, "none")
        lacking = [] if scores is None else scores.without_picks
        wanted = "picks for every question (--strict)"
        require(not (options.strict and lacking), path, wanted, f"none for {few(lacking)}")
    reports = [
        (None if s is None else summary(path, s), None if a is None else _answers.summary(path, a))
        for path, s, a in zip(options.picks, scored, answered, strict=True)
    ]
    difference, answer_difference = None, None
    if len(options.picks) == 2:
        difference = _paired(compare, scored)
        answer_difference = _paired(_answers.compare, answered)
    if options.json:
        files = [{"file": path, **(s or {}), "answers": a} for path, (s, a) in zip(options.picks, reports, strict=True)]
        print(json.dumps({"files": files, "difference": difference, "answer_difference": answer_difference}))
        return
    for picks, answers in reports:
        print("\n".join([*([_page(picks)] if picks else []), *([_answers.page(answers)] if answers else [])]))
    if difference is not None:
        print(_difference_page(options.picks, difference))
    if answer_difference is not None:
        print(_answers.difference_page(options.picks, answer_difference))


def score(path: str | Path, questions: dict[str, Question]) -> Scores | None:
    """Per-question scores of a picks file; None where no question of it has gold passages.

    Raises:
        ValueError: a malformed line, or an id that no question has.
    """
    rows = []
    for line in read_records(path):
        identifier = line.record["id"]
        require(identifier in questions, line.where, "an id of the questions", repr(identifier))
        require("picks" in line.record, line.where, 'a list "picks"', "none")
        lists = {key: string_list(line.record, key, line.where) for key in ("picks", "cosine", "pool")}
        numbers = {key: number_list(line.record, key, line.where) for key in ("redundancy", "coverage")}
        rows.append((questions[identifier], lists, numbers))
    rows = [row for row in rows if row[0].gold_ids]
    if not rows:
        return None
    ids = [question.id for question, _, _ in rows]
    wanted = [question.id for question in questions.values() if question.gold_ids]
    k = max(max(len(lists["picks"]) for _, lists, _ in rows), 1)
    missing = np.full(k, np.nan)
    gold = lambda name: np.stack(
        [metrics.recall(lists[name], q.gold_ids, k) if lists[name] else missing for q, lists, _ in rows]
    )
    return Scores(
        ids=ids,
        without_gold=[question.id for question in questions.values() if not question.gold_ids],
        without_picks=sorted(set(wanted).difference(ids)),
        recall=np.stack([metrics.recall(lists["picks"], q.gold_ids, k) for q, lists, _ in rows]),
        cosine_recall=gold("cosine"),
        ceiling=np.stack(
            [metrics.recall_ceiling(lists["pool"], q.gold_ids, k) if lists["pool"] else missing for q, lists, _ in rows]
        ),
        redundancy=np.stack([_padded(numbers["redundancy"], k) for _, _, numbers in rows]),
        coverage=np.stack([_padded(numbers["coverage"], k) for _, _, numbers in rows]),
    )


def summary(path: str | Path, scores: Scores) -> dict[str, Any]:
    """Means and intervals for every prefix, ready for JSON."""
    complete = metrics.all_gold(scores.recall)
    columns = {
        "recall": scores.recall,
        "all_gold": complete,
        "cosine_recall": scores.cosine_recall,
        "cosine_all_gold": metrics.all_gold(scores.cosine_recall),
        "ceiling_recall": scores.ceiling,
        "ceiling_all_gold": metrics.all_gold(scores.ceiling),
        "redundancy": scores.redundancy,
        "coverage": scores.coverage,
    }
    prefixes = []
    for j in range(complete.shape[1]):
        row: dict[str, Any] = {"k": j + 1, "all_gold_count": int(complete[:, j].sum())}
        row |= {name: interval_of(values[:, j]) for name, values in columns.items()}
        prefixes.append(row)
    left_out = {"without_picks": len(scores.without_picks), "without_gold": len(scores.without_gold)}
    return {
        "file": str(path),
        "questions": len(scores.ids),
        "of": len(scores.ids) + sum(left_out.values()),
        **left_out,
        "prefixes": prefixes,
    }


def compare(first: Scores, second: Scores) -> dict[str, Any]:
    """First minus second on the questions of both, with paired bootstrap intervals."""
    at = {identifier: row for row, identifier in enumerate(second.ids)}
    pairs = [(row, at[identifier]) for row, identifier in enumerate(first.ids) if identifier in at]
    require(bool(pairs), "PICKS.jsonl", "questions that both files have", "none")
    one, two = np.array(pairs).T
    k = min(first.recall.shape[1], second.recall.shape[1])
    prefixes = []
    for j in range(k):
        recalls = first.recall[one, j], second.recall[two, j]
        complete = metrics.all_gold(recalls[0]), metrics.all_gold(recalls[1])
        gain, wins = interval_of(recalls[0] - recalls[1]), complete[0] - complete[1]
        prefixes.append(
            {
                "k": j + 1,
                "recall": gain,
                "all_gold": interval_of(wins),
                "won": int((wins > 0).sum()),
                "lost": int((wins < 0).sum()),
            }
        )
    return {"questions": len(pairs), "prefixes": prefixes}


def _paired(comparison: Callable[[Any, Any], dict[str, Any]], pair: Sequence[Any]) -> dict[str, Any] | None:
    return None if None in pair else comparison(*pair)


def _padded(values: Sequence[float], k: int) -> np.ndarray:
    return np.concatenate([np.asarray(values, float)[:k], np.full(max(k - len(values), 0), np.nan)])


def _page(report: dict[str, Any]) -> str:
    header = ["k", "recall [95 %]", "all gold [95 %]", "of", "cosine", "ceiling", "redundancy", "coverage"]
    rows = [
        [
            str(row["k"]),
            shown(row["recall"]),
            shown(row["all_gold"]),
            str(row["all_gold_count"]),
            _mean(row["cosine_all_gold"]),
            _mean(row["ceiling_all_gold"]),
            _mean(row["redundancy"]),
            _mean(row["coverage"]),
        ]
        for row in report["prefixes"]
    ]
    note = "of: questions with all gold picked; cosine, ceiling: that share by cosine alone and at best from the pool"
    head = (
        f"{report['file']}: {report['questions']} of {report['of']} questions; "
        f"{report['without_picks']} have no picks, {report['without_gold']} no gold passages"
    )
    return f"{head}\n{table(header, rows)}\n{note}\n"


def _difference_page(files: Sequence[str], difference: dict[str, Any]) -> str:
    rows = [
        [str(row["k"]), shown(row["recall"]), shown(row["all_gold"]), str(row["won"]), str(row["lost"])]
        for row in difference["prefixes"]
    ]
    head = f"{files[0]} minus {files[1]}: {difference['questions']} questions of both, paired bootstrap"
    return head + "\n" + table(["k", "recall [95 %]", "all gold [95 %]", "won", "lost"], rows)


def _mean(values: list[float] | None) -> str:
    return "-" if values is None else f"{values[0]:.3f}"
