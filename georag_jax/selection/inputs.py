"""The gate through which every array enters: coerced, and checked for type and shape, before anything is computed."""

from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from georag_jax._errors import require
from georag_jax.config import SelectConfig

Column = np.ndarray | list[np.ndarray]  # an argument of all queries: an array with the axis B first, or B arrays

AXES = {  # of each argument of one query; K, m and d are the same for all arguments of a query
    "candidates": "Kd",
    "query": "d",
    "candidate_mask": "K",
    "subquery_mask": "m",
    "subqueries": "md",
    "scores": "K",
    "affinity": "mK",
    "retrieved": "mr",
    "primary": "P",
    "weights": "m",
}


class Inputs(NamedTuple):
    """Arguments whose types and shapes are right; ``blocks.block`` checks their values.

    Attributes:
        columns: by argument; what the caller did not give is not there.
        pool: [B] K of each query.
        used: [B] up to which position of its pool a mask leaves any candidate.
        asked: [B] m of each query.
        center: [d] or None.
        dtype: what the work is done in.
        batched: whether the caller had the batch axis.
    """

    columns: dict[str, Column]
    pool: np.ndarray
    used: np.ndarray
    asked: np.ndarray
    center: np.ndarray | None
    dtype: type
    batched: bool


def read(
    candidates: ArrayLike, query: ArrayLike, optional: dict[str, ArrayLike | None], config: SelectConfig
) -> Inputs:
    """Coerces the arguments of ``select`` without copying arrays; ValueError names what has the wrong type or shape."""
    if isinstance(candidates, list | tuple) and not len(candidates):  # a share without queries, of a list of pools
        candidates, query, optional = np.zeros((0, 1, 1)), np.zeros((0, 1)), {}
    vectors, batched = _candidates(candidates)
    count, d = len(vectors), vectors[0].shape[1] if isinstance(vectors, list) else vectors.shape[2]
    given = {name: values for name, values in optional.items() if values is not None}
    none_asked = all(_is_empty(given.get(name, ())) for name in ("subqueries", "affinity"))
    for name in ("subqueries", "affinity", "weights", "retrieved"):
        if name in given and _is_empty(given[name]) and (none_asked or name == "subqueries"):
            del given[name]
            if name == "retrieved":
                given.pop("primary", None)
    columns = {"candidates": vectors, "query": _column("query", query, batched)}
    columns |= {name: _column(name, values, batched) for name, values in given.items()}
    pool, asked = _lengths(vectors), _lengths(columns.get("subqueries", columns.get("affinity", np.zeros((count, 0)))))
    for name, column in columns.items():
        _check_shapes(name, column, {"K": pool, "m": asked, "d": np.full(count, d)}, batched)
    if "retrieved" not in columns:
        require("primary" not in columns, "primary", "None, as `retrieved` is None", "numbers")
    center = None if config.center is None else np.asarray(config.center, np.float64)
    if center is not None:
        require(len(center) == d, "center", f"width {d}, as the candidates", len(center))
    return Inputs(columns, pool, _used(pool, columns.get("candidate_mask")), asked, center, _dtype(vectors), batched)


def _candidates(values: ArrayLike) -> tuple[Column, bool]:
    """The candidates as a column, and whether they have the batch axis."""
    column = _column("candidates", values, True)
    if isinstance(column, np.ndarray):
        require(column.ndim in (2, 3), "candidates", "shape [K, d] or [B, K, d]", f"shape {column.shape}")
        _check_pool(column.shape[-2:], f"shape {column.shape}")
        return (column, True) if column.ndim == 3 else (column[None], False)
    for i, each in enumerate(column):
        got = f"shape {list(each.shape)} of query {i}"
        require(each.ndim == 2, "candidates", "shape [K, d]", got)
        _check_pool(each.shape, got)
        require(each.shape[1] == column[0].shape[1], "candidates", f"width {column[0].shape[1]}, as query 0", got)
    return column, True


def _check_pool(shape: tuple[int, ...], got: str) -> None:
    require(shape[0] > 0, "candidates", "at least one candidate", got)
    require(shape[1] > 0, "candidates", "vectors of at least one number", got)


