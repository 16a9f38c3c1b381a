"""Some queries' arrays as the program takes them: checked, cut or padded to one size, vectors made unit."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from georag_jax.selection import vectors
from georag_jax.selection.batching import bucket
from georag_jax.selection.inputs import AXES, Inputs
from georag_jax.selection.vectors import Where

_TINY = 1e-30

Rows = slice | np.ndarray


class Layout(NamedTuple):
    """Where the queries of a block go.

    Attributes:
        places: [n] their rows of the block.
        total: rows of the block.
        K: candidates that pools are cut or padded to.
        m: sub-queries, likewise.
        offset: numbers before the candidates, which then are one row of numbers; None for an array [total, K, d].
    """

    places: np.ndarray
    total: int
    K: int
    m: int
    offset: int | None = None


def check(inputs: Inputs, rows: Rows, *, candidates: bool = True) -> None:
    """Looks at every value of these queries; ValueError names argument, row and query. Keeps nothing."""
    sizes = Layout(np.zeros(0, int), 0, int(inputs.used[rows].max(initial=1)), int(inputs.asked[rows].max(initial=0)))
    masks, where, get = _masks(inputs, rows, sizes)
    _numbers(get, masks, inputs.dtype, where)
    for name in ("query", "subqueries"):
        if (array := get(name, 0)) is not None:
            vectors.unit(name, array, masks[AXES[name][0]], inputs, where)
    for i, number in enumerate(where.queries if candidates else ()):
        pool = inputs.columns["candidates"][number][: sizes.K]
        if inputs.center is not None or not vectors.in_order(pool):
            vectors.unit("candidates", pool, masks["K"][i, : len(pool)], inputs, where.only(i))


def factors(inputs: Inputs, rows: Rows) -> np.ndarray | None:
    """``vectors.factors`` of these queries' candidates; None where they must be copied."""
    pools = np.asarray(inputs.columns["candidates"])[rows]
    mask = inputs.columns.get("candidate_mask")
    return vectors.factors(pools, np.ones(pools.shape[:2], bool) if mask is None else np.asarray(mask)[rows])


def block(
    inputs: Inputs, rows: Rows, layout: Layout, rooms: vectors.Rooms, scale: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """The arrays of these queries by the program's names, [total, ...].

    What a mask leaves out becomes 0 or False, as do the rows of no query; those of ``candidates`` may hold anything.

    Args:
        inputs: all queries.
        rows: those of the block.
        layout: of the block.
        rooms: what is copied goes there.
        scale: ``factors`` of these queries, whose candidates are read in place if this is not None.

    Raises:
        ValueError: the message names argument, row and query.
    """
    masks, where, get = _masks(inputs, rows, layout)
    out: dict[str, np.ndarray] = {"candidate_mask": masks["K"], "subquery_mask": masks["m"]}
    for name in ("query", "subqueries"):
        if (array := get(name, 0)) is not None:
            out[name] = vectors.unit(name, array, masks[AXES[name][0]], inputs, where)
    out |= _numbers(get, masks, inputs.dtype, where)
    out |= {name: lists for name in ("retrieved", "primary") if (lists := get(name, -1)) is not None}
    if layout.offset is not None:
        out["factors"] = masks["K"].astype(inputs.dtype) if scale is None else scale
    out = _complete({name: _place(array, layout) for name, array in out.items()}, inputs.dtype)
    pools = inputs.columns["candidates"]
    if layout.offset is not None and scale is not None:
        return out | {"candidates": vectors.in_place(np.asarray(pools)[rows], layout.offset)}
    d, start = out["query"].shape[-1], layout.offset or 0
    flat = rooms.room(start + layout.total * layout.K * d, inputs.dtype)
    room = flat[start:].reshape(layout.total, layout.K, d)
    for i, (number, place) in enumerate(zip(where.queries, layout.places, strict=True)):
        pool = pools[number][: layout.K]
        vectors.unit("candidates", pool, masks["K"][i, : len(pool)], inputs, where.only(i), room[place, : len(pool)])
        room[place, len(pool) :] = 0
    return out | {"candidates": room if layout.offset is None else flat}


def _complete(arrays: dict[str, np.ndarray], dtype: type) -> dict[str, np.ndarray]:
    """The program wants sub-queries or their affinity, be it of none, and own lists of few different lengths."""
    if "subqueries" not in arrays and "affinity" not in arrays:
        (count, size), m = arrays["candidate_mask"].shape, arrays["subquery_mask"].shape[1]
        arrays["affinity"] = np.zeros((count, m, size), dtype)
    for name in ("retrieved", "primary"):
        if (lists := arrays.get(name)) is not None:
            missing = bucket(lists.shape[-1], 4) - lists.shape[-1]
            arrays[name] = np.pad(lists, (*[(0, 0)] * (lists.ndim - 1), (0, missing)), constant_values=-1)
    return arrays


def _masks(inputs: Inputs, rows: Rows, layout: Layout) -> tuple[dict[str, np.ndarray], "Where", Callable]:
    """Which rows of each axis count, where the block stands in the batch, and the getter of its arguments."""
    where = Where(np.arange(len(inputs.pool))[rows], inputs.batched)
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


def _numbers(get: Callable, masks: dict[str, np.ndarray], dtype: type, where: "Where") -> dict[str, np.ndarray]:
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
        out["weights"] = weights / np.maximum(weights.max(1, keepdims=True, initial=0), _TINY)  # no sum overflows
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


def _values(
    name: str, array, mask, *, dtype, where: Where, high: float | None = None, expected: str = ""
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
