"""Greedy selection: Algorithm 1 over transport, and plain greedy over facility location and its entropic kin.

A cold start (``first`` >= 0) forces the first pick; its gain is still its gain in the objective. Ties go to the lowest
index: scores closer than the resolution of the numbers they are computed from count as equal.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from georag_jax.kernels import coverage
from georag_jax.kernels.cost import cost
from georag_jax.kernels.numerics import HIGHEST, first_best, resolution
from georag_jax.kernels.transport import Transport, sinkhorn


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
    start = coverage.start_served(weight.shape[0], max(min(k, mask.shape[0]), 1), discount, similarity.dtype)
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
        return _nothing(k, alone.dtype)
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
    return _filled(picks, earned, jnp.zeros((), alone.dtype), k)


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
        return _nothing(k, gram.dtype)
    steps, rule = min(k, mask.shape[0]), _Rule(gram, cost(gram), p, epsilon, iterations, gate, gate_losses)
    alone = 1 - jnp.matmul(p, rule.costs, precision=HIGHEST)
    pick = _forced(first, first_best(alone, mask, resolution(gram.dtype)), mask)
    picks = jnp.full(_width(steps), -1, jnp.int32).at[0].set(pick)
    state = _State(picks, 1 - alone[pick], mask & (jnp.arange(mask.shape[0]) != pick), jnp.zeros((), gram.dtype))
    earned, t = [jnp.where(pick >= 0, alone[pick], 0)[None]], 1
    while t < steps:
        width = _width(t + 1)
        stop = min(width, steps)
        state, gains = jax.lax.scan(partial(_extend, rule, width), state, jnp.arange(t, stop))
        earned.append(gains)
        t = stop
    return _filled(state.picks[:steps], jnp.concatenate(earned), state.error, k)


class _Rule(NamedTuple):
    gram: Float[Array, "K K"]
    costs: Float[Array, "K K"]
    p: Float[Array, " K"]
    epsilon: float
    iterations: int
    gate: bool
    gate_losses: bool


class _State(NamedTuple):
    picks: Int[Array, " width"]
    value: Float[Array, ""]
    free: Bool[Array, " K"]
    error: Float[Array, ""]


def _width(columns: int) -> int:
    """Columns that a problem is padded to: exact up to eight, then powers of two, so that few programs are compiled."""
    return columns if columns <= 8 else 1 << (columns - 1).bit_length()


def _extend(rule: _Rule, width: int, state: _State, t) -> tuple[_State, Float[Array, ""]]:
    """The pick after t picks, from problems of ``width`` columns of which the first t + 1 have mass."""
    chosen, columns = jnp.maximum(state.picks[:width], 0), jnp.arange(width)
    solved = _with_each(rule, chosen, columns, t)
    loss = state.value - solved.value
    gate = 1 - jnp.where(columns < t, rule.gram[:, chosen], -1).max(1) if rule.gate else jnp.ones_like(loss)
    score = loss * (gate if rule.gate_losses else jnp.where(loss < 0, 1, gate))
    # W sums terms up to the largest cost, over iterations that each round: its last bits decide nothing
    pick = first_best(score, state.free, resolution(score.dtype))
    worst = jnp.max(jnp.where(state.free, solved.marginal_error, 0), initial=0)
    free = state.free & (jnp.arange(state.free.shape[0]) != pick)
    state = _State(state.picks.at[t].set(pick), solved.value[pick], free, jnp.maximum(state.error, worst))
    return state, jnp.where(pick >= 0, score[pick], 0)


def _with_each(rule: _Rule, chosen, columns, t) -> Transport:
    """The transport problem of the picks and one candidate more, for every candidate."""
    shared, measure = rule.costs[:, chosen], jnp.where(columns <= t, 1 / (t + 1), 0).astype(rule.costs.dtype)
    problem = lambda new: jnp.where(columns == t, new[:, None], shared)
    one = lambda new: sinkhorn(problem(new), rule.p, measure, rule.epsilon, rule.iterations)
    return jax.vmap(one, in_axes=1)(rule.costs)


def _forced(first, best: Int[Array, ""], free: Bool[Array, " K"]) -> Int[Array, ""]:
    first = jnp.asarray(first, jnp.int32)
    return jnp.where((first >= 0) & free[jnp.maximum(first, 0)], first, best)


def _filled(picks, earned, error: Float[Array, ""], k: int) -> Greedy:
    missing = (0, k - picks.shape[0])
    return Greedy(jnp.pad(picks, missing, constant_values=-1), jnp.pad(earned, missing), error)


def _nothing(k: int, dtype) -> Greedy:
    return _filled(jnp.zeros(0, jnp.int32), jnp.zeros(0, dtype), jnp.zeros((), dtype), k)
