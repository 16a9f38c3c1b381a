"""What several commands need: options, question files, and the pipeline they describe."""

import argparse
import ast
import json
import platform
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from georag_jax._errors import require
from georag_jax._jsonl import read_records, string_list, text_field
from georag_jax.cli._llm import add_writer
from georag_jax.cli._reranker import add_reranker, load_reranker
from georag_jax.config import SelectConfig
from georag_jax.documents import Question

if TYPE_CHECKING:
    import numpy as np

    from georag_jax._types import Encoder, Retriever, SubQuerySource
    from georag_jax.models import SentenceEncoder
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


def add_selection(parser: argparse.ArgumentParser, llm_does: str) -> None:
    """The options that say where sub-queries come from and how chunks are selected."""
    add_writer(parser, llm_does)
    add_selector(parser)
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
    add_reranker(parser)


def add_selector(parser: argparse.ArgumentParser) -> None:
    """The options that make the selector's settings."""
    parser.add_argument("--preset", choices=("default", "paper"), default="default", help="selector settings")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="change one field of the preset, such as objective=sinkhorn; may be repeated",
    )
    parser.add_argument("--k", type=int, default=5, help="chunks to pick")


def config_of(options: argparse.Namespace) -> SelectConfig:
    """The selector settings that the options describe; ValueError for a field or value that there is not."""
    changes: dict[str, Any] = {"k": options.k}
    known = {field.name for field in fields(SelectConfig)}
    for item in options.set:
        name, equals, value = item.partition("=")
        require(bool(equals), "--set", "FIELD=VALUE", repr(item))
        require(name != "k", "--set", f"any field but k, which has an option of its own (--k {value})", repr(item))
        require(name in known, "--set", f"a field of {sorted(known - {'k'})}", repr(name))
        changes[name] = _value(value)
    try:
        return replace(SelectConfig.preset(options.preset), **changes)
    except TypeError as error:  # of a JSON value where no field's type has anything like it
        raise ValueError(f"--set: expected numbers, words, true, false or null: {error}") from error


def _value(text: str) -> Any:
    """A value as JSON or as Python writes it; anything else is a word."""
    for read in (json.loads, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, RecursionError):
            continue
    return text


def load_encoder(name: str) -> "SentenceEncoder":
    """The sentence encoder of this name or directory.

    Raises:
        UnknownModelError: it is neither a known name nor a directory of an encoder (a ValueError).
        ModelNotFoundError: the files of a known name could not be fetched.
    """
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


def open_pipeline(
    options: argparse.Namespace, subqueries: "Callable[[Retriever, Encoder], SubQuerySource]"
) -> "GeoRAG":
    """The pipeline over an index directory; what is wrong with options or index is found before the encoder loads.

    Args:
        options: of ``add_selection``.
        subqueries: makes the source of sub-queries over the index' dense retriever and its encoder.
    """
    from georag_jax.pipeline import GeoRAG, check_scores_are_read
    from georag_jax.retrieval import open_index

    config = config_of(options)
    if options.reranker is not None:
        check_scores_are_read(config, "--reranker")
    require(options.candidates >= 1, "--candidates", "a pool size >= 1", options.candidates)
    open_index(options.index)
    encoder = load_encoder(options.encoder)
    index = open_index(options.index, encoder)
    return GeoRAG.over_index(
        index,
        encoder,
        subqueries(index.dense, encoder),
        preset=options.preset,
        config=config,
        pool=getattr(options, "pool", None),
        similarity=getattr(options, "similarity", None),
        candidates=options.candidates,
        reranker=None if options.reranker is None else load_reranker(options.reranker),
    )


def few(ids: Collection[str]) -> str:
    """How many ids there are, and the first of them.

    >>> few(["b", "a"])
    '2: a, b'
    """
    shown = sorted(ids)[:10]
    return f"{len(ids)}: {', '.join(shown)}{', ..' if len(ids) > len(shown) else ''}"


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


def interval_of(values: "np.ndarray") -> list[float] | None:
    """Mean and 95 % bootstrap interval, ready for JSON; None where there is no value."""
    from georag_jax import metrics

    found = metrics.interval(values)
    return None if found.mean != found.mean else list(found)


def shown(values: list[float] | None) -> str:
    """An interval in words.

    >>> shown([0.5, 0.25, 0.75])
    '0.500 [0.250, 0.750]'
    """
    return "-" if values is None else f"{values[0]:.3f} [{values[1]:.3f}, {values[2]:.3f}]"
