"""Pick the chunks for one question and show them.

Sub-queries come from --llm, or from the question itself.
"""

import argparse
import json
import textwrap
from typing import TYPE_CHECKING

from georag_jax._errors import describe
from georag_jax.cli._shared import add_selection, llm_counts, llm_line, open_pipeline, subquery_source
from georag_jax.cli.select import record

if TYPE_CHECKING:
    from georag_jax.pipeline import Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("index", metavar="DIR", help="directory made by georag index")
    parser.add_argument("question")
    add_selection(parser)
    parser.add_argument("--json", action="store_true", help="report as JSON")


def run(options: argparse.Namespace) -> None:
    """Prints the picks."""
    source = subquery_source(options)
    result = open_pipeline(options, source).ask(options.question)
    counts = llm_counts(source)
    if options.json:
        print(json.dumps({**record(result), "llm": counts}, ensure_ascii=False))
        return
    print(page(result))
    if counts is not None:
        print(f"\n{llm_line(counts)}")


def page(result: "Result") -> str:
    """The picks with what each serves, and the sub-queries with their weights."""
    lines = [result.question.text, "", "sub-queries"]
    lines += [f"  {subquery.weight:.2f}  {subquery.text}" for subquery in result.subqueries]
    for rank, (pick, covered) in enumerate(zip(result.picks, result.coverage, strict=True), 1):
        title = pick.document.title or pick.document.id
        lines += ["", f"{rank}. {title}  (gain {pick.gain:.3f}, demand {pick.mass:.2f}, coverage {covered:.3f})"]
        lines += textwrap.wrap(pick.document.text, 100, initial_indent="   ", subsequent_indent="   ")
        lines += [f"   serves {similarity:.2f}  {text}" for text, similarity in pick.serves]
    if result.status:
        lines += ["", f"note: {describe(result.status)}"]
    return "\n".join(lines)
