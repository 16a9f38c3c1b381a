"""The options that name a language model, and what a command makes of them."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from georag_jax._errors import require

if TYPE_CHECKING:
    from georag_jax._types import Encoder, Retriever, SubQuerySource
    from georag_jax.models.chat import ChatModel
    from georag_jax.models.subqueries import GeneratedSubQueries, GuardedSubQueries

SERVER_OPTIONS = "--model, --llm-timeout"


def add_llm(parser: argparse.ArgumentParser, does: str, required: bool = False) -> None:
    """The options that name a language model."""
    parser.add_argument(
        "--llm",
        metavar="NAME|PATH|URL",
        required=required,
        help=f"language model that {does}: a known one (georag models list), its directory or GGUF file, "
        "or the address of an OpenAI-compatible server",
    )
    parser.add_argument("--model", metavar="NAME", help="its name on the server that --llm addresses")
    parser.add_argument(
        "--llm-timeout",
        type=float,
        metavar="SECONDS",
        default=argparse.SUPPRESS,
        help="how long an answer of that server may take (default: 60)",
    )


def add_writer(parser: argparse.ArgumentParser, does: str = "writes the sub-queries") -> None:
    """The options that name a language model and say how it writes sub-queries."""
    add_llm(parser, does)
    parser.add_argument(
        "--llm-n",
        type=int,
        metavar="N",
        default=argparse.SUPPRESS,
        help="sub-queries to ask --llm for, for each question (default: 20)",
    )
    parser.add_argument(
        "--llm-rounds",
        type=int,
        choices=(1, 2),
        default=argparse.SUPPRESS,
        help="2: --llm writes again after it has seen the best chunks of its first sub-queries (default: 1)",
    )


def check_llm(options: argparse.Namespace) -> None:
    """Refuses options that do not go together, before anything is loaded."""
    own = [f"--llm-{name}" for name in ("n", "rounds", "timeout") if hasattr(options, f"llm_{name}")]
    require(options.llm is not None or not own, ", ".join(own), "it with --llm", "no --llm")
    for name in ("n", "timeout"):
        value = getattr(options, f"llm_{name}", 1)
        require(value > 0, f"--llm-{name}", "a positive number", value)
    if _is_address(options.llm):
        require(options.model is not None, "--model", "the model's name on the server that --llm addresses", "none")
        return
    given = options.model is not None or "--llm-timeout" in own
    require(not given, SERVER_OPTIONS, "them with an http:// or https:// address as --llm", options.llm)
    if options.llm is not None:
        from georag_jax.models.weights import LANGUAGE_MODELS

        # Loading comes after everything else that can be wrong; a name that says nothing is told at once.
        found = options.llm in LANGUAGE_MODELS or Path(options.llm).exists() or "/" in options.llm
        require(found, "--llm", f"a path, an address, or one of {', '.join(LANGUAGE_MODELS)}", repr(options.llm))


def open_llm(options: argparse.Namespace, kept: Path | None = None, as_json: bool = False) -> "ChatModel":
    """The language model that --llm names, its answers kept in a file if there is one.

    Args:
        options: of the command, checked.
        kept: the file.
        as_json: have a server answer with a JSON list of sub-queries.

    Raises:
        ValueError: --llm names no model, or one that is not implemented.
        ModelNotFoundError: a known name could not be fetched.
    """
    from georag_jax.models.kept import KeptModel
    from georag_jax.models.subqueries import RESPONSE_FORMAT

    if _is_address(options.llm):
        from georag_jax.models.server import ServerModel

        timeout, form = getattr(options, "llm_timeout", 60.0), RESPONSE_FORMAT if as_json else None
        model = ServerModel(options.llm, options.model, timeout=timeout, response_format=form)
    else:
        from georag_jax.models.language_model import LanguageModel

        try:
            model = LanguageModel.from_path(options.llm)
        except ValueError as error:
            raise ValueError(f"--llm: {error}") from error
    return model if kept is None else KeptModel(model, kept)


class Writer:
    """Makes the sub-query source that the options describe.

    Without --llm it is the decomposer. A server's model is asked for one list a question. A model on this machine is
    small, as a rule: it is sampled, the decomposer's sub-queries join its own, and stand alone where its own have lost
    the question.

    Args:
        options: of the command.
        kept: file for the model's answers.

    Attributes:
        model: the language model, once ``source`` was called; None without --llm.

    Raises:
        ValueError: options that do not go together or are out of their range.
    """

    def __init__(self, options: argparse.Namespace, kept: Path | None = None):
        check_llm(options)
        self._options, self._kept = options, kept
        self._generated: GeneratedSubQueries | None = None
        self._guard: GuardedSubQueries | None = None
        self.model: ChatModel | None = None

    @property
    def is_local(self) -> bool:
        """Whether the model runs in this process."""
        return self._options.llm is not None and not _is_address(self._options.llm)

    def source(self, retriever: "Retriever", encoder: "Encoder") -> "SubQuerySource":
        """The source over a retriever and its encoder; loads the model.

        Raises:
            ValueError: --llm names no model, or one that is not implemented.
            ModelNotFoundError: a known name could not be fetched.
        """
        from georag_jax.models.subqueries import (
            Decomposer,
            GeneratedSubQueries,
            GuardedSubQueries,
            JoinedSubQueries,
            TwoRoundSubQueries,
        )

        if self._options.llm is None:
            return Decomposer()
        self.model, style = open_llm(self._options, self._kept, as_json=True), "samples" if self.is_local else "list"
        n = getattr(self._options, "llm_n", 20)
        source = self._generated = GeneratedSubQueries(self.model, n=n, style=style, encoder=encoder)
        if getattr(self._options, "llm_rounds", 1) == 2:
            source = TwoRoundSubQueries(source, retriever, encoder)
        if not self.is_local:
            return source
        self._guard = GuardedSubQueries(source, Decomposer(), retriever, encoder)
        return JoinedSubQueries([self._guard, Decomposer()])

    def settings(self) -> list[Any]:
        """All that the sub-queries depend on once ``source`` was called, ready for JSON."""
        own = [getattr(self._options, f"llm_{name}", None) for name in ("n", "rounds")]
        return [None if self.model is None else self.model.fingerprint, *own]

    def counts(self) -> dict[str, int] | None:
        """What became of the model's answers, by name; None without one."""
        if self._generated is None:
            return None
        fallen = {} if self._guard is None else {"guarded": self._guard.fallen_back}
        return self._generated.total_report._asdict() | fallen


def counts_line(counts: dict[str, int]) -> str:
    """The counts of a ``Writer`` in words.

    >>> from georag_jax.models.subqueries import Report
    >>> counts_line(Report(generated=9, duplicates=2, kept=7, drifted=1, fallbacks=1)._asdict())
    'sub-queries by the model: 9, dropped 2 repeated; kept 7, 1 far from the question; questions left without any: 1'
    """
    words = {"duplicates": "repeated", "near_duplicates": "nearly so", "malformed": "malformed"}
    words |= {"echoes": "from the worked examples", "surplus": "surplus"}
    dropped = ", ".join(f"{counts[key]} {word}" for key, word in words.items() if counts[key]) or "none"
    lines = [
        f"sub-queries by the model: {counts['generated']}, dropped {dropped}",
        f"kept {counts['kept']}, {counts['drifted']} far from the question",
        f"questions left without any: {counts['fallbacks']}",
    ]
    if counts.get("guarded"):
        lines.append(f"questions where they had lost it and the question's own stand alone: {counts['guarded']}")
    return "; ".join(lines)


def _is_address(llm: str | None) -> bool:
    return llm is not None and llm.startswith(("http://", "https://"))
