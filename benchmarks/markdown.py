"""Small pieces of Markdown."""

from collections.abc import Sequence
from typing import Any


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def slashes(values: Sequence[Any]) -> str:
    """Numbers with slashes between, a dash for None.

    >>> slashes([1, None, 2.5])
    '1 / - / 2.5'
    """
    return " / ".join("-" if value is None else f"{value:g}" for value in values)


def missing(counts: Sequence[float], target: Sequence[float]) -> int | float:
    """How much the counts fall short of the targets, added up over those that do.

    >>> missing([3, 5], [4, 4])
    1
    """
    return round(sum(max(want - have, 0) for have, want in zip(counts, target, strict=True)), 1)


def setting_text(values: dict[str, Any]) -> str:
    """Name and value of each; None is said."""
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )


def number_list(texts: Sequence[str]) -> str:
    """How many, and which."""
    return f"{len(texts)} are not: " + "; ".join(texts)
