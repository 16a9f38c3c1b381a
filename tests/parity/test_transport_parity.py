"""W of Algorithm 2 against OTT and POT after the same number of iterations.

Compared is <pi, M>. OTT's ``reg_ot_cost`` is <pi, M> + eps KL(pi | p x e), and POT's value depends on ``reg_type``:
neither is W. Here f is updated first and g last, so the columns are exact; both libraries do the same once their
arguments are put in that order.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from instances import as32, instance

from georag_jax.kernels import sinkhorn

pytestmark = pytest.mark.parity
K, T = 10, 3
CASES = [(seed, epsilon, iterations) for seed in range(3) for epsilon, iterations in ((0.01, 100), (0.05, 10))]
many = pytest.mark.parametrize("seed, epsilon, iterations", CASES)
solve = jax.jit(sinkhorn, static_argnames=("epsilon", "iterations"))


def problem(seed):
    case = instance(seed, K, zeros=0)
    return as32(1 - case.gram[:, :T]), case.p / case.p.sum(), np.full(T, 1 / T)


@many
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ott(close, seed, epsilon, iterations, dtype):
    ott = pytest.importorskip("ott", reason="ott-jax is not installed")
    from ott.geometry import geometry
    from ott.problems.linear import linear_problem
    from ott.solvers.linear import sinkhorn as ott_sinkhorn

    assert ott
    with jax.enable_x64(dtype == "float64"):
        M, p, e = (jnp.asarray(x, dtype) for x in problem(seed))
        # OTT updates g first and f last: hand it the transposed problem
        geom = geometry.Geometry(cost_matrix=M.T, epsilon=epsilon)
        solver = ott_sinkhorn.Sinkhorn(
            min_iterations=iterations, max_iterations=iterations, inner_iterations=1, recenter_potentials=False
        )
        out = solver(linear_problem.LinearProblem(geom, a=e, b=p))
        got = solve(M, p, e, epsilon, iterations)
        assert got.value.dtype == dtype
        close(got.value, np.sum(np.asarray(out.matrix) * np.asarray(M.T)), "transport")
        plan = np.exp((np.asarray(got.f)[:, None] + np.asarray(got.g) - np.asarray(M)) / epsilon)
        np.testing.assert_allclose(plan, np.asarray(out.matrix).T, atol=1e-4 if dtype == "float32" else 1e-9)
        entropy = epsilon * (plan * (np.log(np.maximum(plan, 1e-30)) - np.log(np.outer(p, e)))).sum()
        if float(got.marginal_error) < 1e-5:
            np.testing.assert_allclose(out.reg_ot_cost, got.value + entropy, atol=1e-4)


@many
def test_pot(close, seed, epsilon, iterations):
    bregman = pytest.importorskip("ot.bregman", reason="POT is not installed")
    M, p, e = problem(seed)
    plan = bregman.sinkhorn_log(p, e, M, epsilon, numItermax=iterations, stopThr=0, warn=False)
    with jax.enable_x64(True):
        got = solve(*map(jnp.float64, (M, p, e)), epsilon, iterations)
        mine = np.exp((np.asarray(got.f)[:, None] + np.asarray(got.g) - M) / epsilon)
        np.testing.assert_allclose(mine.sum(0), e, rtol=1e-9)
        if np.abs(plan.sum(0) - e).max() > 1e-12:  # POT updated the rows last: its plan of the transposed problem
            plan = bregman.sinkhorn_log(e, p, M.T, epsilon, numItermax=iterations, stopThr=0, warn=False).T
        close(got.value, (plan * M).sum(), "transport")
