"""Entropic optimal transport between the demand and the picks (Algorithm 2)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from georag_jax.kernels.numerics import logsumexp


class Transport(NamedTuple):
    """One transport problem after its iterations.

    Attributes:
        value: W = <pi, M>, without the entropy term.
        marginal_error: L1 error of the row marginal, which the last update left unsatisfied.
        f: [K] row potentials; minus infinity for a row without mass.
        g: [t] column potentials.
    """

    value: Float[Array, ""]
    marginal_error: Float[Array, ""]
    f: Float[Array, " K"]
    g: Float[Array, " t"]


def sinkhorn(
    cost: Float[Array, "K t"],
    p: Float[Array, " K"],
    e: Float[Array, " t"],
    epsilon: float = 0.01,
    iterations: int = 100,
) -> Transport:
    """Algorithm 2: alternating updates of the potentials in the log domain, a fixed number of them.

    f = eps log p - eps lse_j((g_j - M_ij) / eps);  g = eps log e - eps lse_i((f_i - M_ij) / eps);  both start at 0
    pi = exp((f_i + g_j - M_ij) / eps);  W = <pi, M>

    A row with p_i = 0 has f_i = -inf and carries nothing; where all of p is 0, W and the error are 0.

    Args:
        cost: [K, t] cost M from each candidate to each pick.
        p: [K] source measure, sums to 1.
        e: [t] target measure, sums to 1; a column without mass takes no part.
        epsilon: > 0.
        iterations: >= 1.

    >>> m = jnp.array([[0.0, 1.0], [1.0, 0.0]])
    >>> round(float(sinkhorn(m, jnp.array([0.5, 0.5]), jnp.array([0.5, 0.5])).value), 6)
    0.0
    """
    empty = ~(p > 0).any()
    log_p, log_e = jnp.log(jnp.where(empty, 1, p)), jnp.log(e)
    scaled = cost.T / epsilon  # [t, K]: the long axis last, where it fills vector registers

    def update(_, potentials):
        _, g = potentials
        f = log_p - logsumexp(g[:, None] - scaled, axis=0)
        return f, log_e - logsumexp(f[None, :] - scaled, axis=1)

    start = (jnp.zeros_like(scaled[0]), jnp.where(e > 0, jnp.zeros_like(log_e), -jnp.inf))
    f, g = jax.lax.fori_loop(0, iterations, update, start)
    plan = jnp.exp(f[None, :] + g[:, None] - scaled)
    value, error = (plan * cost.T).sum(), jnp.abs(plan.sum(0) - p).sum()
    return Transport(jnp.where(empty, 0, value), jnp.where(empty, 0, error), epsilon * f, epsilon * g)
