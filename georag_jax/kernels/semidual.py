"""The same transport problems solved to convergence: damped Newton on the semi-dual, and only where it can matter.

With the row potentials eliminated, the plan of picks S and one candidate more is pi_ij = p_i s_ij with
s_i = softmax_j(theta_j - M_ij / eps), and theta (t numbers) maximises the concave semi-dual

    D(theta) = eps (<e, theta> - sum_i p_i lse_j(theta_j - M_ij / eps)),   gradient eps (e - c), c_j = sum_i p_i s_ij.

Its negative Hessian is eps times the Laplacian of the graph with weights q_jl = sum_i p_i s_ij s_il.

*Why it converges from anywhere.* Along a direction h the third derivative is a third central moment under s_i, at most
span(h) = max h - min h times the second. A function with that property (generalised self-concordance: T. Sun and
Q. Tran-Dinh, "Generalized self-concordant functions", 2019) grows along the Newton direction n, damped by
ln(1 + d) / d with d = span(n), by at least lambda^2 ((1 + d) ln(1 + d) - d) / d^2, lambda the Newton decrement: never
nothing, and the damping tends to 1 at the solution, where convergence is quadratic.

*What float32 needs for that.* Every column must hold mass, or the Laplacian falls apart: the picks' columns start at
the solution of the step before, the new one where it alone, with theirs fixed, would hold its share. Weights are sums
of positive terms, and elimination on a Laplacian needs no subtraction, so that a column hanging by a thread still has
an accurate step; shares are held above 1e-20 there, which shortens the step of a thread too thin for float32. Each
step moves the logarithms of the plan that the one before has left, of which those that carry mass are near 0; theta -
M / eps anew would be a difference of numbers of 100, where float32 resolves 1e-5.

*Which candidates are solved.* Any theta bounds W from below: D = W - eps times the mean entropy of the rows at the
solution, and less elsewhere. The score falls as W grows, so a bound on W is one on the score; candidates enter in the
order of theirs, leave when they have converged or when it falls below the best score reached, and the next one takes
the place.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from georag_jax.config import Backend
from georag_jax.kernels.laplacian import solve_laplacian
from georag_jax.kernels.numerics import HIGHEST, logsumexp
from georag_jax.kernels.start import start_potentials

SLOTS = 4  # candidates that are solved side by side
STEPS = 60  # Newton steps after which a candidate leaves unconverged; at most 25 were needed on real pools
LEAST_SHARE = 1e-20  # of a row, in the Laplacian: columns that share less would come apart in float32


class Solved(NamedTuple):
    """What ``solve_with_each`` returns.

    Attributes:
        value: [K] W(P, S + i); infinity for a candidate that cannot be the next pick.
        marginal_error: [K] L1 error of the column marginal; 0 for a candidate that was not solved.
        potentials: [T, K] theta of the picks and, last, of the candidate.
        count: candidates solved to the end.
    """

    value: Float[Array, " K"]
    marginal_error: Float[Array, " K"]
    potentials: Float[Array, "T K"]
    count: Int[Array, ""]


class Problem(NamedTuple):
    """The picks' columns at the start, shared by all candidates. Potentials and costs are over epsilon.

    Attributes:
        epsilon: [].
        p: [K] the demand, sums to 1.
        scaled: [K, K] costs over epsilon.
        costs: [T, K] of the picks; 0 where there is none yet.
        target: [T + 1] mass of each column, the candidate's last.
        theta: [T] potentials; 0 where there is no pick.
        log_share: [T, K] log softmax over the picks; -inf where there is none.
        level: [K] log-sum-exp over the picks, which the softmax has lost.
    """

    epsilon: Float[Array, ""]
    p: Float[Array, " K"]
    scaled: Float[Array, "K K"]
    costs: Float[Array, "T K"]
    target: Float[Array, " T1"]
    theta: Float[Array, " T"]
    log_share: Float[Array, "T K"]
    level: Float[Array, " K"]


class Start(NamedTuple):
    """For every candidate the potential at which, the picks' being fixed, its column holds its share; D there."""

    theta: Float[Array, " K"]
    dual: Float[Array, " K"]


Score = Callable[[Float[Array, " n"], Int[Array, " n"]], Float[Array, " n"]]


