"""Select chunks for a file of questions.

Q.jsonl holds one {"id", "question"} a line, S.jsonl one {"id", "subqueries": [..]}; without S.jsonl and --llm the
questions are decomposed without a model. Writes one {"id", "picks": [chunk ids in order], ..} a line. A run that was
stopped goes on when it is started again with the same arguments. What --llm answered stays in
PICKS.jsonl.subqueries.jsonl, so that no question is asked twice.
"""

import argparse
import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from georag_jax import __version__
from georag_jax._errors import describe, require
from georag_jax._jsonl import parse_object
from georag_jax.cli._llm import Writer, counts_line
from georag_jax.cli._part import Part
from georag_jax.cli._shared import add_selection, few, open_pipeline, read_questions

if TYPE_CHECKING:
    from georag_jax._types import SubQuerySource
    from georag_jax.documents import Question
    from georag_jax.pipeline import GeoRAG, Result

_LLM_BLOCK = 8  # questions between two records of progress where a language model is asked


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
    add_selection(parser, "writes the sub-queries")
    parser.add_argument("--out", required=True, metavar="PICKS.jsonl")
    parser.add_argument("--json", action="store_true", help="report as JSON")


def run(options: argparse.Namespace) -> None:
    """Selects for every question and says how many there were."""
    require(options.subqueries is None or options.llm is None, "--subqueries, --llm", "one of them", "both")
    require(not Path(options.out).is_dir(), "--out", "a file", f"the directory {options.out!r}")
    questions = read_questions(options.queries)
    kept = None if options.llm is None else Path(f"{options.out}.subqueries.jsonl")
    writer, make_source = Writer(options, kept), None
    if options.subqueries is not None:
        stored, questions = _stored(options, questions)
        make_source = lambda retriever, encoder: stored
    pipeline = open_pipeline(options, make_source or writer.source)
    with Part(Path(f"{options.out}.part"), _settings(options, pipeline, writer)) as part:
        _work(pipeline, questions, part, kept)
        flagged = _flagged(part, questions)
        part.finish(Path(options.out), (question.id for question in questions))
    counts = writer.counts()
    report = {"picks": options.out, "questions": len(questions), "flagged": flagged}
    if counts is not None:
        report["llm"] = {"answers": str(kept), **counts}
    print(json.dumps(report, ensure_ascii=False) if options.json else "\n".join(_page(report)))


def _stored(options: argparse.Namespace, questions: "list[Question]") -> "tuple[SubQuerySource, list[Question]]":
    """The sub-queries of --subqueries, and the questions that they serve."""
    from georag_jax.models.subqueries import FileSubQueries

    source = FileSubQueries(options.subqueries)
    missing = set(source.missing(questions))
    expected = "sub-queries for every question (--skip-missing leaves out those without)"
    require(options.skip_missing or not missing, options.subqueries, expected, f"none for {few(missing)}")
    questions = [question for question in questions if question.id not in missing]
    require(bool(questions), options.subqueries, "sub-queries for at least one question", "none")
    return source, questions


def _work(pipeline: "GeoRAG", questions: "list[Question]", part: Part, kept: Path | None) -> None:
    """Selects for the questions that the part has no record of, block by block."""
    from tqdm import tqdm

    from georag_jax.models.server import ServerError

    left = [question for question in questions if question.id not in part]
    done = len(questions) - len(left)
    # With a language model a question takes seconds: the bar should move, and a kill cost little.
    block = _LLM_BLOCK if kept else len(left)
    with tqdm(total=len(questions), initial=done, unit=" questions", disable=None) as bar:
        try:
            for start in range(0, len(left), max(block, 1)):
                for results in pipeline.stream(left[start : start + block]):
                    part.add(record(result) for result in results)
                    bar.update(len(results))
        except ServerError as error:
            hint = f"the same command goes on where it stopped (what was answered is kept in {kept})"
            raise ServerError(f"{error}; {hint}", error.status_code) from error


def _page(report: dict[str, Any]) -> list[str]:
    lines = [f"{report['picks']}: {report['questions']} questions"]
    lines += [f"  {count} with the remark: {message}" for message, count in report["flagged"].items()]
    if "llm" in report:
        lines += [f"  {counts_line(report['llm'])}", f"  the model's answers are kept in {report['llm']['answers']}"]
    return lines


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


def _settings(options: argparse.Namespace, pipeline: "GeoRAG", writer: Writer) -> dict[str, Any]:
    """All that the picks depend on; a run is taken up only where nothing of it changed."""
    files = {name: getattr(options, name) for name in ("queries", "subqueries") if getattr(options, name)}
    files["index"] = Path(options.index) / "index.json"
    return {
        "version": __version__,
        "config": asdict(pipeline.config),
        "pool": pipeline.pool,
        "candidates": pipeline.candidates,
        "retriever": type(pipeline.retriever).__name__,
        "encoder": pipeline.encoder.fingerprint,
        "reranker": None if pipeline.reranker is None else pipeline.reranker.fingerprint,
        "llm": writer.settings(),
        "skip_missing": options.skip_missing,
        "files": {name: hashlib.sha256(Path(path).read_bytes()).hexdigest() for name, path in files.items()},
    }


def _flagged(part: Part, questions: "list[Question]") -> dict[str, int]:
    """How many records carry which remark."""
    flagged: dict[str, int] = {}
    for line in part.lines(question.id for question in questions):
        status = parse_object(line, str(part.path))["status"]
        if status:
            flagged[describe(status)] = flagged.get(describe(status), 0) + 1
    return flagged
