"""Fixed shapes for ragged work: sizes are rounded up to buckets, so that few programs are ever compiled."""

from collections.abc import Iterator

import numpy as np

BLOCK_BYTES = 256 * 2**20  # working memory of one block of queries


def bucket(size: int, least: int = 8) -> int:
    """Size rounded up to a multiple of a sixteenth of the power of two below it, or of ``least`` if that is more.

    Padding costs at most an eighth of the axis from 64 on, and there are 32 buckets up to 256.

    >>> [bucket(n) for n in (1, 9, 200, 500)]
    [8, 16, 200, 512]
    """
    step = max(least, 1 << max(size.bit_length() - 5, 0))
    return max(-(-size // step), 1) * step


def power_of_two(size: int) -> int:
    """The smallest power of two that is not below size; 1 for 0."""
    return 1 << max(size - 1, 0).bit_length()


def blocks(queries: int, bytes_each: int) -> Iterator[slice]:
    """Consecutive slices of the batch whose working memory stays within BLOCK_BYTES; an empty one for no query."""
    fit = max(BLOCK_BYTES // max(bytes_each, 1), 1)
    size = min(1 << (fit.bit_length() - 1), 256)
    for start in range(0, max(queries, 1), size):
        yield slice(start, min(start + size, queries))


def pad(array: np.ndarray, shape: tuple[int, ...], fill: float) -> np.ndarray:
    """The array in the corner of a larger one filled with ``fill``."""
    if array.shape == shape:
        return array
    out = np.full(shape, fill, array.dtype)
    out[tuple(slice(n) for n in array.shape)] = array
    return out
