"""Times several sides in one run: round after round, each side in turn, so that all of them see the same machine."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np


class Side(NamedTuple):
    """One way of answering the questions.

    Attributes:
        key: what ratios are looked up by; with ``params`` it names the side within its group.
        name: as the tables have it.
        answer: given the number of the call, answers that call's questions; the result may still be on its way.
        params: sizes and settings, for the record.
        queries: questions answered by one call.
        calls: timed in each round, one by one.
        share: of the whole work, what a call does; the time is divided by it.
        note: what a reader has to know.
    """

    key: str
    name: str
    answer: Callable[[int], Any]
    params: dict[str, Any]
    queries: int = 1
    calls: int = 1
    share: float = 1.0
    note: str = ""


def measure(sides: Sequence[Side], rounds: int, clock: Callable[[], float] = time.perf_counter) -> list[dict[str, Any]]:
    """A record for each side; the first call of each, which compiles, is timed apart.

    Every round calls every side, and starts one side further on than the round before.
    """
    jax.clear_caches()  # what was compiled before would make a first call look short
    first = [_seconds(side, 0, clock) for side in sides]
    samples: list[list[float]] = [[] for _ in sides]
    for turn in range(rounds):
        for place in range(len(sides)):
            at = (turn + place) % len(sides)
            side = sides[at]
            for call in range(side.calls):
                samples[at].append(_seconds(side, 1 + turn * side.calls + call, clock))
    return [_record(*each, rounds) for each in zip(sides, first, samples, strict=True)]


def absent(key: str, name: str, error: Exception) -> dict[str, Any]:
    """The record of a side that cannot run here."""
    return {"key": key, "name": name, "error": f"{type(error).__name__}: {error}"}


def rounded(value: float) -> float:
    """Four digits are more than a timing has."""
    return float(f"{value:.4g}")


def _seconds(side: Side, call: int, clock: Callable[[], float]) -> float:
    start = clock()
    jax.block_until_ready(side.answer(call))
    return clock() - start


def _record(side: Side, first: float, samples: list[float], rounds: int) -> dict[str, Any]:
    each = 1000 * np.array(samples) / side.queries / side.share
    low, middle, high = np.quantile(each, [0.1, 0.5, 0.9])
    record = {
        "key": side.key,
        "name": side.name,
        "params": side.params,
        "queries_a_call": side.queries,
        "first_call_s": rounded(first),
        "compile_s": rounded(max(first - float(np.median(samples)), 0)),
        "per_query_ms": {"median": rounded(middle), "p10": rounded(low), "p90": rounded(high), "n": len(samples)},
        "rounds": rounds,
    }
    if side.share < 1:
        record["share_of_work_timed"] = rounded(side.share)
    if side.note:
        record["note"] = side.note
    return record
