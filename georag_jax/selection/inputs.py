"""The gate through which every array enters: coerced, checked and named before anything is computed."""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import ArrayLike

from georag_jax._errors import require
from georag_jax.config import SelectConfig

_SMALL = 1e-30  # float32 squares and products of smaller numbers vanish


class Arrays(NamedTuple):
    """Arguments of ``select`` with a batch axis; None where the caller gave nothing."""

    candidates: np.ndarray
    query: np.ndarray
    candidate_mask: np.ndarray
    subquery_mask: np.ndarray
    subqueries: np.ndarray | None
    scores: np.ndarray | None
    affinity: np.ndarray | None
    retrieved: np.ndarray | None
    primary: np.ndarray | None
    weights: np.ndarray | None


class Inputs(NamedTuple):
    """Arguments whose types and shapes are right; ``block`` checks their values.

    ``batched``: whether the caller had the batch axis. ``dtype``: what the work is done in.
    """

    arrays: Arrays
    center: np.ndarray | None
    dtype: type
    batched: bool


def read(
    candidates: ArrayLike, query: ArrayLike, optional: dict[str, ArrayLike | None], config: SelectConfig
) -> Inputs:
    """Coerces the arguments of ``select`` without copying arrays; ValueError names what has the wrong type or shape."""
    pool = _numbers("candidates", candidates)
    require(pool.ndim in (2, 3), "candidates", "shape [K, d] or [B, K, d]", f"shape {pool.shape}")
    batched, lead, (K, d) = pool.ndim == 3, pool.shape[:-2], pool.shape[-2:]
    require(K > 0, "candidates", "at least one candidate", f"shape {pool.shape}")
    require(d > 0, "candidates", "vectors of at least one number", f"shape {pool.shape}")
    given, m = _subquery_axis(optional["subqueries"], optional["affinity"], lead)
    center = None if config.center is None else np.asarray(config.center, np.float64)
    if center is not None:
        require(len(center) == d, "center", f"width {d}, as the candidates", len(center))
    retrieved, primary = _lists(optional["retrieved"], optional["primary"], lead, m)
    shaped = lambda name, *shape: (
        None if (x := optional[name]) is None else _shaped(name, _numbers(name, x), (*lead, *shape))
    )
    arrays = Arrays(
        candidates=pool,
        query=_shaped("query", _numbers("query", query), (*lead, d)),
        candidate_mask=_mask("candidate_mask", optional["candidate_mask"], (*lead, K)),
        subquery_mask=_mask("subquery_mask", optional["subquery_mask"], (*lead, m)),
        subqueries=None if given is None else _shaped("subqueries", given, (*lead, m, d)),
        scores=shaped("scores", K),
        affinity=shaped("affinity", m, K),
        retrieved=retrieved,
        primary=primary,
        weights=shaped("weights", m),
    )
    if not batched:
        arrays = Arrays._make(None if array is None else array[None] for array in arrays)
    return Inputs(arrays, center, _dtype(pool), batched)


def block(inputs: Inputs, rows: slice) -> dict[str, np.ndarray]:
    """Some queries' arrays as the program takes them, by its names; ValueError names argument, row and query.

    What a mask leaves out becomes 0 or False. Memory and time are in proportion to the rows.
    """
    a = Arrays._make(None if array is None else array[rows] for array in inputs.arrays)
    where = _Where(rows.start, inputs.batched)
    where.refuse("candidate_mask", "at least one candidate", "none", ~a.candidate_mask.any(1))
    vectors = partial(_vectors, center=inputs.center, dtype=inputs.dtype, where=where)
    values = partial(_values, dtype=inputs.dtype, where=where)
    out = {
        "candidates": vectors("candidates", a.candidates, a.candidate_mask),
        "query": vectors("query", a.query, np.ones(len(a.query), bool)),
        "candidate_mask": a.candidate_mask,
        "subquery_mask": a.subquery_mask,
    }
    if a.subqueries is not None:
        out["subqueries"] = vectors("subqueries", a.subqueries, a.subquery_mask)
    if a.scores is not None:
        out["scores"] = values("scores", a.scores, a.candidate_mask)
    if a.affinity is not None:
        known = a.subquery_mask[..., None] & a.candidate_mask[:, None]
        out["affinity"] = values("affinity", a.affinity, known, high=1 + 1e-5, expected="similarities in 0..1")
    if a.weights is not None:
        weights = values("weights", a.weights, a.subquery_mask, high=np.inf, expected="numbers >= 0")
        out["weights"] = weights / np.maximum(weights.max(1, keepdims=True, initial=0), _SMALL)  # no sum overflows
    if a.retrieved is not None:
        out["retrieved"] = a.retrieved
        out["in_primary"] = _in_primary(a.retrieved, a.primary, a.candidate_mask)
    return out


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


