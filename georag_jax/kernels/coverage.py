"""What a set of picks serves: facility location (Eq. 4), with repeated service, and its entropic smoothing.

Every function takes similarities [n, K] of n demand points to K candidates and weights [n]; similarities are clipped
at 0 here. Demand points are the candidates themselves under P_Q (Gram matrix), or the sub-queries under their quality
(affinity). State is what the next gain needs, so that a step costs n x K, never n x K x k.
"""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from georag_jax.kernels.numerics import HIGHEST


def service(similarity: Float[Array, "n K"], power: float = 1.0, ownership: float = 0.0) -> Float[Array, "n K"]:
    """What each candidate is worth to each demand point.

    s_ij / (sum_l s_il)^ownership with s = max(similarity, 0)^power.

    With ownership 0 a point that many candidates resemble gives credit for each; with ownership 1 it has one unit to
    give, shared over the pool in proportion; a value between weighs rare evidence up. A row of zeros stays zero.

    Args:
        similarity: [n, K]; 0 for a candidate that does not exist.
        power: > 0.
        ownership: in 0..1.
    """
    worth = jnp.maximum(similarity, 0)
    worth = worth if power == 1 else worth**power
    if ownership == 0:
        return worth
    total = worth.sum(1, keepdims=True)
    return jnp.where(total > 0, worth / jnp.where(total > 0, total, 1) ** ownership, 0)


def start_served(points: int, k: int, discount: float, dtype: DTypeLike) -> Float[Array, "r n"]:
    """The best services of each point by at most k picks, best first: none yet. One row where only the best counts."""
    return jnp.zeros((k if discount > 0 else 1, points), dtype)


def marginal_gains(
    served: Float[Array, "r n"], similarity: Float[Array, "n K"], weight: Float[Array, " n"], discount: float = 0.0
) -> Float[Array, " K"]:
    """Gain of each candidate in F(S) = sum_i w_i sum_r discount^(r-1) s_(r)(i, S).

    F is a non-negative sum of top-r sums with weights discount^(r-1) - discount^r, and adding a similarity v to the
    top-r sum gains max(v - the r-th best, 0).

    Args:
        served: [r, n] best services so far, best first.
        similarity: [n, K] services, as ``service`` gives them.
        weight: [n] >= 0.
        discount: 0 (Eq. 4) to 1 (modular).
    """
    ranks = served.shape[0]

    def add(rank, total):  # a loop, so that the compiled program does not grow with k
        share = discount**rank - jnp.where(rank + 1 < ranks, discount ** (rank + 1), 0.0)
        gained = jnp.maximum(similarity - served[rank][:, None], 0)
        return total + share.astype(total.dtype) * jnp.matmul(weight, gained, precision=HIGHEST)

    return jax.lax.fori_loop(0, ranks, add, jnp.zeros(similarity.shape[1], similarity.dtype))


def serve(served: Float[Array, "r n"], column: Float[Array, " n"]) -> Float[Array, "r n"]:
    """Inserts one candidate's services into the sorted ones; what falls off the last row is dropped."""
    above = jnp.concatenate([jnp.full_like(served[:1], jnp.inf), served[:-1]])
    return jnp.maximum(served, jnp.minimum(above, column))


def facility_location(
    similarity: Float[Array, "n K"],
    weight: Float[Array, " n"],
    indices: Int[Array, " k"],
    discount: float = 0.0,
    power: float = 1.0,
    ownership: float = 0.0,
) -> Float[Array, ""]:
    """F(S) = sum_i w_i sum_r discount^(r-1) s_(r)(i, S) of the picks; a -1 adds nothing. Eq. 4 by default.

    s is ``service(similarity, power, ownership)`` and s_(r)(i, S) the r-th best for point i: a second pick that serves
    the same point is worth ``discount`` of the first. Monotone and submodular for discounts in 0..1.

    >>> facility_location(jnp.eye(3), jnp.array([0.5, 0.3, 0.2]), jnp.array([0, 2])).tolist()
    0.699999988079071
    """
    served = jnp.sort(_columns(service(similarity, power, ownership), indices), axis=1)[:, ::-1]
    ranks = jnp.power(jnp.asarray(discount, similarity.dtype), jnp.arange(indices.shape[0]))
    return jnp.matmul(weight, jnp.matmul(served, ranks, precision=HIGHEST), precision=HIGHEST)


def entropic_facility_location(
    similarity: Float[Array, "n K"], weight: Float[Array, " n"], indices: Int[Array, " k"], epsilon: float
) -> Float[Array, ""]:
    """Eps sum_i w_i log(1 + sum_s (exp(sim_is / eps) - 1)) of the picks; monotone submodular for every eps > 0."""
    columns = _columns(service(similarity), indices).T
    add = lambda level, column: (entropic_serve(level, column, epsilon), None)
    level, _ = jax.lax.scan(add, jnp.zeros_like(weight), columns)
    return epsilon * jnp.matmul(weight, level, precision=HIGHEST)


def entropic_gains(
    level: Float[Array, " n"], similarity: Float[Array, "n K"], weight: Float[Array, " n"], epsilon: float
) -> Float[Array, " K"]:
    """Gain of each candidate in eps sum_i w_i log(1 + sum_s (exp(sim_is / eps) - 1)).

    With A the logarithm so far and z = sim / eps a candidate adds log1p(exp(z - A) - exp(-A)), written so that no
    exponent is positive. One pick gives Eq. 4, similarity 0 earns nothing, and so does eps -> 0 give Eq. 4.

    Args:
        level: [n] A_i, 0 before the first pick.
        similarity: [n, K] clipped at 0.
        weight: [n] >= 0.
        epsilon: > 0.
    """
    return epsilon * jnp.matmul(weight, _entropic_step(level[:, None], similarity / epsilon), precision=HIGHEST)


def entropic_serve(level: Float[Array, " n"], column: Float[Array, " n"], epsilon: float) -> Float[Array, " n"]:
    """A_i after one more pick."""
    return level + _entropic_step(level, column / epsilon)


def _entropic_step(level: Float[Array, "*#n"], z: Float[Array, "*#n"]) -> Float[Array, "*#n"]:
    over = z - level
    return jnp.maximum(over, 0) + jnp.log1p(jnp.exp(-jnp.abs(over)) - jnp.exp(-jnp.maximum(z, level)))


def prefix_coverage(gram: Float[Array, "K n"], p: Float[Array, " K"], indices: Int[Array, " k"]) -> Float[Array, " k"]:
    """F_Q after each pick: sum_i p_i max_{s in S} max(cos(i, s), 0) (Eq. 4); a -1 adds nothing.

    Args:
        gram: [K, n] cosines to all candidates, or to some that hold the picks.
        p: [K] the demand.
        indices: [k] columns of ``gram``.
    """
    best = jax.lax.cummax(_columns(service(gram), indices), axis=1)
    return jnp.matmul(p, best, precision=HIGHEST)


def _columns(similarity: Float[Array, "n K"], indices: Int[Array, " k"]) -> Float[Array, "n k"]:
    return jnp.where(indices >= 0, similarity[:, jnp.maximum(indices, 0)], 0)