def solve_with_each(
    costs: Float[Array, "K K"],
    p: Float[Array, " K"],
    picks: Int[Array, " T"],
    has: Bool[Array, " T"],
    potentials: Float[Array, " T"],
    epsilon: float,
    score: Score,
    free: Bool[Array, " K"],
    backend: Backend = "xla",
) -> Solved:
    """W(P, S + i), uniform on S + i, for every candidate i that may have the largest score.

    Args:
        costs: [K, K] symmetric.
        p: [K] the demand, sums to 1; where all of it is 0 nothing is solved and every value is 0.
        picks: [T] candidates picked so far.
        has: [T] which of them exist, at least one.
        potentials: [T] of the picks' own problem, from the step before; any numbers that leave each column mass.
        epsilon: > 0.
        score: of values [n] of candidates [n]; must not grow with the value.
        free: [K] candidates that may be picked.
        backend: of ``start_potentials``.

    Cost: O(K^2) for the bounds and O(K t^2) a Newton step, of which most candidates need none; memory K x K.
    """
    problem = _problem(costs, p, picks, has, potentials, epsilon)
    theta, lifted = start_potentials(problem.scaled, problem.level, p, problem.target[-1], epsilon, backend)
    start = Start(theta, _dual(problem, theta, lifted))
    empty = ~(p > 0).any()
    bound = jnp.where(free & ~empty, score(start.dual, jnp.arange(p.shape[0])), -jnp.inf)
    order = jnp.argsort(-bound)
    queue = _Queue(order, bound[order], 32 * float(jnp.finfo(costs.dtype).eps))
    state = _enter(problem, start, queue, _empty(problem))
    step = lambda state: _enter(problem, start, queue, _step(problem, start, costs, score, queue.slack, state))
    state = jax.lax.while_loop(lambda state: (state.candidate >= 0).any(), step, state)
    shared = problem.theta[:, None] + state.result[:-1]
    own = start.theta + state.result[-1]
    count = jnp.isfinite(state.value).sum()
    value = jnp.where(empty, 0, state.value)
    return Solved(value, state.error, jnp.concatenate([shared, own[None]]), count)


def _problem(costs, p, picks, has, potentials, epsilon) -> Problem:
    scaled, theta = costs / epsilon, jnp.where(has, potentials, 0)
    raw = jnp.where(has[:, None], theta[:, None] - scaled[picks], -jnp.inf)
    level = logsumexp(raw, axis=0)
    share = 1 / (has.sum() + 1).astype(costs.dtype)
    return Problem(
        epsilon=jnp.asarray(epsilon, costs.dtype),
        p=p,
        scaled=scaled,
        costs=jnp.where(has[:, None], costs[picks], 0),
        target=jnp.append(jnp.where(has, share, 0), share),
        theta=theta,
        log_share=raw - level,
        level=level,
    )


def _dual(problem: Problem, own, lifted, shared: Float[Array, " n"] | float = 0.0):
    """D: ``own`` the candidate's potential, ``shared`` what <e, theta> has gained, ``lifted`` the rows' mean gain."""
    before = jnp.matmul(problem.target[:-1], problem.theta, precision=HIGHEST)
    level = jnp.matmul(problem.p, problem.level, precision=HIGHEST)
    return problem.epsilon * (before - level + shared + problem.target[-1] * own - lifted)


class _Queue(NamedTuple):
    """Candidates in the order of the bounds on their score; ``slack``: what rounding may have taken from a bound."""

    order: Int[Array, " K"]
    bound: Float[Array, " K"]
    slack: float


class _State(NamedTuple):
    """What each of the n slots holds, and the results so far.

    Attributes:
        candidate: [n] -1 where the slot is free.
        exponents: [n, T + 1, K] logarithms of p_i s_ij / p_i, each row up to a constant.
        moved: [T + 1, n] potentials against the start.
        lifted: [n] mean over the demand of what the rows' log-sum-exp has gained.
        steps: [n] Newton steps made.
        next: the queue's next position.
        best: largest score reached.
        value, error, result: [K], [K] and [T + 1, K] W, marginal error and ``moved`` of the candidates that are done.
    """

    candidate: Int[Array, " n"]
    exponents: Float[Array, "n T1 K"]
    moved: Float[Array, "T1 n"]
    lifted: Float[Array, " n"]
    steps: Int[Array, " n"]
    next: Int[Array, ""]
    best: Float[Array, ""]
    value: Float[Array, " K"]
    error: Float[Array, " K"]
    result: Float[Array, "T1 K"]


