"""One candidate pool from several ranked lists."""

import operator

import numpy as np

from georag_jax._errors import require


def fuse(numbers: np.ndarray, size: int, rank_constant: float = 60) -> np.ndarray:
    """Reciprocal-rank fusion: each list gives a chunk 1 / (rank_constant + its rank in the list, from 1).

    Args:
        numbers: [n_lists, r] integer corpus numbers, best first; negative entries are padding. A chunk that a list
            holds more than once counts once, at its best rank there; the ranks of the others stay.
        size: most chunks to keep, at least 1.
        rank_constant: larger flattens the difference between ranks; greater than -1.

    Returns:
        [at most size] int64 corpus numbers, best first, ties to the lowest number. The order of the lists does not
        matter, to the bit.

    Raises:
        ValueError: ``numbers`` is not a two-dimensional integer array, or size or rank_constant is out of range.

    >>> fuse(np.array([[4, 2, 9], [2, 7, -1]]), size=3).tolist()
    [2, 4, 7]
    """
    lists, size = np.asarray(numbers), operator.index(size)
    require(lists.ndim == 2, "numbers", "an array [n_lists, r]", f"shape {lists.shape}")
    require(lists.size == 0 or lists.dtype.kind in "iu", "numbers", "integers", f"dtype {lists.dtype}")
    require(size >= 1, "size", "at least 1", size)
    require(rank_constant > -1, "rank_constant", "more than -1", rank_constant)
    row, column = np.nonzero(lists >= 0)
    number = lists[row, column].astype(np.int64)
    # By number, then list, then rank: the first of each (number, list) is the one that counts.
    order = np.lexsort((column, row, number))
    row, column, number = row[order], column[order], number[order]
    first = np.ones(len(number), bool)
    first[1:] = (np.diff(number) != 0) | (np.diff(row) != 0)
    column, number = column[first], number[first]
    # Added up by rank, so that the sums do not depend on the order of the lists.
    order = np.lexsort((column, number))
    kept, place = np.unique(number[order], return_inverse=True)
    scores = np.bincount(place, weights=1 / (rank_constant + 1.0 + column[order]), minlength=len(kept))
    return kept[np.argsort(-scores, kind="stable")[:size]]
