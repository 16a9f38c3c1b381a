"""Greedy selection: Algorithm 1 over transport, and plain greedy over facility location and its entropic kin.

A cold start (``first`` >= 0) forces the first pick; its gain is still its gain in the objective. Ties go to the lowest
index: scores closer than the resolution of the numbers they are computed from count as equal.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from georag_jax.kernels import coverage
from georag_jax.kernels.cost import cost
from georag_jax.kernels.numerics import HIGHEST, first_best, resolution
from georag_jax.kernels.transport import sinkhorn


class Greedy(NamedTuple):
    """Picks in order, -1 where nothing is left, with their gains (0 there).

    ``marginal_error`` is the largest over steps and candidates solved; 0 for objectives without transport.
    """

    indices: Int[Array, " k"]
    gains: Float[Array, " k"]
    marginal_error: Float[Array, ""]


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
    start = coverage.start_served(weight.shape[0], k, discount, similarity.dtype)
    gains = lambda served: coverage.marginal_gains(served, similarity, weight, discount)
    return _greedy(gains, lambda s, i: coverage.serve(s, similarity[:, i]), start, mask, k, first)


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


def _greedy(gains: Callable, step: Callable, state, mask: Bool[Array, " K"], k: int, first) -> Greedy:
    alone = gains(state)
    if mask.shape[0] == 0:
        return _result([], [], jnp.zeros((), alone.dtype), k)
    # a gain is a difference of sums of this size: it resolves no finer than their last bits
    tie = resolution(alone.dtype) * jnp.max(jnp.where(mask & ~jnp.isnan(alone), alone, 0))
    slots = jnp.arange(mask.shape[0])

    def pick(carry, forced):
        state, free = carry
        gain = gains(state)
        best = _forced(forced, first_best(gain, free, tie), free)
        earned = jnp.where(best >= 0, gain[best], 0)
        return (step(state, jnp.maximum(best, 0)), free & (slots != best)), (best, earned)

    steps = min(k, mask.shape[0])
    start = jnp.full(steps, -1, jnp.int32).at[0].set(first)
    _, (picks, earned) = jax.lax.scan(pick, (state, mask), start)  # compiled once, whatever k
    return _result(list(picks), list(earned), jnp.zeros((), alone.dtype), k)


def greedy_sinkhorn(
    gram: Float[Array, "K K"],
    p: Float[Array, " K"],
    mask: Bool[Array, " K"],
    k: int,
    epsilon: float = 0.01,
    iterations: int = 100,
    gate: bool = True,
    gate_losses: bool = True,
    first: Int[Array, ""] | int = -1,
) -> Greedy:
    """Algorithm 1: each step picks the largest gate_i * Delta W_i (Eq. 12, 13).

    Delta W_i = W(P, S) - W(P, S + i) with the uniform measure on the picks (Eq. 5); gate_i = 1 - max_s cos(i, s). No
    set counts as W = 1, so the first pick gains 1 - W(P, delta_s). All K transport problems of a step run as one
    batch.

    Args:
        gram: [K, K] cosines.
        p: [K] the demand; 0 for an invalid candidate.
        mask: [K] candidates that may be picked.
        k: number of picks.
        epsilon: entropic regulariser > 0.
        iterations: of Algorithm 2, >= 1.
        gate: whether the gate acts.
        gate_losses: whether it acts on a negative Delta W as well (paper), which then favours the redundant.
        first: the forced first pick (the paper's cold start), or -1 for the smallest W(P, delta_i).

    Cost: O(k^2 K^2 iterations); memory K x K x k for one query.
    """
    if mask.shape[0] == 0:
        return _result([], [], jnp.zeros((), gram.dtype), k)
    costs, slots = cost(gram), jnp.arange(mask.shape[0])
    # W sums terms up to the largest cost, over iterations that each round: its last bits decide nothing
    tie = resolution(gram.dtype)
    alone = 1 - jnp.matmul(p, costs, precision=HIGHEST)
    pick = _forced(first, first_best(alone, mask, tie), mask)
    picks, earned = [pick], [jnp.where(pick >= 0, alone[pick], 0)]
    current, worst, free = 1 - alone[pick], jnp.zeros((), gram.dtype), mask & (slots != pick)
    for _ in range(1, min(k, mask.shape[0])):
        chosen = jnp.maximum(jnp.stack(picks), 0)
        solved = _with_each(costs, chosen, p, epsilon, iterations)
        loss = current - solved.value
        open_gate = 1 - gram[:, chosen].max(1) if gate else jnp.ones_like(loss)
        score = loss * (open_gate if gate_losses else jnp.where(loss < 0, 1, open_gate))
        pick = first_best(score, free, tie)
        worst = jnp.maximum(worst, jnp.max(jnp.where(free, solved.marginal_error, 0), initial=0))
        picks.append(pick)
        earned.append(jnp.where(pick >= 0, score[pick], 0))
        current, free = solved.value[pick], free & (slots != pick)
    return _result(picks, earned, worst, k)


def _with_each(costs, chosen, p, epsilon, iterations):
    """The transport problem of the picks and one candidate more, for every candidate."""
    t = chosen.shape[0] + 1
    uniform = jnp.full((t,), 1 / t, costs.dtype)
    shared = costs[:, chosen]
    one = lambda column: sinkhorn(jnp.concatenate([shared, column[:, None]], axis=1), p, uniform, epsilon, iterations)
    return jax.vmap(one, in_axes=1)(costs)


def _forced(first, best: Int[Array, ""], free: Bool[Array, " K"]) -> Int[Array, ""]:
    first = jnp.asarray(first, jnp.int32)
    return jnp.where((first >= 0) & free[jnp.maximum(first, 0)], first, best)


def _result(picks: list, earned: list, error: Float[Array, ""], k: int) -> Greedy:
    filler = k - len(picks)
    indices = jnp.asarray([*picks, *[-1] * filler], jnp.int32)
    return Greedy(indices, jnp.asarray([*earned, *[0] * filler], error.dtype), error)