def _mask(name: str, mask: ArrayLike | None, shape: tuple) -> np.ndarray:
    array = np.ones(shape, bool) if mask is None else _array(name, mask)
    require(array.dtype == bool, name, "an array of bool", f"dtype {array.dtype}")
    return _shaped(name, array, shape)


def _shaped(name: str, array: np.ndarray, shape: tuple) -> np.ndarray:
    require(array.shape == shape, name, f"shape {list(shape)}", f"shape {list(array.shape)}")
    return array


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


class _Where(NamedTuple):
    """Where a block stands in the batch, for messages."""

    start: int
    batched: bool

    def refuse(self, name: str, expected: str, got: str, wrong: np.ndarray | np.bool_) -> None:
        """Raises for the first wrong row; ``wrong`` has the batch axis first."""
        if wrong.any():
            query, *rows = np.argwhere(wrong)[0].tolist()
            row = f" at row {', '.join(map(str, rows))}" if rows else ""
            of = f" of query {self.start + query}" if self.batched else ""
            raise ValueError(f"{name}: expected {expected}, got {got}{row}{of}")


def _vectors(name: str, array: np.ndarray, mask: np.ndarray, *, center, dtype, where: _Where) -> np.ndarray:
    """Finite, non-zero rows where the mask holds, zeros elsewhere; scaled where the dtype could not hold them."""
    where.refuse(name, "finite numbers", "NaN or infinity", ~np.isfinite(array).all(-1) & mask)
    array = array if mask.all() else np.where(mask[..., None], array, 0)
    if center is not None:
        array = np.where(mask[..., None], array - center, 0)
    size = np.abs(array).max(-1)
    what = "a zero vector" if center is None else "a vector equal to the center"
    where.refuse(name, "vectors with a direction", what, (size == 0) & mask)
    wide = array.dtype.itemsize > np.dtype(dtype).itemsize or array.dtype.kind != "f"
    if wide or bool((mask & (size < _SMALL)).any()):  # what the device would overflow, round or flush to zero
        array = array / np.where(size > 0, size, 1)[..., None].astype(np.float64)
    return array.astype(dtype, copy=False)


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


def _lists(retrieved, primary, lead: tuple, m: int) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Numbers of each sub-query's own list [.., m, r] and of the query's own top-K [.., P]."""
    if retrieved is None or (m == 0 and np.size(retrieved) == 0):
        require(retrieved is not None or primary is None, "primary", "None, as `retrieved` is None", "numbers")
        return None, None
    lists = _integers("retrieved", retrieved)
    shape = (*lead, m)
    wanted = f"shape {[*shape, 'r']}"
    require(
        lists.ndim == len(shape) + 1 and lists.shape[:-1] == shape, "retrieved", wanted, f"shape {list(lists.shape)}"
    )
    if primary is None:
        return lists, None
    own = _integers("primary", primary)
    wanted = f"shape {[*lead, 'P']}"
    require(own.ndim == len(lead) + 1 and own.shape[:-1] == lead, "primary", wanted, f"shape {list(own.shape)}")
    return lists, own


def _in_primary(lists: np.ndarray, primary: np.ndarray | None, valid: np.ndarray) -> np.ndarray:
    """Which entries [B, m, r] are in the query's own top-K; default: in the pool."""
    if primary is None:
        inside = (lists >= 0) & (lists < valid.shape[1])
        rows = np.arange(len(lists))[:, None, None]
        return inside & valid[rows, np.where(inside, lists, 0)]
    member = [np.isin(numbers, row[row >= 0]) for numbers, row in zip(lists, primary, strict=True)]
    return np.stack(member) if member else np.zeros(lists.shape, bool)


def _integers(name: str, values: ArrayLike) -> np.ndarray:
    array = _array(name, values)
    require(array.dtype.kind in "iu" or array.size == 0, name, "integers", f"dtype {array.dtype}")
    array = array.astype(np.int64)
    require((array >= -1).all(), name, "numbers >= 0, or -1 for padding", array.min(initial=0))
    require((array < 2**31).all(), name, "numbers below 2^31", array.max(initial=0))
    return array.astype(np.int32)
