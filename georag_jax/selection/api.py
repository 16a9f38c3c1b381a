"""Arrays in, picks out."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

import jax
import numpy as np
from numpy.typing import ArrayLike

from georag_jax._errors import require
from georag_jax.config import Quality, SelectConfig
from georag_jax.documents import Selection
from georag_jax.kernels import quality as quality_kernels
from georag_jax.selection import batching, inputs
from georag_jax.selection.program import Outcome, Problem, select_batch


def select(
    candidates: ArrayLike,
    query: ArrayLike,
    subqueries: ArrayLike | None = None,
    *,
    scores: ArrayLike | None = None,
    affinity: ArrayLike | None = None,
    retrieved: ArrayLike | None = None,
    primary: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    candidate_mask: ArrayLike | None = None,
    subquery_mask: ArrayLike | None = None,
    config: SelectConfig | None = None,
) -> Selection:
    """Picks the k candidates that together cover what the query asks for.

    Builds the demand P_Q (Eq. 9-11 of "Covering the Unseen", arXiv 2606.29328) from the retriever's scores and the
    sub-queries, then picks greedily under the objective of ``config``. One query, or B at once with a leading axis on
    every argument. NumPy arrays, JAX arrays and lists are accepted, float16 to float64 and bfloat16; the work is done
    in float32 (float64 for float64 candidates where JAX has x64 enabled). Vectors need no normalisation. What a mask
    leaves out may hold anything.

    Args:
        candidates: [K, d] or [B, K, d] vectors of the pool, K >= 1.
        query: [d] or [B, d].
        subqueries: [m, d] or [B, m, d]; None or empty: ``config.without_subqueries`` says what serves instead.
        scores: [.., K] the retriever's scores, higher is better; default: the cosine to the query.
        affinity: [.., m, K] similarity of each sub-query to each candidate in 0..1, any retriever's; default: the
            cosine, clipped at 0 wherever it is read as an amount.
        retrieved: [.., m, r] numbers of each sub-query's own corpus top-r: below K a pool position, from K on a chunk
            outside the pool (the same chunk, the same number), -1 padding. Default: the top 20 of the pool, for which
            overlap is 1, and ``status`` says so.
        primary: [.., P] numbers, in the same way, of the query's own top-K, against which overlap is measured.
            Default: the pool. A pool that was fused from the sub-queries' own lists would validate any of them.
        weights: [.., m] sub-query weights >= 0 instead of reverse validation; divided by their sum.
        candidate_mask: [.., K] bool, which candidates exist; default: all.
        subquery_mask: [.., m] bool; default: all.
        config: settings; default: the "default" preset.

    Returns:
        ``Selection`` of NumPy arrays.

    Raises:
        ValueError: NaN or infinity, a zero vector, an empty pool, unequal widths or lengths, an affinity outside
            0..1, negative weights; the message names argument and row.

    >>> pool = [[1.0, 0.1], [1.0, 0.2], [0.1, 1.0]]
    >>> sides = [[1.0, 0.1], [0.1, 1.0]]
    >>> select(pool, [1.0, 0.3], sides, config=SelectConfig(k=2)).indices.tolist()
    [2, 1]
    """
    config = SelectConfig() if config is None else config
    require(isinstance(config, SelectConfig), "config", "a SelectConfig", type(config).__name__)
    optional = {
        "subqueries": subqueries,
        "scores": scores,
        "affinity": affinity,
        "retrieved": retrieved,
        "primary": primary,
        "weights": weights,
        "candidate_mask": candidate_mask,
        "subquery_mask": subquery_mask,
    }
    given = inputs.read(candidates, query, optional, config)
    count, size, _ = given.arrays.candidates.shape
    m = given.arrays.subquery_mask.shape[1]
    if config.subqueries_kept is not None and m > config.subqueries_kept:
        has = given.arrays.subqueries is not None
        require(has, "subqueries", "vectors, for the max-min filter (subqueries_kept)", "None")
    static, parts = _static(config, m), list(batching.blocks(count, _bytes_each(size, config)))
    for rows in parts[1:]:  # a wrong row is found before anything is computed, in bounded memory
        inputs.block(given, rows)
    outcomes = [_run(inputs.block(given, rows), static) for rows in parts]
    joined = Outcome._make(np.concatenate(fields) for fields in zip(*outcomes, strict=True))
    joined = joined._replace(demand=joined.demand[:, :size], quality=joined.quality[:, :m])
    return Selection._make([*(joined if given.batched else (x[0] for x in joined)), None])


def reverse_validation(
    retrieved_ids: Sequence[Sequence[Hashable]],
    primary_ids: Sequence[Hashable],
    quality: Quality = "overlap",
    threshold: float = 0.05,
    saturation: float | None = None,
) -> np.ndarray:
    """Sub-query weights (Eq. 7, 8) from chunk ids, for a pool of any make.

    Args:
        retrieved_ids: for each of m sub-queries the ids of its own corpus top-r; may differ in length or be empty.
        primary_ids: ids of the query's own top-K.
        quality: "overlap" = |R_j & primary| / |R_j|, "overlap_novelty" (times the share of R_j that no other
            sub-query found) or "uniform".
        threshold: tau_RV in 0..1; a sub-query of lower quality gets 0.
        saturation: None for the quality itself, or > 0 for quality / (quality + saturation), as the default preset
            has it.

    Returns:
        [m] float32 weights that sum to 1; uniform where every quality is under the threshold; [0] for no sub-queries.

    Raises:
        ValueError: an unknown quality, or a threshold or saturation out of range.

    >>> reverse_validation([["a", "b"], ["a", "x", "y", "z"], ["y"]], ["a", "b", "c"]).tolist()
    [0.800000011920929, 0.20000000298023224, 0.0]
    """
    require(0 <= threshold <= 1, "threshold", "a number in 0..1", threshold)
    require(saturation is None or saturation > 0, "saturation", "None or a number > 0", saturation)
    config = SelectConfig(quality=quality, quality_threshold=threshold, quality_saturation=saturation)
    lists = [list(ids) for ids in retrieved_ids]
    if not lists:
        return np.zeros(0, np.float32)
    number = {id_: n for n, id_ in enumerate(dict.fromkeys(id_ for ids in lists for id_ in ids))}
    shape = (batching.bucket(len(lists), 4), batching.bucket(max(map(len, lists)), 4))
    numbers = np.full(shape, -1, np.int32)
    for row, ids in zip(numbers, lists, strict=False):
        row[: len(ids)] = [number[id_] for id_ in ids]
    member = np.isin(numbers, [number[id_] for id_ in primary_ids if id_ in number])
    mask = np.arange(shape[0]) < len(lists)
    rule = (config.quality, config.quality_threshold, config.quality_saturation)
    return np.asarray(_weights(numbers, member, mask, *rule))[: len(lists)]


def _validation_weights(numbers, member, mask, quality: Quality, threshold: float, saturation: float | None):
    factors = quality_kernels.validation_factors(numbers, member, mask)
    return quality_kernels.quality_weights(factors, mask, quality, threshold, saturation)[0].astype(np.float32)


_weights = jax.jit(_validation_weights, static_argnames=("quality", "threshold", "saturation"))


def _static(config: SelectConfig, m: int) -> SelectConfig:
    """What the compiled program depends on: the center has been subtracted by then, and no filter has to keep all."""
    kept = config.subqueries_kept
    return replace(config, center=None, subqueries_kept=None if kept is None or kept >= m else kept)


def _bytes_each(size: int, config: SelectConfig) -> int:
    columns = config.k if config.objective == "sinkhorn" else 1
    return 4 * size * size * (columns + 2)


# Axes of each array of a problem, and what fills the padding.
_AXES: dict[str, tuple[str, float]] = {
    "candidates": ("BKd", 0),
    "query": ("Bd", 0),
    "candidate_mask": ("BK", False),
    "subquery_mask": ("Bm", False),
    "subqueries": ("Bmd", 0),
    "scores": ("BK", 0),
    "affinity": ("BmK", 0),
    "retrieved": ("Bmr", -1),
    "in_primary": ("Bmr", False),
    "weights": ("Bm", 0),
}


def _run(arrays: dict[str, np.ndarray], config: SelectConfig) -> Outcome:
    """One block in its bucket, and back to its own size. A padded query has no valid candidate and gives zeros."""
    count, size, d = arrays["candidates"].shape
    m = arrays["subquery_mask"].shape[1]
    if "subqueries" not in arrays and "affinity" not in arrays:
        arrays["subqueries"] = np.zeros((count, m, d), arrays["candidates"].dtype)
    sizes = {
        "B": batching.power_of_two(count),
        "K": batching.bucket(size),
        "m": batching.bucket(m, 4),
        "r": batching.bucket(arrays["retrieved"].shape[2] if "retrieved" in arrays else 0, 4),
        "d": d,
    }
    padded = {
        name: batching.pad(array, tuple(sizes[axis] for axis in _AXES[name][0]), _AXES[name][1])
        for name, array in arrays.items()
    }
    problem = Problem._make(padded.get(name) for name in Problem._fields)
    outcome = jax.device_get(select_batch(problem, config))
    return Outcome._make(field[:count] for field in outcome)
