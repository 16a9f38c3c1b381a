"""Arrays in, picks out."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import jax
import numpy as np
from numpy.typing import ArrayLike

from georag_jax._errors import require
from georag_jax.config import Quality, SelectConfig
from georag_jax.documents import Selection
from georag_jax.kernels import quality as quality_kernels
from georag_jax.selection import batching, inputs, stream


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
    progress: Callable[[int, int], object] | None = None,
) -> Selection:
    """Picks the k candidates that together cover what the query asks for.

    Builds the demand P_Q (Eq. 9-11 of "Covering the Unseen", arXiv 2606.29328) from the retriever's scores and the
    sub-queries, then picks greedily under the objective of ``config``. One query, or B at once with a leading axis on
    every argument. NumPy arrays, JAX arrays and lists are accepted, float16 to float64 and bfloat16; the work is done
    in float32 (float64 for float64 candidates where JAX has x64 enabled). Vectors need no normalisation. What a mask
    leaves out may hold anything.

    Pools and sub-queries of unequal number may come as lists of B arrays. A large batch streams through the devices
    of this process in blocks of pools of like size, in bounded memory, after all of it has been checked.

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
        progress: called with the number of queries done and their total, after each block.

    Returns:
        ``Selection`` of NumPy arrays; ``demand`` and ``quality`` have 0 beyond a query's own K and m.

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
    m = int(given.asked.max(initial=0))
    if config.subqueries_kept is not None and m > config.subqueries_kept:
        has = "subqueries" in given.columns
        require(has, "subqueries", "vectors, for the max-min filter (subqueries_kept)", "None")
    outcome = stream.run(given, _static(config, m), progress)
    return Selection._make([*(outcome if given.batched else (x[0] for x in outcome)), None])


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
