"""What the retrievers share: the input gate, and partial sorts of score rows with ties to the lowest number."""

import operator
from collections.abc import Iterator, Sequence

import numpy as np

from georag_jax._errors import require
from georag_jax._types import Hits

# Score rows over the whole corpus are made for at most this many cells at a time (64 MiB of float32).
_CELLS = 2**24

# float32 dot products of unit vectors differ by less than this between summation orders.
SLACK = 1e-5

# Rows this close to unit length are left as they are, bit for bit.
_UNIT = 1e-5


def unit_rows(vectors: object, name: str) -> np.ndarray:
    """Checks vectors and brings their rows to unit length; the input is not changed.

    Args:
        vectors: [n, d], any floating type, list, NumPy or JAX array.
        name: what messages call them.

    Returns:
        [n, d] float32, C-contiguous. A row of zeros stays zero: its similarity to everything is 0.

    Raises:
        ValueError: not two-dimensional, or a row that is not finite (the message names it).
    """
    rows = np.ascontiguousarray(np.asarray(vectors), dtype=np.float32)
    require(rows.ndim == 2, name, "an array [n, d]", f"shape {rows.shape}")
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    require(broken.size == 0, name, "finite values", f"NaN or infinity in row {broken[:1]}")
    norms = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))
    off = (np.abs(norms - 1) > _UNIT) & (norms > 0)
    if off.any():
        rows = (rows / np.where(off, norms, 1)[:, None]).astype(np.float32)
    return rows


def checked_texts(texts: Sequence[str]) -> list[str]:
    """The texts as a list; ValueError for one bare string, which would pass as a list of letters."""
    require(not isinstance(texts, str), "texts", "a sequence of strings", "one string")
    return list(texts)


def checked_queries(texts: Sequence[str], vectors: object, width: int) -> np.ndarray:
    """Unit query vectors [n, width] float32, one for each text; ValueError for anything else."""
    count = len(checked_texts(texts))
    given = np.asarray(vectors)
    if count == 0 and given.size == 0:
        return np.zeros((0, width), np.float32)
    queries = unit_rows(given, "vectors")
    require(queries.shape == (count, width), "vectors", f"shape {(count, width)}", f"{queries.shape}")
    return queries


def checked_numbers(numbers: object, size: int) -> np.ndarray:
    """Corpus numbers as int64; ValueError for a number outside 0..size-1, among them the padding -1."""
    checked = np.asarray(numbers)
    if checked.size == 0:
        return checked.astype(np.int64)
    require(checked.dtype.kind in "iu", "numbers", "integers", f"dtype {checked.dtype}")
    low, high = int(checked.min()), int(checked.max())
    require(low >= 0 and high < size, "numbers", f"0..{size - 1}", f"{low if low < 0 else high}")
    return checked.astype(np.int64)


def no_hits(count: int, k: int) -> Hits:
    """Hits for ``count`` queries that hold nothing yet: numbers -1, scores 0."""
    k = operator.index(k)
    require(k >= 1, "k", "at least 1", k)
    return Hits(np.full((count, k), -1, np.int64), np.zeros((count, k), np.float32))


def fill(hits: Hits, query: int, numbers: np.ndarray, scores: np.ndarray) -> None:
    """Writes the best of ``numbers`` [c] by ``scores`` [c] into one row of the hits, ties to the lowest number."""
    order = np.lexsort((numbers, -scores))[: hits.numbers.shape[1]]
    hits.numbers[query, : len(order)] = numbers[order]
    hits.scores[query, : len(order)] = scores[order]


def candidates(row: np.ndarray, k: int, slack: float = 0.0) -> np.ndarray:
    """Numbers, ascending, of all entries of a score row that reach its k-th best less ``slack``.

    >>> candidates(np.array([1.0, 3.0, 2.0, 2.0]), 2).tolist()
    [1, 2, 3]
    """
    if k >= len(row):
        return np.arange(len(row))
    cut = np.partition(row, len(row) - k)[len(row) - k]
    return np.flatnonzero(row >= cut - slack)


def blocks(count: int, size: int) -> Iterator[slice]:
    """Cuts ``count`` queries into slices whose score rows over ``size`` chunks stay within a bounded memory."""
    step = max(1, _CELLS // max(size, 1))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))
