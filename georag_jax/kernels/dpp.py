"""Greedy MAP of a determinantal point process (Chen, Zhang and Zhou, NeurIPS 2018).

The kernel is L = Diag(q) S Diag(q), S the cosines and q_i = exp(a r_i) with a = w / (2 (1 - w)), so that
(1 - w) logdet L_Y = w sum_{i in Y} r_i + (1 - w) logdet S_Y. As logdet L_Y = 2 a sum r_i + logdet S_Y, only S is
factored and q stays a logarithm: no relevance overflows.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from georag_jax.kernels.greedy import Greedy, filled
from georag_jax.kernels.mmr import squared_length, top_relevance, top_size
from georag_jax.kernels.numerics import HIGHEST, first_best, resolution, unit


def greedy_dpp(
    candidates: Float[Array, "K d"],
    relevance: Float[Array, " K"],
    mask: Bool[Array, " K"],
    k: int,
    relevance_weight: float,
) -> Greedy:
    """Each step picks the largest logdet L_{Y+i} - logdet L_Y = w / (1 - w) r_i + log d2_i, which is its gain.

    d2_i is the squared distance of row i from the span of the picks. Each pick j lowers it by e_i^2, the Cholesky entry
    e_i = (S_ji - <c_j, c_i>) / d_j = <v_i, b_j>, b_j the unit part of v_j outside the span. It is computed as the
    latter: the division by a small d_j would multiply the rounding error of S_ji, and rows within the span would seem
    to leave it. A candidate whose d2 is at most ``rank_tolerance`` is a combination of the picks (a copy, a zero row,
    anything once there are d picks) and has no determinant to add. Once that is so for all that are left, the most
    relevant of them fill up to k with gain 0, zero rows last.

    Args:
        candidates: [K, d] unit rows; zero rows where invalid.
        relevance: [K], any finite scale, higher is better.
        mask: [K] candidates that may be picked. One with a number that is not finite never is.
        k: number of picks.
        relevance_weight: w, 0 <= w < 1; 0 is the determinant of the cosines alone (1 is ``top_relevance``).

    Cost: O(k K d + k^2 d), one product with the candidates per pick; memory K + k d beside them.

    >>> rows = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> greedy_dpp(rows, jnp.array([0.75, 0.75, 0.25]), jnp.array([True, True, True]), 3, 0.5).indices.tolist()
    [0, 2, 1]
    """
    steps, slots = min(k, mask.shape[0]), jnp.arange(mask.shape[0])
    if steps == 0:
        return top_relevance(relevance, mask, k)
    length, tolerance = squared_length(candidates), rank_tolerance(candidates)
    nonzero, valid = length > 0, mask & jnp.isfinite(length) & jnp.isfinite(relevance)
    quality = relevance_weight / (1 - relevance_weight) * relevance

    def pick(state, t):
        residual, basis, free, last, spans = state
        direction = jnp.where(spans, _outside(basis, candidates[last]), 0)
        along = jnp.matmul(candidates, direction, precision=HIGHEST)
        residual = jnp.maximum(residual - along * along / jnp.where(nonzero, length, 1), 0)  # unit rows are rounded
        best, gain, spans = _next(residual, quality, relevance, nonzero, free, tolerance)
        return (residual, basis.at[t].set(direction), free & (slots != best), best, spans), (best, gain)

    residual = nonzero.astype(candidates.dtype)
    first, alone, spans = _next(residual, quality, relevance, nonzero, valid, tolerance)
    basis = jnp.zeros((max(steps - 1, 1), candidates.shape[1]), candidates.dtype)
    start = residual, basis, valid & (slots != first), first, spans
    _, (picks, gains) = jax.lax.scan(pick, start, jnp.arange(steps - 1))  # compiled once, whatever k
    return filled(jnp.append(first, picks), jnp.append(alone, gains), k)


def rank_tolerance(candidates: Float[Array, "K d"]) -> float:
    """The d2 that rounding alone can leave a row within the span: 4 d eps.

    d2 = 1 - the sum of the squares e^2, each e a sum of d products that is off by at most d eps / 2; squaring doubles
    that. The squares are no more than d, as no more rows can span, so that their sum is off by at most d eps; the
    squared length of the row adds as much. For d = 384 in float32 the tolerance is 2e-4, the d2 of two rows of cosine
    0.9999. It depends on neither K nor k: padding cannot change the picks, and fewer picks are the first of more.
    """
    return 4 * candidates.shape[1] * float(jnp.finfo(candidates.dtype).eps)


def _outside(basis: Float[Array, "t d"], row: Float[Array, " d"]) -> Float[Array, " d"]:
    """The unit part of a row outside the span of orthonormal rows; the second pass removes the error of the first."""
    for _ in range(2):
        row = unit(row - jnp.matmul(jnp.matmul(basis, row, precision=HIGHEST), basis, precision=HIGHEST))
    return row


def _next(
    residual, quality, relevance, nonzero, free, tolerance: float
) -> tuple[Int[Array, ""], Float[Array, ""], Bool[Array, ""]]:
    """The next pick, its gain, and whether it adds a dimension; one that does not is the most relevant that is left."""
    spanning, last_bits = free & (residual > tolerance), resolution(residual.dtype)
    score = quality + jnp.log(jnp.maximum(residual, tolerance))
    top = jnp.argmax(jnp.where(spanning, score, -jnp.inf))
    # d2 is known to its last bits of 1, so that its logarithm is known to those over d2
    tie = last_bits * (top_size(quality, spanning) + 1 / jnp.maximum(residual[top], tolerance))
    best = first_best(score, spanning, tie)
    rest = jnp.where((free & nonzero).any(), free & nonzero, free)
    fill = first_best(relevance, rest, last_bits * top_size(relevance, rest))
    return jnp.where(best >= 0, best, fill), jnp.where(best >= 0, score[best], 0), best >= 0
