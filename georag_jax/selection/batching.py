"""Fixed shapes for ragged work: sizes are rounded up to buckets, so that few programs are ever compiled."""

from typing import NamedTuple

import numpy as np


class Part(NamedTuple):
    """Queries that go through the device together: ``rows`` of the batch, pools of up to ``size`` candidates."""

    rows: slice | np.ndarray
    size: int


def bucket(size: int, least: int = 8, steps: int = 16) -> int:
    """Size rounded up to a multiple of the power of two below it over ``steps``, or of ``least`` if that is more.

    With 16 steps padding costs at most an eighth of the axis from 64 on, with 4 at most a quarter from 32 on.

    >>> [bucket(n) for n in (1, 9, 200, 500)]
    [8, 16, 200, 512]
    """
    step = max(least, (1 << max(size.bit_length() - 1, 0)) // steps)
    return max(-(-size // step), 1) * step


def power_of_two(size: int) -> int:
    """The smallest power of two that is not below size; 1 for 0."""
    return 1 << max(size - 1, 0).bit_length()


def parts(used: np.ndarray, largest: int, workers: int) -> list[Part]:
    """The batch in parts of at most ``largest`` queries whose pools round up to one size, the largest pools first.

    One part for no query. Where all pools are of one size the parts are slices of the batch, and enough of them for
    every worker.

    Args:
        used: [B] candidates of each query.
        largest: queries in a part.
        workers: how many parts are worked on at once.
    """
    sizes = np.unique(used)
    if len(sizes) <= 1:
        rows = [slice(start, stop) for start, stop in _runs(len(used), largest, workers)]
        return [Part(each, bucket(int(sizes[0]) if len(sizes) else 1)) for each in rows]
    rounded = np.array([bucket(int(size), steps=4) for size in sizes])[np.searchsorted(sizes, used)]
    found = []
    for size in np.unique(rounded)[::-1]:
        rows = np.flatnonzero(rounded == size)
        found += [Part(rows[start:stop], int(size)) for start, stop in _runs(len(rows), largest, workers)]
    return found


def _runs(count: int, largest: int, workers: int) -> list[tuple[int, int]]:
    each = max(min(largest, -(-count // workers)), 1)
    return [(start, min(start + each, count)) for start in range(0, max(count, 1), each)]
