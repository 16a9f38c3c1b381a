"""Answer a file of questions from their picks.

DIR is the index that the picks come from; PICKS.jsonl is what georag select wrote, Q.jsonl holds one {"id", "question"}
a line. Writes the picks' lines, each with "answer", "citations" (ids of the chunks that it cites), "invalid_citations",
"refused" and "context" (ids of the chunks in the order of the prompt, the best one last); georag evaluate scores them.
A run that was stopped goes on when it is started again with the same arguments.
"""

import argparse
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from georag_jax import __version__
from georag_jax._errors import require
from georag_jax._jsonl import read_records, string_list
from georag_jax.cli._llm import add_llm, check_llm, open_llm
from georag_jax.cli._part import Part
from georag_jax.cli._shared import few, read_questions
from georag_jax.cli.ask import answer_record

if TYPE_CHECKING:
    from georag_jax.documents import Question
    from georag_jax.models.answers import Reader
    from georag_jax.models.chat import ChatModel
    from georag_jax.retrieval import Index

_BLOCK = 8  # questions that are answered before they are kept: what a kill can lose


class _Task(NamedTuple):
    question: "Question"
    record: dict[str, Any]  # the line of the picks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("index", metavar="DIR", help="directory made by georag index")
    parser.add_argument("--picks", required=True, metavar="PICKS.jsonl")
    parser.add_argument("--queries", required=True, metavar="Q.jsonl")
    add_llm(parser, "answers", required=True)
    parser.add_argument("--k", type=int, metavar="K", help="use the first K picks alone")
    parser.add_argument("--budget", type=int, default=1400, metavar="TOKENS", help="for the chunks of a question")
    parser.add_argument("--out", required=True, metavar="ANSWERS.jsonl")
    parser.add_argument("--json", action="store_true", help="report as JSON")


def run(options: argparse.Namespace) -> None:
    """Answers every question that has picks and says how many there were."""
    from georag_jax.models.answers import Reader
    from georag_jax.retrieval import open_index

    check_llm(options)
    require(options.k is None or options.k >= 1, "--k", "a number of picks >= 1", options.k)
    require(options.budget >= 64, "--budget", "at least 64 tokens", options.budget)
    require(not Path(options.out).is_dir(), "--out", "a file", f"the directory {options.out!r}")
    index = open_index(options.index)
    tasks = _tasks(options, index)
    model = open_llm(options)
    with Part(Path(f"{options.out}.part"), _settings(options, model)) as part:
        _work(Reader(model, budget=options.budget), tasks, index, part, options.k)
        report = {"answers": options.out, "questions": len(tasks), **_counts(part, tasks)}
        part.finish(Path(options.out), (task.question.id for task in tasks))
    print(json.dumps(report) if options.json else _page(report))


def _tasks(options: argparse.Namespace, index: "Index") -> list[_Task]:
    """The lines of the picks with their questions."""
    questions = {question.id: question for question in read_questions(options.queries)}
    known, tasks = set(index.ids), []
    for line in read_records(options.picks):
        require(line.record["id"] in questions, line.where, "an id of the questions", repr(line.record["id"]))
        require("picks" in line.record, line.where, 'a list "picks"', "none")
        strangers = set(string_list(line.record, "picks", line.where)) - known
        require(not strangers, line.where, f"chunks of {options.index}", few(strangers))
        tasks.append(_Task(questions[line.record["id"]], line.record))
    require(bool(tasks), options.picks, "at least one line", "none")
    return tasks


def _work(reader: "Reader", tasks: list[_Task], index: "Index", part: Part, k: int | None) -> None:
    """Answers the questions that the part has no record of, block by block."""
    from tqdm import tqdm

    from georag_jax.models.server import ServerError

    number = {identifier: i for i, identifier in enumerate(index.ids)}
    left = [task for task in tasks if task.question.id not in part]
    with tqdm(total=len(tasks), initial=len(tasks) - len(left), unit=" questions", disable=None) as bar:
        for start in range(0, len(left), _BLOCK):
            block = left[start : start + _BLOCK]
            chunks = [[index.documents[number[chunk]] for chunk in task.record["picks"][:k]] for task in block]
            try:
                answers = reader.answer([task.question for task in block], chunks)
            except ServerError as error:
                raise ServerError(f"{error}; the same command goes on where it stopped", error.status_code) from error
            pairs = zip(block, answers, strict=True)
            part.add({**task.record, **answer_record(answer)} for task, answer in pairs)
            bar.update(len(block))


def _settings(options: argparse.Namespace, model: "ChatModel") -> dict[str, Any]:
    """All that the answers depend on; a run is taken up only where nothing of it changed."""
    files = [options.picks, options.queries, Path(options.index) / "index.json"]
    return {
        "version": __version__,
        "llm": model.fingerprint,
        "k": options.k,
        "budget": options.budget,
        "files": [hashlib.sha256(Path(path).read_bytes()).hexdigest() for path in files],
    }


def _counts(part: Part, tasks: list[_Task]) -> dict[str, int]:
    records = list(_records(part, tasks))
    return {
        "refused": sum(record["refused"] for record in records),
        "without_citation": sum(not record["refused"] and not record["citations"] for record in records),
        "invalid_citations": sum(record["invalid_citations"] for record in records),
    }


def _records(part: Part, tasks: list[_Task]) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in part.lines(task.question.id for task in tasks))


def _page(report: dict[str, Any]) -> str:
    return (
        f"{report['answers']}: {report['questions']} questions; {report['refused']} refused for want of evidence, "
        f"{report['without_citation']} answers without a citation, {report['invalid_citations']} citations of nothing"
    )
