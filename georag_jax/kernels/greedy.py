"""Plain greedy selection over facility location and its entropic kin.

A cold start (``first`` >= 0) forces the first pick; its gain is still its gain in the objective. Ties go to the lowest
index: scores closer than the resolution of the numbers they are computed from count as equal.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from georag_jax.kernels import coverage
from georag_jax.kernels.numerics import first_best, resolution


class Greedy(NamedTuple):
    """Picks in order, -1 where nothing is left, with their gains (0 there).

    ``marginal_error`` is the largest over steps and candidates solved; 0 for objectives without transport. ``cosines``
    of all candidates to the picks, where the rule has computed them; any number beyond the last pick.
    """

    indices: Int[Array, " k"]
    gains: Float[Array, " k"]
    marginal_error: Float[Array, ""]
    cosines: Float[Array, "K k"] | None = None


def greedy_facility_location(
    similarity: Float[Array, "n K"],
    weight: Float[Array, " n"],
    mask: Bool[Array, " K"],
    k: int,
    discount: float = 0.0,
    power: float = 1.0,
    ownership: float = 0.0,
    first: Int[Array, ""] | int = -1,
) -> Greedy:
    """Greedy for F(S) of ``coverage.facility_location``; at least 1 - 1/e of the best unless a first pick is forced.

    Args:
        similarity: [n, K] demand points to candidates.
        weight: [n] >= 0.
        mask: [K] candidates that may be picked.
        k: number of picks.
        discount: in 0..1.
        power: > 0.
        ownership: in 0..1.
        first: the forced first pick, or -1.

    Cost: O(k n K) without a discount, O(k^2 n K) with one; memory n x K.
    """
    similarity = coverage.service(similarity, power, ownership)
    start = coverage.start_served(weight.shape[0], max(min(k, mask.shape[0]), 1), discount, similarity.dtype)
    gains = lambda served: coverage.marginal_gains(served, similarity, weight, discount)
    return _greedy(gains, lambda s, i: coverage.serve(s, similarity[:, i]), start, mask, k, first, max(power, 1.0))


def greedy_entropic_facility_location(
    similarity: Float[Array, "n K"],
    weight: Float[Array, " n"],
    mask: Bool[Array, " K"],
    k: int,
    epsilon: float,
    first: Int[Array, ""] | int = -1,
) -> Greedy:
    """Greedy for ``coverage.entropic_facility_location``; arguments and guarantee as ``greedy_facility_location``."""
    similarity = coverage.service(similarity)
    gains = lambda level: coverage.entropic_gains(level, similarity, weight, epsilon)
    step = lambda level, i: coverage.entropic_serve(level, similarity[:, i], epsilon)
    return _greedy(gains, step, jnp.zeros_like(weight), mask, k, first)


def _greedy(
    gains: Callable, step: Callable, state, mask: Bool[Array, " K"], k: int, first, amplified: float = 1.0
) -> Greedy:
    """``amplified``: what the power of the similarities makes of their last bits."""
    alone = gains(state)
    if mask.shape[0] == 0:
        return nothing(k, alone.dtype)
    # a gain is a difference of sums of this size: it resolves no finer than their last bits
    tie = amplified * resolution(alone.dtype) * jnp.max(jnp.where(mask & ~jnp.isnan(alone), alone, 0))
    slots = jnp.arange(mask.shape[0])

    def pick(carry, wanted):
        state, free = carry
        gain = gains(state)
        best = forced(wanted, first_best(gain, free, tie), free)
        earned = jnp.where(best >= 0, gain[best], 0)
        return (step(state, jnp.maximum(best, 0)), free & (slots != best)), (best, earned)

    steps = min(k, mask.shape[0])
    start = jnp.full(steps, -1, jnp.int32).at[0].set(first)
    _, (picks, earned) = jax.lax.scan(pick, (state, mask), start)  # compiled once, whatever k
    return filled(picks, earned, k)


def forced(first, best: Int[Array, ""], free: Bool[Array, " K"]) -> Int[Array, ""]:
    """The forced pick where there is one that is free, else the best."""
    first = jnp.asarray(first, jnp.int32)
    return jnp.where((first >= 0) & free[jnp.maximum(first, 0)], first, best)


def filled(picks, earned, k: int, error: Float[Array, ""] | None = None) -> Greedy:
    """Picks and gains up to k, with -1 and 0 where there was nothing to pick; no error without transport."""
    missing = (0, k - picks.shape[0])
    error = jnp.zeros((), earned.dtype) if error is None else error
    return Greedy(jnp.pad(picks, missing, constant_values=-1), jnp.pad(earned, missing), error)


def nothing(k: int, dtype) -> Greedy:
    """No picks: the pool is empty."""
    return filled(jnp.zeros(0, jnp.int32), jnp.zeros(0, dtype), k)
