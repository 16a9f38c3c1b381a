"""Pick the chunks for one question and show them; with --llm, answer it from them.

Sub-queries come from --llm and from the question itself.
"""

import argparse
import json
import textwrap
from typing import TYPE_CHECKING, Any

from georag_jax._errors import describe
from georag_jax.cli._llm import Writer, counts_line, open_llm
from georag_jax.cli._shared import add_selection, open_pipeline
from georag_jax.cli.select import record

if TYPE_CHECKING:
    from georag_jax.models.answers import Answer
    from georag_jax.pipeline import Result


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("index", metavar="DIR", help="directory made by georag index")
    parser.add_argument("question")
    add_selection(parser, "writes the sub-queries and the answer")
    parser.add_argument("--json", action="store_true", help="report as JSON")


def run(options: argparse.Namespace) -> None:
    """Prints the picks, and the answer where there is a language model."""
    writer = Writer(options)
    result = open_pipeline(options, writer.source).ask(options.question)
    counts = writer.counts()
    answer = None if counts is None else answer_from(result, writer, options)
    if options.json:
        own = None if answer is None else answer_record(answer)
        print(json.dumps({**record(result), "llm": counts, "answer": own}, ensure_ascii=False))
        return
    print(page(result))
    if counts is not None and answer is not None:
        print("\n".join(["", *answer_lines(answer, result), "", counts_line(counts)]))


def answer_from(result: "Result", writer: Writer, options: argparse.Namespace) -> "Answer":
    """What the language model answers from the picks."""
    from georag_jax.models.answers import Reader

    # A server is asked anew, for sentences and not for a JSON list; a model of this machine is not loaded twice.
    model = writer.model if writer.is_local else open_llm(options)
    assert model is not None
    return Reader(model).answer([result.question], [[pick.document for pick in result.picks]])[0]


def answer_record(answer: "Answer") -> dict[str, Any]:
    """An answer, ready for JSON."""
    return {
        "answer": answer.text,
        "citations": list(answer.citations),
        "invalid_citations": answer.invalid,
        "refused": answer.refused,
        "context": list(answer.context),
    }


def answer_lines(answer: "Answer", result: "Result") -> list[str]:
    """The answer and the picks that it cites, by their rank."""
    rank = {pick.document.id: str(i) for i, pick in enumerate(result.picks, 1)}
    cited = ", ".join(rank[chunk] for chunk in answer.citations)
    lines = [f"answer: {answer.text}" + (f"  (from {cited})" if cited else "")]
    return lines + ([f"        {answer.invalid} of its citations name no pick"] if answer.invalid else [])


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
