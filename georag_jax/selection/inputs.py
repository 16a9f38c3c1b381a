"""The gate through which every array enters: coerced, checked and named before anything is computed."""

from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from georag_jax._errors import require
from georag_jax.config import SelectConfig

_SMALL = 1e-30  # float32 squares and products of smaller numbers vanish


class Inputs(NamedTuple):
    """Checked arrays with a batch axis; None where the caller gave nothing. ``batched``: whether he had the axis."""

    candidates: np.ndarray
    query: np.ndarray
    candidate_mask: np.ndarray
    subquery_mask: np.ndarray
    subqueries: np.ndarray | None
    scores: np.ndarray | None
    affinity: np.ndarray | None
    retrieved: np.ndarray | None
    in_primary: np.ndarray | None
    weights: np.ndarray | None
    batched: bool


def check(
    candidates: ArrayLike,
    query: ArrayLike,
    subqueries: ArrayLike | None,
    scores: ArrayLike | None,
    affinity: ArrayLike | None,
    retrieved: ArrayLike | None,
    primary: ArrayLike | None,
    weights: ArrayLike | None,
    candidate_mask: ArrayLike | None,
    subquery_mask: ArrayLike | None,
    config: SelectConfig,
) -> Inputs:
    """All arguments of ``select`` as arrays [B, ...]; ValueError names the argument and the row that is wrong."""
    pool = _numbers("candidates", candidates)
    require(pool.ndim in (2, 3), "candidates", "shape [K, d] or [B, K, d]", f"shape {pool.shape}")
    batched = pool.ndim == 3
    lead = pool.shape[:-2]
    (K, d), dtype = pool.shape[-2:], _dtype(pool)
    require(K > 0, "candidates", "at least one candidate", f"shape {pool.shape}")
    require(d > 0, "candidates", "vectors of at least one number", f"shape {pool.shape}")
    valid = _mask("candidate_mask", candidate_mask, (*lead, K), batched)
    for row in np.flatnonzero(~valid.any(1)):
        raise ValueError(f"candidate_mask: expected at least one candidate, got none{_at(row, batched)}")

    center = None if config.center is None else np.asarray(config.center, np.float64)
    if center is not None:
        require(len(center) == d, "center", f"width {d}, as the candidates", len(center))
    vectors = lambda name, x, shape, mask: _vectors(name, x, shape, mask, center, dtype, batched)
    given, m = _subquery_axis(subqueries, affinity, lead)
    asked = _mask("subquery_mask", subquery_mask, (*lead, m), batched)
    similarity = _optional("affinity", affinity, (*lead, m, K), dtype, batched, asked[..., None] & valid[:, None])
    if similarity is not None:
        outside = (similarity < 0) | (similarity > 1 + 1e-5)
        _refuse("affinity", "similarities in 0..1", _first(similarity, outside), outside, batched)
    weight = _optional("weights", weights, (*lead, m), dtype, batched, asked)
    if weight is not None:
        _refuse("weights", "numbers >= 0", _first(weight, weight < 0), weight < 0, batched)
        weight = weight / np.maximum(weight.max(1, keepdims=True, initial=0), np.finfo(dtype).tiny)  # no sum overflows
    lists, member = _lists(retrieved, primary, lead, m, valid, batched)
    return Inputs(
        candidates=vectors("candidates", pool, pool.shape, valid),
        query=vectors("query", query, (*lead, d), np.ones(valid.shape[:1], bool)),
        candidate_mask=valid,
        subquery_mask=asked,
        subqueries=None if given is None else vectors("subqueries", given, (*lead, m, d), asked),
        scores=_optional("scores", scores, (*lead, K), dtype, batched, valid),
        affinity=similarity,
        retrieved=lists,
        in_primary=member,
        weights=weight,
        batched=batched,
    )


def _array(name: str, values: ArrayLike) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError as error:  # rows of unequal length
        raise ValueError(f"{name}: expected a rectangular array (pad and use a mask), got {error}") from None


def _numbers(name: str, values: ArrayLike) -> np.ndarray:
    array = _array(name, values)
    if array.dtype.kind == "V" or array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    require(array.dtype.kind in "fiu", name, "an array of numbers", f"dtype {array.dtype}")
    return array


def _dtype(pool: np.ndarray) -> type:
    wide = pool.dtype == np.float64 and jax.dtypes.canonicalize_dtype(np.float64) == np.float64
    return np.float64 if wide else np.float32


def _mask(name: str, mask: ArrayLike | None, shape: tuple, batched: bool) -> np.ndarray:
    array = np.ones(shape, bool) if mask is None else _array(name, mask)
    require(array.dtype == bool, name, "an array of bool", f"dtype {array.dtype}")
    require(array.shape == shape, name, f"shape {list(shape)}", f"shape {list(array.shape)}")
    return array if batched else array[None]


