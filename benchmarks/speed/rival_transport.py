"""Algorithm 1 around the transport solvers of other libraries: the same greedy loop, their Sinkhorn inside."""

from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

ITERATIONS, EPSILON = 100, 0.01


def ott_select(transposed: bool) -> Callable[..., jax.Array]:
    """A compiled selection of k picks of one question, OTT's solver vmapped over the candidates.

    ``transposed`` hands OTT the [t, K] problem: its update order is then that of Algorithm 2, and it is faster.
    """
    from ott.geometry import geometry
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn

    solver = sinkhorn.Sinkhorn(min_iterations=ITERATIONS, max_iterations=ITERATIONS)

    def transport(cost, p, e):
        sides = (cost.T, e, p) if transposed else (cost, p, e)
        geom = geometry.Geometry(cost_matrix=sides[0], epsilon=EPSILON, scale_cost=1.0)
        return solver(linear_problem.LinearProblem(geom, a=sides[1], b=sides[2])).primal_cost

    return jax.jit(partial(_greedy, transport), static_argnames="k")


def _greedy(transport, G, query_sim, p, k: int = 5):
    M = 1 - G
    S = [jnp.argmax(query_sim)]
    current = (p * M[:, S[0]]).sum()
    for t in range(2, k + 1):
        shared = M[:, jnp.stack(S)]
        e = jnp.full(t, 1 / t, M.dtype)
        one = lambda column, shared=shared, e=e: transport(jnp.concatenate([shared, column[:, None]], 1), p, e)
        W = jax.vmap(one, in_axes=1)(M)
        score = (1 - G[:, jnp.stack(S)].max(1)) * (current - W)
        S.append(jnp.argmax(score.at[jnp.stack(S)].set(-jnp.inf)))
        current = W[S[-1]]
    return jnp.stack(S)


def pot_problems() -> Callable[[np.ndarray, np.ndarray, Sequence[int], int], np.ndarray]:
    """A function that solves, with POT, some of the problems of every step of one question.

    It takes Gram, demand, the picks (that another side made) and the number of candidates to solve in each step, spread
    evenly, and gives their W.
    """
    from ot.bregman import sinkhorn_log

    def solve(G: np.ndarray, p: np.ndarray, picks: Sequence[int], candidates: int) -> np.ndarray:
        M, p = 1 - G, p / p.sum()
        values = []
        for t in range(1, len(picks)):
            free = np.setdiff1d(np.arange(len(p)), picks[:t])
            for i in free[:: max(len(free) // candidates, 1)][:candidates]:
                cost = M[:, [*picks[:t], i]]
                e = np.full(t + 1, 1 / (t + 1), cost.dtype)
                plan = sinkhorn_log(p, e, cost, EPSILON, numItermax=ITERATIONS, stopThr=0, warn=False)
                values.append((plan * cost).sum())
        return np.array(values)

    return solve
