"""Some queries' arrays as the program takes them: checked, cut or padded to one size, vectors made unit."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from georag_jax.selection.inputs import AXES, Column, Inputs

_SMALL, _LARGE = 1e-30, 1e30  # of squared lengths: beyond, float32 may have lost digits of the squares

Rows = slice | np.ndarray


class Layout(NamedTuple):
    """Where the queries of a block go: ``places`` [n] of ``total`` rows, pools padded to K and sub-queries to m."""

    places: np.ndarray
    total: int
    K: int
    m: int


class Rooms(threading.local):
    """For each thread one array for the candidates of block after block.

    A new one each time would be paid for page by page; aligned as XLA wants it, a CPU device reads it where it is.
    """

    def __init__(self):
        self._bytes = np.empty(0, np.uint8)

    def room(self, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        """An array of this thread; what it held before is lost."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if len(self._bytes) < size + 64:
            self._bytes = np.empty(size + 64, np.uint8)
        start = -self._bytes.ctypes.data % 64
        return self._bytes[start : start + size].view(dtype).reshape(shape)


def check(inputs: Inputs, rows: Rows) -> None:
    """Looks at every value of these queries; ValueError names argument, row and query. Keeps nothing."""
    sizes = Layout(np.zeros(0, int), 0, int(inputs.used[rows].max(initial=1)), int(inputs.asked[rows].max(initial=0)))
    masks, where, get = _masks(inputs, rows, sizes)
    _numbers(get, masks, inputs.dtype, where)
    for name in ("query", "subqueries"):
        if (array := get(name, 0)) is not None:
            _unit(name, array, masks[AXES[name][0]], inputs, where)
    for i, number in enumerate(where.queries):
        pool = inputs.columns["candidates"][number][: sizes.K]
        if inputs.center is not None or not _in_order(pool):
            _unit("candidates", pool, masks["K"][i, : len(pool)], inputs, where.only(i))


def block(inputs: Inputs, rows: Rows, layout: Layout, rooms: Rooms) -> dict[str, np.ndarray]:
    """The arrays of these queries by the program's names, [total, ...].

    What a mask leaves out becomes 0 or False, as do the rows of no query; those of ``candidates`` may hold anything.

    Raises:
        ValueError: the message names argument, row and query.
    """
    masks, where, get = _masks(inputs, rows, layout)
    out: dict[str, np.ndarray] = {"candidate_mask": masks["K"], "subquery_mask": masks["m"]}
    for name in ("query", "subqueries"):
        if (array := get(name, 0)) is not None:
            out[name] = _unit(name, array, masks[AXES[name][0]], inputs, where)
    out |= _numbers(get, masks, inputs.dtype, where)
    if (lists := get("retrieved", -1)) is not None:
        out["retrieved"] = lists
        out["in_primary"] = _in_primary(lists, inputs.columns.get("primary"), where.queries, masks["K"])
    out = {name: _place(array, layout) for name, array in out.items()}
    pools, d = inputs.columns["candidates"], out["query"].shape[-1]
    room = rooms.room((layout.total, layout.K, d), inputs.dtype)
    for i, (number, place) in enumerate(zip(where.queries, layout.places, strict=True)):
        pool = pools[number][: layout.K]
        _unit("candidates", pool, masks["K"][i, : len(pool)], inputs, where.only(i), room[place, : len(pool)])
        room[place, len(pool) :] = 0
    return out | {"candidates": room}


def _masks(inputs: Inputs, rows: Rows, layout: Layout) -> tuple[dict[str, np.ndarray], "_Where", Callable]:
    """Which rows of each axis count, where the block stands in the batch, and the getter of its arguments."""
    where = _Where(np.arange(len(inputs.pool))[rows], inputs.batched)
    get = partial(_dense, inputs, rows, layout)
    valid, asked = get("candidate_mask", False), get("subquery_mask", False)
    if valid is None:
        valid = np.arange(layout.K) < inputs.pool[rows][:, None]
    if asked is None:
        asked = np.arange(layout.m) < inputs.asked[rows][:, None]
    where.refuse("candidate_mask", "at least one candidate", "none", ~valid.any(1))
    return {"K": valid, "m": asked, "d": np.ones(len(where.queries), bool)}, where, get


def _place(array: np.ndarray, layout: Layout) -> np.ndarray:
    if len(array) == layout.total:
        return array
    out = np.full((layout.total, *array.shape[1:]), -1 if array.dtype.kind == "i" else 0, array.dtype)
    out[layout.places] = array
    return out


def _numbers(get: Callable, masks: dict[str, np.ndarray], dtype: type, where: "_Where") -> dict[str, np.ndarray]:
    """Scores, affinity and weights, as far as they were given."""
    out = {}
    values = partial(_values, dtype=dtype, where=where)
    if (scores := get("scores", 0)) is not None:
        out["scores"] = values("scores", scores, masks["K"])
    if (affinity := get("affinity", 0)) is not None:
        both = masks["m"][:, :, None] & masks["K"][:, None]
        out["affinity"] = values("affinity", affinity, both, high=1 + 1e-5, expected="similarities in 0..1")
    if (weights := get("weights", 0)) is not None:
        weights = values("weights", weights, masks["m"], high=np.inf, expected="numbers >= 0")
        out["weights"] = weights / np.maximum(weights.max(1, keepdims=True, initial=0), _SMALL)  # no sum overflows
    return out


