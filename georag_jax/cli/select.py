"""Select chunks for a file of questions.

Q.jsonl holds one {"id", "question"} a line, S.jsonl one {"id", "subqueries": [..]}; without S.jsonl and --llm the
questions are decomposed without a model. Writes one {"id", "picks": [chunk ids in order], ..} a line. A run that was
stopped goes on when it is started again with the same arguments.
"""

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from georag_jax._errors import describe, require
from georag_jax._jsonl import parse_object, read_lines
from georag_jax.cli._shared import add_selection, open_pipeline, read_questions

if TYPE_CHECKING:
    from georag_jax.pipeline import GeoRAG, Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("index", metavar="DIR", help="directory made by georag index")
    parser.add_argument("--queries", required=True, metavar="Q.jsonl")
    parser.add_argument("--subqueries", metavar="S.jsonl", help="stored sub-queries")
    parser.add_argument(
        "--skip-missing",
        action="store_true",
        help="leave out the questions that S.jsonl has no sub-queries for, instead of stopping",
    )
    add_selection(parser)
    parser.add_argument("--out", required=True, metavar="PICKS.jsonl")
    parser.add_argument("--json", action="store_true", help="report as JSON")


def run(options: argparse.Namespace) -> None:
    """Selects for every question and says how many there were."""
    from tqdm import tqdm

    require(options.subqueries is None or options.llm is None, "--subqueries, --llm", "one of them", "both")
    require(Path(options.index).is_dir(), "DIR", "an index directory", repr(options.index))
    questions, source = read_questions(options.queries), None
    if options.subqueries is not None:
        from georag_jax.models.subqueries import FileSubQueries

        source = FileSubQueries(options.subqueries)
        missing = set(source.missing(questions))
        expected = "sub-queries for every question (--skip-missing leaves out those without)"
        require(options.skip_missing or not missing, options.subqueries, expected, f"none for {_few(missing)}")
        questions = [question for question in questions if question.id not in missing]
        require(bool(questions), options.subqueries, "sub-queries for at least one question", "none")
    pipeline = open_pipeline(options, source)
    part = Path(f"{options.out}.part")
    done = _take_up(part, _settings(options, pipeline))
    left = [question for question in questions if question.id not in done]
    with (
        open(part, "a", encoding="utf-8") as file,
        tqdm(total=len(questions), initial=len(done), unit=" questions", disable=None) as bar,
    ):
        for block in pipeline.stream(left):
            for result in block:
                file.write(json.dumps(record(result), ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
            bar.update(len(block))
    flagged = _finish(part, Path(options.out), questions)
    if options.json:
        print(json.dumps({"picks": options.out, "questions": len(questions), "flagged": flagged}))
    else:
        print(f"{options.out}: {len(questions)} questions")
        for message, count in flagged.items():
            print(f"  {count} with the remark: {message}")


def _few(ids: set[str]) -> str:
    shown = sorted(ids)[:10]
    return f"{len(ids)} of them: {', '.join(shown)}{', ..' if len(ids) > len(shown) else ''}"


def record(result: "Result") -> dict[str, Any]:
    """One line of PICKS.jsonl."""
    return {
        "id": result.question.id,
        "picks": [pick.document.id for pick in result.picks],
        "gains": [pick.gain for pick in result.picks],
        "coverage": list(result.coverage),
        "redundancy": list(result.redundancy),
        "cosine": [document.id for document in result.cosine],
        "subqueries": [list(subquery) for subquery in result.subqueries],
        "pool": list(result.pool_ids),
        "marginal_error": result.marginal_error,
        "status": result.status,
    }


def _settings(options: argparse.Namespace, pipeline: "GeoRAG") -> dict[str, Any]:
    """All that the picks depend on; a run is taken up only where nothing of it changed."""
    files = {name: getattr(options, name) for name in ("queries", "subqueries") if getattr(options, name)}
    files["index"] = Path(options.index) / "index.json"
    return {
        "config": asdict(pipeline.config),
        "pool": pipeline.pool,
        "candidates": pipeline.candidates,
        "retriever": type(pipeline.retriever).__name__,
        "encoder": pipeline.encoder.fingerprint,
        "llm": [options.llm, options.model],
        "skip_missing": options.skip_missing,
        "files": {name: hashlib.sha256(Path(path).read_bytes()).hexdigest() for name, path in files.items()},
    }


def _take_up(part: Path, settings: dict[str, Any]) -> set[str]:
    """Ids that an earlier run with these settings has finished; otherwise starts the file afresh.

    A line that was cut by the end of that run is dropped; the first line holds the settings.
    """
    whole: list[bytes] = []
    if part.exists():
        whole = [line for line in part.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    header = json.dumps({"settings": settings}, ensure_ascii=False).encode() + b"\n"
    if whole and json.loads(whole[0]) != json.loads(header):
        print(f"georag: {part} is of a run with other settings: starting afresh", file=sys.stderr)
        whole = []
    kept = whole or [header]
    part.parent.mkdir(parents=True, exist_ok=True)
    temporary = part.with_name(part.name + ".tmp")
    temporary.write_bytes(b"".join(kept))
    os.replace(temporary, part)
    return {json.loads(line)["id"] for line in kept[1:]}


def _finish(part: Path, out: Path, questions: list) -> dict[str, int]:
    """Puts the lines in the order of the questions, atomically; returns how many carry which remark."""
    lines = dict(_records(part))
    temporary = out.with_name(out.name + ".tmp")
    flagged: dict[str, int] = {}
    with open(temporary, "wb") as file:
        for question in questions:
            file.write(lines[question.id])
            status = parse_object(lines[question.id], str(part))["status"]
            if status:
                flagged[describe(status)] = flagged.get(describe(status), 0) + 1
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, out)
    part.unlink()
    return flagged


def _records(part: Path) -> Iterator[tuple[str, bytes]]:
    for line, where, number in read_lines(part):
        if number > 1:
            yield parse_object(line, where)["id"], line
