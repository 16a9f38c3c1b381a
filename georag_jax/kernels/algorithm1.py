"""Algorithm 1: greedy selection over transport (Eq. 12, 13)."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from georag_jax.config import Backend, Solver
from georag_jax.kernels import semidual
from georag_jax.kernels.cost import cost
from georag_jax.kernels.greedy import Greedy, filled, forced, nothing
from georag_jax.kernels.numerics import HIGHEST, first_best, resolution
from georag_jax.kernels.transport import sinkhorn_with_each

EXACT = 8  # columns up to which no problem is padded beyond the number of picks


def greedy_sinkhorn(
    gram: Float[Array, "K K"],
    p: Float[Array, " K"],
    mask: Bool[Array, " K"],
    k: int,
    epsilon: float = 0.01,
    solver: Solver = "converged",
    iterations: int = 100,
    gate: bool = True,
    gate_losses: bool = True,
    first: Int[Array, ""] | int = -1,
    backend: Backend = "xla",
) -> Greedy:
    """Algorithm 1: each step picks the largest gate_i * Delta W_i (Eq. 12, 13).

    Delta W_i = W(P, S) - W(P, S + i) with the uniform measure on the picks (Eq. 5); gate_i = 1 - max_s cos(i, s). No
    set counts as W = 1, so the first pick gains 1 - W(P, delta_s).

    Args:
        gram: [K, K] cosines, symmetric.
        p: [K] the demand; 0 for an invalid candidate.
        mask: [K] candidates that may be picked.
        k: number of picks.
        epsilon: entropic regulariser > 0.
        solver: "converged" (``semidual``: W to a marginal error of 3e-6, for the candidates that may be the next
            pick) or "algorithm2" (``transport``: the paper's iterations, for all of them).
        iterations: of Algorithm 2, >= 1.
        gate: whether the gate acts.
        gate_losses: whether it acts on a negative Delta W as well (paper), which then favours the redundant.
        first: the forced first pick (the paper's cold start), or -1 for the smallest W(P, delta_i).
        backend: "xla", or "pallas" for "converged" on a GPU.

    Cost: O(k K^2) for "converged" beyond the few candidates solved, O(k^2 K^2 iterations) for "algorithm2"; memory
    K x K.
    """
    if mask.shape[0] == 0:
        return nothing(k, gram.dtype)
    steps = min(k, mask.shape[0])
    rule = _Rule(gram, cost(gram), p, epsilon, solver, iterations, gate, gate_losses, backend)
    alone = 1 - jnp.matmul(p, rule.costs, precision=HIGHEST)
    pick = forced(first, first_best(alone, mask, resolution(gram.dtype)), mask)
    picks = jnp.full(_width(steps, solver), -1, jnp.int32).at[0].set(pick)
    free = mask & (jnp.arange(mask.shape[0]) != pick)
    zero = jnp.zeros((), gram.dtype)
    state = _State(picks, 1 - alone[pick], free, zero, jnp.zeros(picks.shape[0], gram.dtype))
    earned, t = [jnp.where(pick >= 0, alone[pick], 0)[None]], 1
    while t < steps:
        width = _width(t + 1, solver, steps)
        stop = min(width, steps)
        state, gains = jax.lax.scan(partial(_extend, rule, width), state, jnp.arange(t, stop))
        earned.append(gains)
        t = stop
    return filled(state.picks[:steps], jnp.concatenate(earned), k, state.error)


class _Rule(NamedTuple):
    gram: Float[Array, "K K"]
    costs: Float[Array, "K K"]
    p: Float[Array, " K"]
    epsilon: float
    solver: Solver
    iterations: int
    gate: bool
    gate_losses: bool
    backend: Backend


class _State(NamedTuple):
    """``potentials`` of the picks' own problem, over epsilon; read by "converged"."""

    picks: Int[Array, " width"]
    value: Float[Array, ""]
    free: Bool[Array, " K"]
    error: Float[Array, ""]
    potentials: Float[Array, " width"]


def _width(columns: int, solver: Solver, steps: int | None = None) -> int:
    """Columns that a problem is padded to, so that few programs are compiled.

    Powers of two above eight. Below, "algorithm2", whose time is in proportion to the columns, has them exact, and
    "converged", whose time hardly depends on them, has one width for all its ``steps``.
    """
    if columns > EXACT:
        return 1 << (columns - 1).bit_length()
    return columns if solver == "algorithm2" else min(EXACT, steps or columns)


def _extend(rule: _Rule, width: int, state: _State, t) -> tuple[_State, Float[Array, ""]]:
    """The pick after t picks, from problems of ``width`` columns of which t + 1 have mass."""
    picks, has = jnp.maximum(state.picks[: width - 1], 0), jnp.arange(width - 1) < t
    gate = 1 - jnp.where(has[:, None], rule.gram[picks], -1).max(0) if rule.gate else jnp.ones_like(rule.p)

    def score(value, at):  # falls as the value grows: a bound on one is a bound on the other
        loss = state.value - value
        return loss * (gate[at] if rule.gate_losses else jnp.where(loss < 0, 1, gate[at]))

    solved, potentials = _solve(rule, picks, has, state, score)
    value, error = solved.value, solved.marginal_error
    candidates = state.free & jnp.isfinite(value)
    scores = score(jnp.where(candidates, value, 0), jnp.arange(rule.p.shape[0]))
    # W sums terms up to the largest cost, over iterations that each round: its last bits decide nothing
    pick = first_best(scores, candidates, resolution(scores.dtype))
    state = _State(
        picks=state.picks.at[t].set(pick),
        value=value[pick],
        free=state.free & (jnp.arange(rule.p.shape[0]) != pick),
        error=jnp.maximum(state.error, jnp.max(jnp.where(candidates, error, 0), initial=0)),
        potentials=potentials(pick, t),
    )
    return state, jnp.where(pick >= 0, scores[pick], 0)


def _solve(rule: _Rule, picks, has, state: _State, score):
    """The problem of the picks and each candidate; and the potentials to start from once one of them is picked."""
    if rule.solver == "algorithm2":
        return sinkhorn_with_each(
            rule.costs, rule.p, picks, has, rule.epsilon, rule.iterations
        ), lambda *_: state.potentials
    size = picks.shape[0]
    solved = semidual.solve_with_each(
        rule.costs, rule.p, picks, has, state.potentials[:size], rule.epsilon, score, state.free, rule.backend
    )

    def potentials(pick, t):
        theta = state.potentials.at[:size].set(solved.potentials[:-1, pick]).at[t].set(solved.potentials[-1, pick])
        return theta - theta[t]  # defined up to a constant

    return solved, potentials