def _subquery_axis(subqueries, affinity, lead: tuple) -> tuple[np.ndarray | None, int]:
    """The sub-query vectors, if any, and m, which affinity alone can give as well."""
    given = None if subqueries is None else _numbers("subqueries", subqueries)
    if given is not None and given.ndim == len(lead) + 2 and given.shape[-2]:
        return given, given.shape[-2]
    if given is not None:
        require(given.size == 0, "subqueries", f"{len(lead) + 2} axes", f"shape {given.shape}")
    if affinity is None:
        return None, 0
    return None, np.shape(affinity)[-2] if np.ndim(affinity) >= 2 else 0


def _vectors(name, values, shape, mask, center, dtype, batched) -> np.ndarray:
    """Finite, non-zero rows where the mask holds, zeros elsewhere; float64 is scaled so that float32 can hold it."""
    array = _numbers(name, values)
    require(array.shape == shape, name, f"shape {list(shape)}", f"shape {list(array.shape)}")
    array = array if batched else array[None]
    _refuse(name, "finite numbers", "NaN or infinity", ~np.isfinite(array).all(-1) & mask, batched)
    whole = bool(mask.all())
    array = array if whole else np.where(mask[..., None], array, 0)
    if center is not None:
        array = np.where(mask[..., None], array - center, 0)
    size = np.abs(array).max(-1)
    what = "a zero vector" if center is None else "a vector equal to the center"
    _refuse(name, "vectors with a direction", what, (size == 0) & mask, batched)
    wide = array.dtype.itemsize > np.dtype(dtype).itemsize or array.dtype.kind != "f"
    if wide or bool((mask & (size < _SMALL)).any()):  # what the device would overflow, round or flush to zero
        array = array / np.where(size > 0, size, 1)[..., None].astype(np.float64)
    return array.astype(dtype, copy=False)


def _optional(name, values, shape, dtype, batched, mask) -> np.ndarray | None:
    if values is None:
        return None
    array = _numbers(name, values)
    require(array.shape == shape, name, f"shape {list(shape)}", f"shape {list(array.shape)}")
    array = np.where(mask, array if batched else array[None], 0)
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused as infinity
        array = array.astype(dtype)
    _refuse(name, "finite numbers", "NaN or infinity", ~np.isfinite(array), batched)
    return array


def _lists(retrieved, primary, lead, m, valid, batched) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Numbers of each sub-query's own list, and which of them are in the query's own top-K (default: the pool)."""
    if retrieved is None or (m == 0 and np.size(retrieved) == 0):
        require(retrieved is not None or primary is None, "primary", "None, as `retrieved` is None", "numbers")
        return None, None
    lists = _integers("retrieved", retrieved, batched)
    shape = (*valid.shape[:1], m)
    require(
        lists.ndim == 3 and lists.shape[:2] == shape, "retrieved", f"shape {[*lead, m, 'r']}", f"{np.shape(retrieved)}"
    )
    if primary is None:
        inside = (lists >= 0) & (lists < valid.shape[1])
        rows = np.arange(len(lists))[:, None, None]
        return lists, inside & valid[rows, np.where(inside, lists, 0)]
    own = _integers("primary", primary, batched)
    require(own.ndim == 2 and len(own) == len(lists), "primary", f"shape {[*lead, 'P']}", str(np.shape(primary)))
    member = [np.isin(numbers, row[row >= 0]) for numbers, row in zip(lists, own, strict=True)]
    return lists, np.stack(member) if member else np.zeros(lists.shape, bool)


def _integers(name: str, values: ArrayLike, batched: bool) -> np.ndarray:
    array = _array(name, values)
    require(array.dtype.kind in "iu" or array.size == 0, name, "integers", f"dtype {array.dtype}")
    array = (array if batched else array[None]).astype(np.int64)
    require(bool((array >= -1).all()), name, "numbers >= 0, or -1 for padding", str(array.min(initial=0)))
    require(bool((array < 2**31).all()), name, "numbers below 2^31", str(array.max(initial=0)))
    return array.astype(np.int32)


def _refuse(name: str, expected: str, got: str, wrong: np.ndarray, batched: bool) -> None:
    """Raises for the first wrong row; ``wrong`` has the batch axis first."""
    if wrong.any():
        where = np.argwhere(wrong)[0]
        row = "" if len(where) == 1 else f" at row {', '.join(str(i) for i in where[1:])}"
        raise ValueError(f"{name}: expected {expected}, got {got}{row}{_at(where[0], batched)}")


def _first(values: np.ndarray, wrong: np.ndarray) -> str:
    return f"{values[wrong][0]:.6g}" if wrong.any() else ""


def _at(query: int | np.integer, batched: bool) -> str:
    return f" of query {query}" if batched else ""
