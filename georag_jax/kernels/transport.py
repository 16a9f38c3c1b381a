"""Entropic optimal transport between the demand and the picks by the paper's iterations (Algorithm 2)."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from georag_jax.kernels.numerics import HIGHEST, logsumexp

BLOCK = 5  # updates between two changes of reference
RANGE = 35.0  # largest |log| of a scaling at hand: what the kernel has flushed to 0, below e^-87, then weighs nothing


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
    each = lambda n: jnp.ones((n, p.shape[0]), costs.dtype)
    common = jnp.where(has[:, None], each(picks.shape[0]), 0)
    state = _Scalings(jnp.zeros_like(common[:, 0]), jnp.zeros_like(each(1)), common, each(1), jnp.zeros((), bool))
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
    """The column scalings of all K problems: exp of a whole number, the reference, times what is at hand.

    Whole numbers are exact, so that a change of reference costs no digits; the potentials themselves reach 100.
    ``outside``: whether what is at hand has left the range of float32.
    """

    common_reference: Float[Array, " t"]
    own_reference: Float[Array, "1 K"]
    common: Float[Array, "t K"]
    own: Float[Array, "1 K"]
    outside: Bool[Array, ""]


class _Kernel(NamedTuple):
    """What the scalings at hand multiply: exp of references minus costs, each row's largest 1.

    ``shared`` [t, K rows] has the picks' columns; ``own`` [K rows, K problems] the candidate's; ``damped`` what the
    shared ones lose in a row where the candidate's own is the largest.
    """

    shared: Float[Array, "t K"]
    own: Float[Array, "K K"]
    damped: Float[Array, "K K"]


def _refer(problem: _Scaled, state: _Scalings) -> tuple[_Kernel, _Scalings]:
    """References moved to where the scalings are, so that those at hand are near 1; and the kernel for that."""
    has = problem.has[:, None]
    logs = jnp.log(jnp.where(has, state.common, 1))
    common_shift = jnp.round((logs.max(1) + logs.min(1)) / 2)
    own_shift = jnp.round(jnp.log(state.own))
    common_reference, own_reference = state.common_reference + common_shift, state.own_reference + own_shift
    shared = jnp.where(has, common_reference[:, None] - problem.costs[problem.picks], -jnp.inf)
    top = shared.max(0)
    over = own_reference - problem.costs - top[:, None]
    small = jnp.exp(-jnp.abs(over))
    kernel = _Kernel(jnp.exp(shared - top), jnp.where(over > 0, 1, small), jnp.where(over > 0, small, 1))
    common, own = state.common * jnp.exp(-common_shift)[:, None], state.own * jnp.exp(-own_shift)
    return kernel, _Scalings(common_reference, own_reference, common, own, state.outside)


def _rows(problem: _Scaled, kernel: _Kernel, common, own) -> Float[Array, "K K"]:
    """The row scalings of all problems: p over the row sums."""
    both = kernel.damped * jnp.matmul(kernel.shared.T, common, precision=HIGHEST) + kernel.own * own
    return problem.p[:, None] / both


def _columns(problem: _Scaled, kernel: _Kernel, rows) -> tuple[Float[Array, "t K"], Float[Array, "1 K"]]:
    shared = jnp.matmul(kernel.shared, kernel.damped * rows, precision=HIGHEST)
    own = jnp.matmul(jnp.ones((1, rows.shape[0]), rows.dtype), kernel.own * rows, precision=HIGHEST)
    return jnp.where(problem.has[:, None], problem.target / shared, 0), problem.target / own


def _iterate(problem: _Scaled, state: _Scalings, count: int) -> _Scalings:
    kernel, state = _refer(problem, state)

    def update(_, scalings):
        common, own, low, high = scalings
        common, own = _columns(problem, kernel, _rows(problem, kernel, common, own))
        every = jnp.where(problem.has[:, None], common, own)
        low = jnp.minimum(low, jnp.minimum(every.min(), own.min()))
        return common, own, low, jnp.maximum(high, jnp.maximum(every.max(), own.max()))

    one = jnp.ones((), state.own.dtype)
    common, own, low, high = jax.lax.fori_loop(0, count, update, (state.common, state.own, one, one))
    limit = jnp.exp(jnp.asarray(RANGE, one.dtype))
    inside = (low >= 1 / limit) & (high <= limit)  # False for NaN
    return state._replace(common=common, own=own, outside=state.outside | ~inside)


def _last(problem: _Scaled, state: _Scalings, costs) -> tuple[Float[Array, " K"], Float[Array, " K"], Bool[Array, ""]]:
    """The last update, with W and the row error that it leaves."""
    kernel, state = _refer(problem, state)
    rows = _rows(problem, kernel, state.common, state.own)
    common, own = _columns(problem, kernel, rows)
    plan_shared, plan_own = kernel.damped * rows, kernel.own * rows * own
    plan_rows = plan_shared * jnp.matmul(kernel.shared.T, common, precision=HIGHEST) + plan_own
    error = jnp.abs(plan_rows - problem.p[:, None]).sum(0)
    weighed = jnp.matmul(kernel.shared * costs[problem.picks], plan_shared, precision=HIGHEST)
    value = (common * weighed).sum(0) + (plan_own * costs).sum(0)
    empty = ~(problem.p > 0).any()
    outside = (state.outside | ~jnp.isfinite(value).all()) & ~empty
    return jnp.where(empty, 0, value), jnp.where(empty, 0, error), outside


def _literal_with_each(costs, p, picks, has, epsilon: float, iterations: int):
    measure = jnp.append(has, True) / (has.sum() + 1).astype(costs.dtype)
    problem = lambda new: jnp.concatenate([costs[:, picks], new[:, None]], 1)
    one = lambda new: sinkhorn(problem(new), p, measure, epsilon, iterations)
    solved = jax.lax.map(one, costs, batch_size=16)
    return solved.value, solved.marginal_error
