"""Vectors on their way into the program: checked and made unit; a CPU reads the candidates where they lie if it can."""

import ctypes
import threading
from typing import NamedTuple

import numpy as np

from georag_jax.selection.inputs import Inputs

BOUNDARY = 64  # bytes; XLA takes a host array as it is where it starts at a multiple of this
_SMALL, _LARGE = 1e-30, 1e30  # of squared lengths: beyond, float32 may have lost digits of the squares


class Rooms(threading.local):
    """For each thread one array for the candidates of block after block.

    A new one each time would be paid for page by page; aligned as XLA wants it, a CPU device reads it where it is.
    """

    def __init__(self):
        self._bytes = np.empty(0, np.uint8)

    def room(self, count: int, dtype: type) -> np.ndarray:
        """An array of so many numbers, of this thread; what it held before is lost."""
        size = count * np.dtype(dtype).itemsize
        if len(self._bytes) < size + BOUNDARY:
            self._bytes = np.empty(size + BOUNDARY, np.uint8)
        start = -self._bytes.ctypes.data % BOUNDARY
        return self._bytes[start : start + size].view(dtype)


def offset(inputs: Inputs) -> int | None:
    """How many numbers beyond a boundary every query's candidates start; None where they cannot be read in place."""
    pools = inputs.columns["candidates"]
    if isinstance(pools, list) or inputs.center is not None or pools.dtype != inputs.dtype:
        return None
    if not pools.size or not pools.flags.c_contiguous or pools[0].nbytes % BOUNDARY or not pools.flags.aligned:
        return None
    return pools.ctypes.data % BOUNDARY // pools.itemsize


def in_place(pools: np.ndarray, start: int) -> np.ndarray:
    """The numbers of some queries' candidates [n, K, d] in a row, from ``start`` numbers before them, without a copy.

    What precedes them may be anybody's: it is never read. It lies in the same page, as a page starts at a boundary.
    """
    size = pools.nbytes + start * pools.itemsize
    there = (ctypes.c_byte * size).from_address(pools.ctypes.data - start * pools.itemsize)
    # The owner stays as long as what is returned, as may a program that an interrupt has left behind.
    there.owner = pools  # pyright: ignore[reportAttributeAccessIssue]
    return np.frombuffer(memoryview(there), pools.dtype)


def factors(pools: np.ndarray, mask: np.ndarray) -> np.ndarray | None:
    """What makes each of the candidates [n, K, d] a unit vector, 0 where the mask [n, K] does not hold.

    None where a row that counts is zero, not finite, or so large or small that its length must be found with care.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.vecdot(pools, pools)
    if not _usual(squares, mask):
        return None
    return np.where(mask, _to_unit(np.where(mask, squares, 1), pools.dtype), 0).astype(pools.dtype)


def _usual(squares: np.ndarray, mask: np.ndarray) -> bool:
    return bool((((squares > _SMALL) & (squares < _LARGE)) | ~mask).all())


def _to_unit(squares: np.ndarray, dtype: type | np.dtype) -> np.ndarray:
    """1 for squared lengths that are 1 but for rounding, as most encoders' vectors have them."""
    return np.where(np.abs(squares - 1) < 4 * np.finfo(dtype).eps, 1, 1 / np.sqrt(squares))


class Where(NamedTuple):
    """Which queries a block holds, for messages; ``single`` where an array has no axis of queries."""

    queries: np.ndarray
    batched: bool
    single: bool = False

    def only(self, i: int) -> "Where":
        """For an array of one query."""
        return Where(self.queries[i : i + 1], self.batched, True)

    def refuse(self, name: str, expected: str, got: str, wrong: np.ndarray | np.bool_) -> None:
        """Raises for the first wrong row; ``wrong`` has the batch axis first, or stands for a single query."""
        if wrong.any():
            query, *rows = np.argwhere(np.asarray(wrong)[None] if self.single else wrong)[0].tolist()
            row = f" at row {', '.join(map(str, rows))}" if rows else ""
            of = f" of query {self.queries[query]}" if self.batched else ""
            raise ValueError(f"{name}: expected {expected}, got {got}{row}{of}")


def in_order(pool: np.ndarray) -> bool:
    """Whether a quick look at the vectors [K, d] finds no NaN, infinity or zero vector; False may be a false alarm."""
    if pool.dtype not in (np.float32, np.float64) or not pool.flags.c_contiguous or not pool[:, 0].all():
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.vdot(pool, pool)))


def unit(
    name: str,
    array: np.ndarray,
    mask: np.ndarray,
    inputs: Inputs,
    where: Where,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Rows of length 1 where the mask holds, zeros elsewhere; one pass where no row is out of the ordinary.

    Args:
        name: of the argument.
        array: [..., d]
        mask: [...] which rows count.
        inputs: what the array came with.
        where: for messages.
        out: what is written to; None for a new array.

    Raises:
        ValueError: a row that counts has no direction.
    """
    usual = inputs.center is None and array.dtype.kind == "f"
    if usual:
        array = array.astype(np.float32) if array.dtype.itemsize < 4 else array
        with np.errstate(over="ignore", invalid="ignore"):  # NaN and infinity have no finite square
            squares = np.vecdot(array, array)
        usual = _usual(squares, mask)
    if not usual:
        array, squares = _scaled(name, array, mask, inputs, where)
    if not mask.all():
        array, squares = np.where(mask[..., None], array, 0), np.where(mask, squares, 1)
    out = np.empty(array.shape, inputs.dtype) if out is None else out
    return np.multiply(array, _to_unit(squares, inputs.dtype)[..., None], out=out, casting="same_kind")


def _scaled(name: str, array: np.ndarray, mask: np.ndarray, inputs: Inputs, where: Where):
    """Rows divided by their largest number, in float64, and their squared lengths; 1 where the mask does not hold."""
    where.refuse(name, "finite numbers", "NaN or infinity", ~np.isfinite(array).all(-1) & mask)
    array = np.where(mask[..., None], array, 0).astype(np.float64)
    if inputs.center is not None:
        array = np.where(mask[..., None], array - inputs.center, 0)
    size = np.abs(array).max(-1)
    what = "a zero vector" if inputs.center is None else "a vector equal to the center"
    where.refuse(name, "vectors with a direction", what, (size == 0) & mask)
    array = array / np.where(size > 0, size, 1)[..., None]
    return array, np.where(mask, (array * array).sum(-1), 1)
