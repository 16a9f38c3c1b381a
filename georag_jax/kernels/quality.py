"""Which sub-queries to believe: max-min dispersion (Eq. 6) and reverse validation (Eq. 7, 8)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from georag_jax.config import Quality
from georag_jax.kernels.cost import cosine
from georag_jax.kernels.numerics import first_best, resolution, safe_divide


class Factors(NamedTuple):
    """The two factors of Eq. 7, in 0..1; 0 for an empty list or a masked sub-query."""

    overlap: Float[Array, " m"]
    novelty: Float[Array, " m"]


def max_min_filter(
    subqueries: Float[Array, "m d"], query: Float[Array, " d"], mask: Bool[Array, " m"], kept: int
) -> Bool[Array, " m"]:
    """Marks the ``kept`` most dispersed sub-queries (Eq. 6).

    Starts at the one nearest the query, then always adds the one whose nearest chosen neighbour is farthest. Ties go
    to the lowest index.

    Args:
        subqueries: [m, d], any length.
        query: [d].
        mask: [m] valid sub-queries.
        kept: how many to keep, >= 1; all valid ones where there are no more than that.

    Returns:
        [m] bool.
    """
    similarity = cosine(subqueries, subqueries)
    tie = resolution(similarity.dtype)
    slots = jnp.arange(mask.shape[0])

    def add(_, state):
        chosen, distance = state
        pick = first_best(distance, mask & ~chosen, tie)
        return chosen | (slots == pick), jnp.minimum(distance, 1 - similarity[:, pick])

    first = first_best(cosine(subqueries, query[None])[:, 0], mask, tie)
    start = (slots == first, 1 - similarity[:, first])
    return jax.lax.fori_loop(1, min(kept, mask.shape[0]), add, start)[0] & mask


def validation_factors(
    retrieved: Int[Array, "m r"], in_primary: Bool[Array, "m r"], mask: Bool[Array, " m"]
) -> Factors:
    """Overlap and novelty of each sub-query's own list (Eq. 7).

    overlap_j = |R_j & primary| / |R_j|;  novelty_j = |R_j - union of the other R_i| / |R_j|

    Args:
        retrieved: [m, r] numbers that identify chunks; negative is padding. A repeated number counts once.
        in_primary: [m, r] whether the chunk is among the query's own top-K.
        mask: [m] sub-queries that take part; the lists of the others are ignored.
    """
    same = retrieved[:, :, None] == retrieved[:, None, :]
    earlier = jnp.tril(jnp.ones(same.shape[1:], bool), -1)
    entry = (retrieved >= 0) & mask[:, None] & ~(same & earlier).any(-1)
    rows = jnp.arange(mask.shape[0])

    def shared(j):
        others = entry & (rows != j)[:, None]
        return ((retrieved[j][:, None, None] == retrieved[None]) & others[None]).any((1, 2))

    taken = (
        jax.lax.map(shared, rows) if rows.size else entry
    )  # one sub-query at a time: m x r x r and not m x m x r x r
    dtype = jnp.zeros(()).dtype
    size = entry.sum(1).astype(dtype)
    share = lambda hit: safe_divide((entry & hit).sum(1).astype(dtype), size)
    return Factors(share(in_primary), share(~taken))


def quality_weights(
    factors: Factors, mask: Bool[Array, " m"], quality: Quality, threshold: float, saturation: float | None = None
) -> tuple[Float[Array, " m"], Bool[Array, ""]]:
    """Weights that sum to 1 (Eq. 8), and whether all qualities were under the threshold (then uniform).

    Args:
        factors: of Eq. 7.
        mask: [m] valid sub-queries.
        quality: "overlap_novelty" (their product), "overlap" or "uniform".
        threshold: tau_RV; a lower quality becomes 0.
        saturation: None for the quality itself (Eq. 8), or > 0 for quality / (quality + saturation): a list needs not
            lie wholly inside the query's to be believed.
    """
    score = {
        "overlap_novelty": factors.overlap * factors.novelty,
        "overlap": factors.overlap,
        "uniform": jnp.ones_like(factors.overlap),
    }[quality]
    score = jnp.where(mask & (score >= threshold), score, 0)
    if saturation is not None:
        score = score / (score + saturation)
    return normalise_weights(score, mask)


def normalise_weights(score: Float[Array, " m"], mask: Bool[Array, " m"]) -> tuple[Float[Array, " m"], Bool[Array, ""]]:
    """Scores divided by their sum; uniform over the valid ones, and flagged, where that sum is 0."""
    score = jnp.where(mask, score, 0)
    flat = ~(score.sum() > 0)
    score = jnp.where(flat & mask, 1, score)
    return safe_divide(score, score.sum()), flat & mask.any()