def _empty(problem: Problem) -> _State:
    columns, size, dtype = problem.target.shape[0], problem.p.shape[0], problem.p.dtype
    return _State(
        candidate=jnp.full(SLOTS, -1, jnp.int32),
        exponents=jnp.zeros((SLOTS, columns, size), dtype),
        moved=jnp.zeros((columns, SLOTS), dtype),
        lifted=jnp.zeros(SLOTS, dtype),
        steps=jnp.zeros(SLOTS, jnp.int32),
        next=jnp.zeros((), jnp.int32),
        best=jnp.full((), -jnp.inf, dtype),
        value=jnp.full(size, jnp.inf, dtype),
        error=jnp.zeros(size, dtype),
        result=jnp.zeros((columns, size), dtype),
    )


def _enter(problem: Problem, start: Start, queue: _Queue, state: _State) -> _State:
    """The next candidates of the queue take the free slots, while their bounds allow it."""
    slot_free, size = state.candidate < 0, queue.order.shape[0]
    place = state.next + jnp.cumsum(slot_free, dtype=jnp.int32) - 1
    position = jnp.minimum(place, size - 1)
    hopeful = jnp.isfinite(queue.bound[position]) & (queue.bound[position] >= state.best - queue.slack)
    enters = slot_free & (place < size) & hopeful
    at = queue.order[position].astype(jnp.int32)
    own = start.theta[at][:, None] - problem.scaled[at] - problem.level
    shared = jnp.broadcast_to(problem.log_share, (SLOTS, *problem.log_share.shape))
    fresh = jnp.concatenate([shared, own[:, None]], 1)
    return state._replace(
        candidate=jnp.where(enters, at, state.candidate),
        exponents=jnp.where(enters[:, None, None], fresh, state.exponents),
        moved=jnp.where(enters, 0, state.moved),
        lifted=jnp.where(enters, 0, state.lifted),
        steps=jnp.where(enters, 0, state.steps),
        next=state.next + enters.sum(dtype=jnp.int32),
    )


def _step(problem: Problem, start: Start, costs, score: Score, slack: float, state: _State) -> _State:
    """Measures every slot's candidate where it stands, lets out those that are done, and moves the others on."""
    at = jnp.maximum(state.candidate, 0)
    log_s, weights, gain, value = _moments(problem, costs[at], state.exponents)
    held = weights.sum(1)  # [T + 1, n]: the rows of a softmax sum to 1
    error = jnp.abs(held - problem.target[:, None]).sum(0)
    tolerance = 8 * float(jnp.finfo(value.dtype).eps)
    there = state.candidate >= 0
    done = there & ((error <= tolerance) | (state.steps >= STEPS))
    best = jnp.maximum(state.best, jnp.where(done, score(value, at), -jnp.inf).max())
    lifted = state.lifted + gain
    shared = jnp.matmul(problem.target, state.moved, precision=HIGHEST)
    bound = score(_dual(problem, start.theta[at], lifted, shared), at)
    newton = solve_laplacian(weights, problem.target[:, None] - held)
    span = newton.max(0) - newton.min(0)
    damped = jnp.where(span > 0, jnp.log1p(span) / jnp.where(span > 0, span, 1), 1) * newton
    into = jnp.where(done, at, costs.shape[0])  # what is not done falls off the end
    return _State(
        candidate=jnp.where(done | (bound < best - slack), -1, state.candidate),
        exponents=log_s + damped.T[:, :, None],
        moved=state.moved + damped,
        lifted=lifted,
        steps=state.steps + 1,
        next=state.next,
        best=best,
        value=state.value.at[into].set(value, mode="drop"),
        error=state.error.at[into].set(error, mode="drop"),
        result=state.result.at[:, into].set(state.moved, mode="drop"),
    )


def _moments(problem: Problem, own_costs: Float[Array, "n K"], exponents: Float[Array, "n T1 K"]):
    """Log s [n, T + 1, K], Laplacian weights [T + 1, T + 1, n], what the rows' level has gained [n], and W [n].

    The weights have the diagonal that makes rows sum to c.
    """
    top = exponents.max(1, keepdims=True)
    s = jnp.exp(exponents - top)
    total = s.sum(1, keepdims=True)
    level = top + jnp.log(total)
    s = s / total
    plan = s * problem.p
    linked = jnp.where(jnp.isfinite(exponents), jnp.maximum(s, LEAST_SHARE), 0)
    weights = jnp.einsum("njk,nlk->jln", linked * problem.p, linked, precision=HIGHEST)
    paid = jnp.einsum("jk,njk->n", problem.costs, plan[:, :-1], precision=HIGHEST)
    value = paid + jnp.einsum("nk,nk->n", own_costs, plan[:, -1], precision=HIGHEST)
    return exponents - level, weights, jnp.matmul(level[:, 0], problem.p, precision=HIGHEST), value