def _column(name: str, values: ArrayLike, batched: bool) -> Column:
    """The values with the axis B first; as B arrays where they came so, or differ in shape."""
    if batched and isinstance(values, list | tuple) and len(values):
        one_each = all(isinstance(each, np.ndarray | jax.Array) and each.ndim == len(AXES[name]) for each in values)
        if one_each or _is_ragged(values):
            return [_typed(name, _array(name, each)) for each in values]
    array = _typed(name, _array(name, values))
    require(array.ndim > 0 or not batched, name, "an array for each query", f"shape {list(array.shape)}")
    return array if batched else array[None]


def _is_ragged(values: ArrayLike) -> bool:
    try:
        np.asarray(values)
    except ValueError:
        return True
    return False


def _is_empty(values: ArrayLike) -> bool:
    if isinstance(values, list | tuple):
        return all(_is_empty(each) for each in values)
    return np.size(values) == 0 and (np.ndim(values) < 3 or np.shape(values)[0] > 0)  # no query is not no sub-query


def _array(name: str, values: ArrayLike) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError as error:  # rows of unequal length
        raise ValueError(f"{name}: expected a rectangular array for each query, got {error}") from None


def _typed(name: str, array: np.ndarray) -> np.ndarray:
    if name in ("candidate_mask", "subquery_mask"):
        require(array.dtype == bool or array.size == 0, name, "an array of bool", f"dtype {array.dtype}")
        return array.astype(bool, copy=False)
    if name in ("retrieved", "primary"):
        return _integers(name, array)
    if array.dtype.kind == "V" or array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    require(array.dtype.kind in "fiu", name, "an array of numbers", f"dtype {array.dtype}")
    return array


def _integers(name: str, array: np.ndarray) -> np.ndarray:
    require(array.dtype.kind in "iu" or array.size == 0, name, "integers", f"dtype {array.dtype}")
    array = array.astype(np.int64)
    require((array >= -1).all(), name, "numbers >= 0, or -1 for padding", array.min(initial=0))
    require((array < 2**31).all(), name, "numbers below 2^31", array.max(initial=0))
    return array.astype(np.int32)


def _lengths(column: Column) -> np.ndarray:
    """[B] length of each query's first axis."""
    if isinstance(column, np.ndarray):
        return np.full(len(column), column.shape[1] if column.ndim > 1 else 0)
    return np.array([len(each) if each.ndim else 0 for each in column])


def _check_shapes(name: str, column: Column, lengths: dict[str, np.ndarray], batched: bool) -> None:
    """Every query's array has the axes of its argument, of the lengths that its other arguments have."""
    axes, count = AXES[name], len(lengths["K"])
    same = not count or all(np.ptp(lengths[axis]) == 0 for axis in axes if axis in lengths)
    if isinstance(column, np.ndarray) and same:
        wanted = [lengths[axis][0] if axis in lengths and count else axis for axis in axes]
        if batched:
            _check_shape(name, [count, *wanted], column.shape, "")
        else:
            _check_shape(name, wanted, column.shape[1:], "")
        return
    require(len(column) == count, name, f"{count} queries, as the candidates", len(column))
    for i, each in enumerate(column):
        wanted = [lengths[axis][i] if axis in lengths else axis for axis in axes]
        if isinstance(column, list) and each.shape == (0,) and wanted[0] == 0:  # [] from a query that asks nothing
            column[i] = each = np.zeros([0 if isinstance(n, str) else n for n in wanted], each.dtype)
        _check_shape(name, wanted, each.shape, f" of query {i}")


def _check_shape(name: str, wanted: list, shape: tuple[int, ...], of: str) -> None:
    """``wanted`` has a letter where any length will do."""
    fits = len(shape) == len(wanted) and all(isinstance(n, str) or n == l for n, l in zip(wanted, shape, strict=True))
    expected = ", ".join(map(str, wanted))
    require(fits, name, f"shape [{expected}]", f"shape {list(shape)}{of}")


def _used(pool: np.ndarray, mask: Column | None) -> np.ndarray:
    if mask is None:
        return pool
    return np.array([len(row) - int(row[::-1].argmax()) if row.any() else 1 for row in mask], int)


def _dtype(vectors: Column) -> type:
    kinds = {each.dtype for each in vectors} if isinstance(vectors, list) else {vectors.dtype}
    wide = kinds == {np.dtype(np.float64)} and jax.dtypes.canonicalize_dtype(np.float64) == np.float64
    return np.float64 if wide else np.float32
