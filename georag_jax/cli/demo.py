"""Show what coverage changes, on a bundled corpus.

For one question: what cosine top-k and GeoRAG pick (* marks gold passages), the sub-queries with their weights, and
the coverage after each pick. Then the table over all bundled questions. The sub-queries are bundled as well; with --llm
a language model writes those of the one question, and answers it from the picks.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from georag_jax import metrics
from georag_jax._errors import require
from georag_jax.cli._llm import Writer, add_writer, counts_line
from georag_jax.cli._shared import add_selector, config_of, load_encoder, read_questions, table
from georag_jax.cli.ask import answer_from, answer_lines, answer_record
from georag_jax.cli.select import record

if TYPE_CHECKING:
    from georag_jax.models import SentenceEncoder
    from georag_jax.pipeline import Result
    from georag_jax.retrieval import Index

_SCRATCH = ".demo-build-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("--question", metavar="ID", help="the bundled question to show, such as q-03")
    add_writer(parser, "writes the sub-queries of the question that is shown, and answers it")
    add_selector(parser)
    parser.add_argument("--json", action="store_true", help="report as JSON")


def run(options: argparse.Namespace) -> None:
    """Indexes the bundled corpus at the first call, selects for all its questions and prints."""
    from georag_jax.models.subqueries import FileSubQueries
    from georag_jax.models.weights import cache_directory
    from georag_jax.pipeline import GeoRAG

    config = config_of(options)
    with as_file(files("georag_jax.demo")) as data:
        questions = read_questions(data / "queries.jsonl")
        known = [question.id for question in questions]
        expected = f"an id of {known[0]} to {known[-1]}"
        require(options.question in (None, *known), "--question", expected, options.question)
        writer = Writer(options, cache_directory() / "demo-answers.jsonl" if options.llm else None)
        encoder = load_encoder("minilm")
        index, stored = _index(data / "corpus.jsonl", encoder), FileSubQueries(data / "subqueries.jsonl")
    select = lambda source: GeoRAG.over_index(index, encoder, source, preset=options.preset, config=config).run
    results = select(stored)(questions)
    report = {"questions": [record(result) for result in results], "all_gold": _scores(results, options.k)}
    shown = next(result for result in results if result.question.id == (options.question or _telling(results)))
    lines = []
    if options.llm is not None:
        shown = select(writer.source(index.dense, encoder))([shown.question])[0]
        answer, counts = answer_from(shown, writer, options), writer.counts() or {}
        report["llm"] = {**record(shown), **answer_record(answer), "counts": counts}
        lines = ["", *answer_lines(answer, shown), f"        accepted: {'; '.join(shown.question.answers)}"]
        lines += ["", counts_line(counts)]
    if options.json:
        print(json.dumps(report, ensure_ascii=False))
        return
    print("\n".join([_page(shown), *lines, "", _table(report["all_gold"], len(results), options.k)]))


def _table(scores: dict[str, list[float]], questions: int, k: int) -> str:
    head = (
        f"All {questions} bundled questions, stored sub-queries: share with every gold passage among the first k picks"
    )
    ks = [j for j in (1, 2, 3, 5, 10) if j <= k]
    rows = [[name, *(f"{values[j - 1]:.2f}" for j in ks)] for name, values in scores.items()]
    return head + "\n" + table(["", *(f"k = {j}" for j in ks)], rows)


def _index(corpus: Path, encoder: "SentenceEncoder") -> "Index":
    """The bundled corpus' index in the cache, built where it is missing or damaged."""
    from georag_jax.models.weights import cache_directory
    from georag_jax.retrieval import build_index, open_index

    cache = cache_directory()
    digest = hashlib.sha256(corpus.read_bytes() + encoder.fingerprint.encode()).hexdigest()[:16]
    home = cache / f"demo-{digest}"
    if _is_sound(home, encoder):
        return open_index(home, encoder)
    cache.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(cache)
    # Each first run builds in a directory of its own, so that two at once do not meet.
    with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=cache) as scratch:
        built = Path(scratch) / "index"
        build_index(corpus, built, encoder)
        if home.exists() and not _is_sound(home, encoder):
            os.replace(home, Path(scratch) / "damaged")
        try:
            os.replace(built, home)
        except OSError:  # a directory that is not empty is not replaced: another first run was faster
            if not home.exists():
                raise
    return open_index(home, encoder)


def _is_sound(home: Path, encoder: "SentenceEncoder") -> bool:
    from georag_jax.retrieval import open_index

    try:
        open_index(home, encoder)
    except (ValueError, FileNotFoundError):
        return False
    return True


def _remove_leftovers(cache: Path) -> None:
    """Removes what builds that were killed left behind; a build lasts minutes, so that one of yesterday is dead."""
    for scratch in cache.glob(f"{_SCRATCH}*"):
        with contextlib.suppress(FileNotFoundError):  # a build that ends at this moment removes its own
            if scratch.stat().st_mtime < time.time() - 86_400:
                shutil.rmtree(scratch, ignore_errors=True)


def _scores(results: "list[Result]", k: int) -> dict[str, list[float]]:
    share = lambda rows: metrics.all_gold(np.stack(rows)).mean(0).tolist()
    gold = [result.question.gold_ids for result in results]
    pairs = list(zip(results, gold, strict=True))
    return {
        "cosine": share([metrics.recall([d.id for d in r.cosine], g, k) for r, g in pairs]),
        "GeoRAG": share([metrics.recall([p.document.id for p in r.picks], g, k) for r, g in pairs]),
        "ceiling of the pool": share([metrics.recall_ceiling(r.pool_ids, g, k) for r, g in pairs]),
    }


def _found(result: "Result") -> tuple[int, int]:
    """Gold passages that cosine and GeoRAG pick."""
    gold = set(result.question.gold_ids)
    return len(gold & {d.id for d in result.cosine}), len(gold & {pick.document.id for pick in result.picks})


def _telling(results: "list[Result]") -> str:
    """The first question at which GeoRAG finds most more gold passages than cosine."""
    return max(results, key=lambda result: _found(result)[1] - _found(result)[0]).question.id


def _page(result: "Result") -> str:
    gold = set(result.question.gold_ids)
    mark = lambda document: f"{'*' if document.id in gold else ' '} {(document.title or document.id)[:42]}"
    rows = [
        [str(rank), mark(theirs), mark(pick.document), f"{covered:.3f}"]
        for rank, (theirs, pick, covered) in enumerate(
            zip(result.cosine, result.picks, result.coverage, strict=False), 1
        )
    ]
    lines = [f"{result.question.id}: {result.question.text}", "", "weight  sub-query"]
    lines += [f" {subquery.weight:.3f}  {subquery.text}" for subquery in result.subqueries]
    lines += ["", f"{'':3}{'cosine':46}{'GeoRAG':46}coverage after the pick"]
    lines += [f"{row[0]:3}{row[1]:46}{row[2]:46}{row[3]}" for row in rows]
    theirs, ours = _found(result)
    return "\n".join([*lines, "", f"gold passages (*): cosine {theirs} of {len(gold)}, GeoRAG {ours} of {len(gold)}"])