def _dense(inputs: Inputs, rows: Rows, layout: Layout, name: str, fill: Any) -> np.ndarray | None:
    """One argument of these queries [n, ...], cut and padded; a view where nothing has to be changed."""
    column = inputs.columns.get(name)
    if column is None:
        return None
    some = column[rows] if isinstance(column, np.ndarray) else [column[i] for i in np.arange(len(column))[rows]]
    known = {"K": layout.K, "m": layout.m}
    longest = lambda axis: max((each.shape[axis] for each in some), default=0)
    shape = tuple(known.get(letter, longest(axis)) for axis, letter in enumerate(AXES[name]))
    if isinstance(some, np.ndarray):
        return _fit(some, (len(some), *shape), fill)
    kind = np.result_type(*some) if some else np.float32
    return np.stack([_fit(each.astype(kind, copy=False), shape, fill) for each in some])


def _fit(array: np.ndarray, shape: tuple[int, ...], fill: Any) -> np.ndarray:
    array = array[tuple(slice(n) for n in shape)]
    if array.shape == shape:
        return array
    out = np.full(shape, fill, array.dtype)
    out[tuple(slice(n) for n in array.shape)] = array
    return out


class _Where(NamedTuple):
    """Which queries a block holds, for messages; ``single`` where an array has no axis of queries."""

    queries: np.ndarray
    batched: bool
    single: bool = False

    def only(self, i: int) -> "_Where":
        """For an array of one query."""
        return _Where(self.queries[i : i + 1], self.batched, True)

    def refuse(self, name: str, expected: str, got: str, wrong: np.ndarray | np.bool_) -> None:
        """Raises for the first wrong row; ``wrong`` has the batch axis first, or stands for a single query."""
        if wrong.any():
            query, *rows = np.argwhere(np.asarray(wrong)[None] if self.single else wrong)[0].tolist()
            row = f" at row {', '.join(map(str, rows))}" if rows else ""
            of = f" of query {self.queries[query]}" if self.batched else ""
            raise ValueError(f"{name}: expected {expected}, got {got}{row}{of}")


def _in_order(pool: np.ndarray) -> bool:
    """Whether a quick look at the vectors [K, d] finds no NaN, infinity or zero vector; False may be a false alarm."""
    if pool.dtype not in (np.float32, np.float64) or not pool.flags.c_contiguous or not pool[:, 0].all():
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.vdot(pool, pool)))


def _unit(
    name: str,
    array: np.ndarray,
    mask: np.ndarray,
    inputs: Inputs,
    where: _Where,
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
            squares = np.einsum("...d,...d->...", array, array)
        usual = bool((((squares > _SMALL) & (squares < _LARGE)) | ~mask).all())
    if not usual:
        array, squares = _scaled(name, array, mask, inputs, where)
    if not mask.all():
        array, squares = np.where(mask[..., None], array, 0), np.where(mask, squares, 1)
    out = np.empty(array.shape, inputs.dtype) if out is None else out
    if (np.abs(squares - 1) < 4 * np.finfo(inputs.dtype).eps).all():  # nothing to do, as for most encoders' vectors
        np.copyto(out, array, casting="same_kind")
        return out
    return np.multiply(array, (1 / np.sqrt(squares))[..., None], out=out, casting="same_kind")


def _scaled(name: str, array: np.ndarray, mask: np.ndarray, inputs: Inputs, where: _Where):
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


def _values(
    name: str, array, mask, *, dtype, where: _Where, high: float | None = None, expected: str = ""
) -> np.ndarray:
    """Finite numbers where the mask holds, 0 elsewhere; with ``high``, within 0 to it."""
    array = np.where(mask, array, 0)
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused as infinity
        array = array.astype(dtype)
    where.refuse(name, "finite numbers", "NaN or infinity", ~np.isfinite(array))
    if high is not None:
        outside = (array < 0) | (array > high)
        where.refuse(name, expected, f"{array[outside][0]:.6g}" if outside.any() else "", outside)
    return array


def _in_primary(lists: np.ndarray, primary: Column | None, queries: np.ndarray, valid: np.ndarray) -> np.ndarray:
    """Which entries [n, m, r] are in the query's own top-K; default: in the pool."""
    if primary is None:
        inside = (lists >= 0) & (lists < valid.shape[1])
        rows = np.arange(len(lists))[:, None, None]
        return inside & valid[rows, np.where(inside, lists, 0)]
    own = [primary[i] for i in queries]
    member = [np.isin(numbers, row[row >= 0]) for numbers, row in zip(lists, own, strict=True)]
    return np.stack(member) if member else np.zeros(lists.shape, bool)
