"""Linear systems of a graph's Laplacian, to full relative accuracy."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

UNROLLED = 8  # columns up to which the elimination is written out


def solve_laplacian(weights: Float[Array, "t t n"], b: Float[Array, "t n"]) -> Float[Array, "t n"]:
    """X with x_t = 0 and, for every j, sum_l w_jl (x_j - x_l) = b_j: n symmetric systems with weights w >= 0.

    Gaussian elimination in which each pivot is the sum of the weights that are left in its row, not a difference: the
    solution of a nearly disconnected graph is as accurate as that of any other. b must sum to 0. A column without
    weights gets 0; the diagonal is not read.
    """
    t = b.shape[0]
    later = jnp.arange(t)
    least = float(jnp.finfo(b.dtype).tiny) * 1e6  # a quotient by it is still finite

    def eliminate(k, carry):
        w, b, pivots = carry
        row = jnp.where((later > k)[:, None], w[k], 0)  # [t, n]
        pivot = row.sum(0)
        factor = row / jnp.maximum(pivot, least)
        return w + factor[:, None] * row, b + factor * b[k], pivots.at[k].set(pivot)

    def substitute(step, x):
        k = t - 2 - step
        row = jnp.where((later > k)[:, None], w[k], 0)
        found = (b[k] + (row * x).sum(0)) / jnp.maximum(pivots[k], least)
        return x.at[k].set(jnp.where(pivots[k] > 0, found, 0))

    loop = _unrolled if t <= UNROLLED else jax.lax.fori_loop
    w, b, pivots = loop(0, t - 1, eliminate, (weights, b, jnp.zeros_like(b)))
    return loop(0, t - 1, substitute, jnp.zeros_like(b))


def _unrolled(low: int, high: int, body: Callable, carry):
    for k in range(low, high):
        carry = body(k, carry)
    return carry
