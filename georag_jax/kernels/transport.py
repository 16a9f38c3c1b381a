"""Entropic optimal transport between the demand and the picks by the paper's iterations (Algorithm 2)."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from georag_jax.kernels.numerics import HIGHEST, logsumexp

BLOCK = 10  # iterations between two changes of reference
RANGE = 60.0  # largest |log| of a scaling against its reference: squares and products stay within float32


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


class Extension(NamedTuple):
    """The transport problem of the picks and one candidate more, for every candidate.

    Attributes:
        value: [K] W(P, S + i); infinity where it was not solved because i cannot be the next pick.
        marginal_error: [K] L1 error of the marginal that is left unsatisfied; 0 where it was not solved.
    """

    value: Float[Array, " K"]
    marginal_error: Float[Array, " K"]


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


def sinkhorn_with_each(
    costs: Float[Array, "K K"],
    p: Float[Array, " K"],
    picks: Int[Array, " t"],
    has: Bool[Array, " t"],
    epsilon: float,
    iterations: int,
) -> Extension:
    """``sinkhorn`` of the picks and candidate i, uniform on both, for every i at once.

    The same iterates in the scaling form (u = exp(f / eps), v = exp(g / eps)): the columns of the picks belong to all
    problems, so that an update is two products with a [t, K] matrix and a division, and no exponential. float32 does
    not hold exp(-M / eps); it does hold the scalings against a reference that moves every ``BLOCK`` updates. Where
    one leaves that range all the same, the iterations are done in the log domain.

    Args:
        costs: [K, K] symmetric.
        p: [K] source measure, sums to 1.
        picks: [t] candidates picked so far.
        has: [t] which of them exist.
        epsilon: > 0.
        iterations: >= 1.

    Cost: O(K^2 t iterations); memory K x K.
    """
    problem = _Scaled(costs / epsilon, p, picks, has, 1 / (has.sum() + 1).astype(costs.dtype))
    zeros = lambda n: jnp.zeros((n, p.shape[0]), costs.dtype)
    state = _Scalings(zeros(picks.shape[0]), zeros(1), jnp.zeros((), bool))
    blocks, rest = divmod(iterations - 1, BLOCK)  # the last update stands apart: what it leaves is measured
    state = jax.lax.fori_loop(0, blocks, lambda _, s: _iterate(problem, s, BLOCK), state)
    state = _iterate(problem, state, rest)
    value, error, outside = _last(problem, state, costs)
    literal = partial(_literal_with_each, costs, p, picks, has, epsilon, iterations)
    return Extension(*jax.lax.cond(outside, literal, lambda: (value, error)))


class _Scaled(NamedTuple):
    """``target`` is the mass of each column that exists."""

    costs: Float[Array, "K K"]
    p: Float[Array, " K"]
    picks: Int[Array, " t"]
    has: Bool[Array, " t"]
    target: Float[Array, ""]


class _Scalings(NamedTuple):
    """Column potentials over epsilon of all K problems, and whether a scaling has left its range."""

    common: Float[Array, "t K"]
    own: Float[Array, "1 K"]
    outside: Bool[Array, ""]


class _Reference(NamedTuple):
    """What the scalings multiply until the reference moves: exp of potentials minus costs, each row's largest 1.

    ``shared`` [t, K rows] has the picks' columns; ``own`` [K rows, K problems] the candidate's; ``damped`` what the
    shared ones lose in a row where the candidate's own is the largest.
    """

    common: Float[Array, " t"]
    shared: Float[Array, "t K"]
    own: Float[Array, "K K"]
    damped: Float[Array, "K K"]


def _refer(problem: _Scaled, state: _Scalings) -> _Reference:
    middle = (state.common.max(1) + state.common.min(1)) / 2
    shared = jnp.where(problem.has[:, None], middle[:, None] - problem.costs[problem.picks], -jnp.inf)
    top = shared.max(0)
    over = state.own - problem.costs - top[:, None]
    small = jnp.exp(-jnp.abs(over))
    return _Reference(middle, jnp.exp(shared - top), jnp.where(over > 0, 1, small), jnp.where(over > 0, small, 1))


def _rows(problem: _Scaled, at: _Reference, common, own) -> Float[Array, "K K"]:
    """The row scalings of all problems: p over the row sums."""
    both = at.damped * jnp.matmul(at.shared.T, common, precision=HIGHEST) + at.own * own
    return problem.p[:, None] / both


def _columns(problem: _Scaled, at: _Reference, rows) -> tuple[Float[Array, "t K"], Float[Array, "1 K"]]:
    shared = jnp.matmul(at.shared, at.damped * rows, precision=HIGHEST)
    own = jnp.matmul(jnp.ones((1, rows.shape[0]), rows.dtype), at.own * rows, precision=HIGHEST)
    return jnp.where(problem.has[:, None], problem.target / shared, 0), problem.target / own


def _iterate(problem: _Scaled, state: _Scalings, count: int) -> _Scalings:
    at = _refer(problem, state)

    def update(_, scalings):
        common, own, low, high = scalings
        common, own = _columns(problem, at, _rows(problem, at, common, own))
        every = jnp.where(problem.has[:, None], common, own)
        low = jnp.minimum(low, jnp.minimum(every.min(), own.min()))
        return common, own, low, jnp.maximum(high, jnp.maximum(every.max(), own.max()))

    one = jnp.ones((), state.own.dtype)
    start = (_exp_where(problem, state.common - at.common[:, None]), jnp.ones_like(state.own), one, one)
    common, own, low, high = jax.lax.fori_loop(0, count, update, start)
    limit = jnp.exp(jnp.asarray(RANGE, one.dtype))
    inside = (low >= 1 / limit) & (high <= limit)  # False for NaN
    moved = jnp.where(problem.has[:, None], at.common[:, None] + jnp.log(common), 0)
    return _Scalings(moved, state.own + jnp.log(own), state.outside | ~inside)


def _last(problem: _Scaled, state: _Scalings, costs) -> tuple[Float[Array, " K"], Float[Array, " K"], Bool[Array, ""]]:
    """The last update, with W and the row error that it leaves."""
    at = _refer(problem, state)
    start = _exp_where(problem, state.common - at.common[:, None])
    rows = _rows(problem, at, start, jnp.ones_like(state.own))
    common, own = _columns(problem, at, rows)
    plan_shared, plan_own = at.damped * rows, at.own * rows * own
    error = jnp.abs(plan_shared * jnp.matmul(at.shared.T, common, precision=HIGHEST) + plan_own - problem.p[:, None])
    weighed = jnp.matmul(at.shared * costs[problem.picks], plan_shared, precision=HIGHEST)
    value = (common * weighed).sum(0) + (plan_own * costs).sum(0)
    empty = ~(problem.p > 0).any()
    outside = (state.outside | ~jnp.isfinite(value).all()) & ~empty
    return jnp.where(empty, 0, value), jnp.where(empty, 0, error.sum(0)), outside


def _exp_where(problem: _Scaled, x: Float[Array, "t K"]) -> Float[Array, "t K"]:
    return jnp.where(problem.has[:, None], jnp.exp(x), 0)


def _literal_with_each(costs, p, picks, has, epsilon: float, iterations: int):
    measure = jnp.append(has, True) / (has.sum() + 1).astype(costs.dtype)
    problem = lambda new: jnp.concatenate([costs[:, picks], new[:, None]], 1)
    one = lambda new: sinkhorn(problem(new), p, measure, epsilon, iterations)
    solved = jax.lax.map(one, costs, batch_size=16)
    return solved.value, solved.marginal_error
