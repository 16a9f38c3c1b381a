"""The real questions as arguments of ``select``, cut to the sizes that a case wants."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from benchmarks.data import QuestionSet, load, make_pool
from benchmarks.speed.timing import Side

SETS = ("hotpotqa", "musique")
SIZE, SUBQUERIES, PICKS = 200, 10, 5
Arguments = dict[str, np.ndarray]


class Plan(NamedTuple):
    """Where the question sets are and how much is to be done."""

    data: Path
    rounds: int = 5
    quick: bool = False

    def choose(self, full: Any, quick: Any) -> Any:
        """One of two sizes."""
        return quick if self.quick else full


def pools(data: Path, kind: str = "dense", size: int = SIZE) -> Arguments:
    """Every question of both sets, the sets taking turns, with ``size`` candidates each."""
    parts = [make_pool(questions, kind, size).arguments for questions in _sets(data)]
    return {
        name: np.stack([part[name] for part in parts], 1).reshape(-1, *parts[0][name].shape[1:]) for name in parts[0]
    }


def cut(arguments: Arguments, size: int = SIZE, m: int = SUBQUERIES, keep_affinity: bool = False) -> Arguments:
    """The first ``size`` candidates and ``m`` sub-queries; without affinity, which is then computed from vectors."""
    first = {
        "candidates": arguments["candidates"][:, :size],
        "query": arguments["query"],
        "subqueries": arguments["subqueries"][:, :m],
        "affinity": arguments["affinity"][:, :m, :size],
        "retrieved": arguments["retrieved"][:, :m],
        "primary": arguments["primary"][:, :size],
    }
    return {name: np.ascontiguousarray(x) for name, x in first.items() if keep_affinity or name != "affinity"}


def repeat(arguments: Arguments, count: int) -> Arguments:
    """The first ``count`` questions, over and over from the start where there are not so many."""
    rows = np.arange(count) % len(arguments["query"])
    return {name: x[rows] for name, x in arguments.items()}


def one(arguments: Arguments, i: int) -> Arguments:
    """A single question, without the leading axis."""
    i %= len(arguments["query"])
    return {name: x[i] for name, x in arguments.items()}


def widened(arguments: Arguments, d: int, seed: int = 0) -> Arguments:
    """The vectors in d dimensions: a random projection, or an isometry into a wider space, and unit length again."""
    width = arguments["query"].shape[-1]
    if d == width:
        return arguments
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(max(d, width), min(d, width))))[0].astype(np.float32)
    change = basis.T if d > width else basis
    moved = {name: arguments[name] @ change for name in ("candidates", "query", "subqueries")}
    return arguments | {name: x / np.linalg.norm(x, axis=-1, keepdims=True) for name, x in moved.items()}


def grams(candidates: np.ndarray) -> np.ndarray:
    """[B, K, K] cosines of unit vectors."""
    return np.matmul(candidates, candidates.transpose(0, 2, 1))


def sizes(arguments: Arguments, k: int = PICKS) -> dict[str, Any]:
    """What a record says of the work."""
    B, K, d = arguments["candidates"].shape
    m = arguments["subqueries"].shape[1] if "subqueries" in arguments else 0
    return {"K": K, "k": k, "d": d, "m": m, "batch": B, "dtype": arguments["candidates"].dtype.name}


def batch_side(key: str, name: str, call: Callable[..., Any], arguments: Arguments, k: int = PICKS, **more) -> Side:
    """``call`` on the whole batch at once."""
    return Side(key, name, lambda _: call(**arguments), sizes(arguments, k) | more, len(arguments["query"]))


def single_side(
    key: str, name: str, call: Callable[..., Any], arguments: Arguments, calls: int, k: int = PICKS, **more
) -> Side:
    """``call`` on one question after the other."""
    params = sizes(arguments, k) | {"batch": 1} | more
    return Side(key, name, lambda i: call(**one(arguments, i)), params, calls=calls)


def equal_picks(ours: ArrayLike, theirs: ArrayLike) -> dict[str, Any]:
    """On how many of the questions two sides pick the same set, and in the same order."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    same = lambda a, b: round(float((a == b).all(1).mean()), 4)
    return {
        "questions": len(ours),
        "equal_sets": same(np.sort(ours, 1), np.sort(theirs, 1)),
        "equal_order": same(ours, theirs),
    }


@cache
def _sets(data: Path) -> list[QuestionSet]:
    return [load(data / name) for name in SETS]
