"""What several commands need: options, question files, and the pipeline they describe."""

import argparse
import json
import platform
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from georag_jax._errors import require
from georag_jax._jsonl import read_records, string_list, text_field
from georag_jax.config import SelectConfig
from georag_jax.documents import Question

if TYPE_CHECKING:
    from georag_jax._types import SubQuerySource
    from georag_jax.pipeline import GeoRAG


def read_questions(path: str | Path) -> list[Question]:
    """The questions of a JSONL file {"id", "question", "answers"?, "gold_ids"?}, in order.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a malformed line (file and line number), an id used twice, or no question at all.
    """
    questions = [
        Question(
            id=line.record["id"],
            text=text_field(line.record, "question", line.where),
            answers=string_list(line.record, "answers", line.where),
            gold_ids=string_list(line.record, "gold_ids", line.where),
        )
        for line in read_records(path)
    ]
    require(bool(questions), str(path), "at least one question", "none")
    return questions


def add_encoder(parser: argparse.ArgumentParser) -> None:
    """The option that names the sentence encoder."""
    parser.add_argument("--encoder", default="minilm", metavar="NAME|DIR", help="sentence encoder")


def add_selection(parser: argparse.ArgumentParser) -> None:
    """The options that say where sub-queries come from and how chunks are selected."""
    parser.add_argument("--llm", metavar="URL", help="OpenAI-compatible server that writes the sub-queries")
    parser.add_argument("--model", metavar="NAME", help="model of --llm")
    parser.add_argument("--preset", choices=("default", "paper"), default="default", help="selector settings")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="change one field of the preset, such as objective=sinkhorn; may be repeated",
    )
    parser.add_argument("--k", type=int, default=5, help="chunks to pick")
    parser.add_argument("--candidates", type=int, default=200, help="size of the pool")
    parser.add_argument(
        "--pool",
        choices=("dense", "multi_query"),
        default=argparse.SUPPRESS,
        help="the question's own list, or its fusion with the sub-queries' (default: multi_query; dense for paper)",
    )
    parser.add_argument(
        "--similarity",
        choices=("dense", "hybrid"),
        default=argparse.SUPPRESS,
        help="cosine, or cosine and BM25 (default: hybrid; dense for paper)",
    )
    add_encoder(parser)


def config_of(options: argparse.Namespace) -> SelectConfig:
    """The selector settings that the options describe; ValueError for a field or value that there is not."""
    changes: dict[str, Any] = {"k": options.k}
    known = {field.name for field in fields(SelectConfig)}
    for item in options.set:
        name, equals, value = item.partition("=")
        require(bool(equals) and name in known, "--set", f"FIELD=VALUE with a field of {sorted(known)}", repr(item))
        try:
            changes[name] = json.loads(value)
        except ValueError:
            changes[name] = value
    return replace(SelectConfig.preset(options.preset), **changes)


def load_encoder(name: str):
    """The sentence encoder of this name or directory."""
    from georag_jax.models.encoder import SentenceEncoder
    from georag_jax.models.weights import resolve

    _keep_programs()
    return SentenceEncoder.from_directory(resolve(name))


def _keep_programs() -> None:
    """Has JAX keep compiled programs between runs, a folder a host, unless the user has named a place himself."""
    import jax

    from georag_jax.models.weights import cache_directory

    if jax.config.values["jax_compilation_cache_dir"] is None:
        home = cache_directory() / "programs" / f"{platform.machine()}-{platform.node()}"
        jax.config.update("jax_compilation_cache_dir", str(home))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def open_pipeline(options: argparse.Namespace, subqueries: "SubQuerySource | None" = None) -> "GeoRAG":
    """The pipeline over an index directory; sub-queries from a server or the decomposer unless a source is given."""
    from georag_jax.pipeline import GeoRAG
    from georag_jax.retrieval import open_index

    config = config_of(options)
    encoder = load_encoder(options.encoder)
    index = open_index(options.index, encoder)
    paper = options.preset == "paper"
    similarity = getattr(options, "similarity", "dense" if paper else "hybrid")
    return GeoRAG(
        index.hybrid if similarity == "hybrid" else index.dense,
        encoder,
        subqueries if subqueries is not None else subquery_source(options),
        config=config,
        pool=getattr(options, "pool", "dense" if paper else "multi_query"),
        candidates=options.candidates,
    )


def subquery_source(options: argparse.Namespace) -> "SubQuerySource":
    """The server that --llm and --model name, or the decomposer, which needs none."""
    require((options.llm is None) == (options.model is None), "--llm, --model", "both or neither", "one of them")
    if options.llm is None:
        from georag_jax.models.subqueries import Decomposer

        return Decomposer()
    from georag_jax.models.subqueries import ServerSubQueries

    return ServerSubQueries(options.llm, options.model)


def table(header: list[str], rows: list[list[str]]) -> str:
    """Columns aligned, the first to the left, the others to the right.

    >>> print(table(["k", "recall"], [["1", "0.5"]]))
    k  recall
    1     0.5
    """
    cells = [header, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    cells = [
        [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))] for row in cells
    ]
    return "\n".join("  ".join(row).rstrip() for row in cells)
