import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import as32, instance
from scipy.optimize import linprog

from georag_jax.kernels import sinkhorn

K, T = 10, 3
SEEDS = st.integers(0, 10**6)
solve = jax.jit(sinkhorn, static_argnames=("epsilon", "iterations"))


def problem(seed, t=T):
    case = instance(seed, K)
    return as32(1 - case.gram[:, :t]), case.p, np.full(t, 1 / t)


def plan(result, cost, epsilon):
    return np.exp((np.asarray(result.f)[:, None] + np.asarray(result.g) - cost) / epsilon)


@given(SEEDS)
def test_value_and_error_are_the_oracles(close, seed):
    M, p, e = problem(seed)
    value, error = reference.sinkhorn(M, p, e)
    got = solve(*map(jnp.float32, (M, p, e)))
    close(got.value, value, "transport")
    np.testing.assert_allclose(got.marginal_error, error, atol=1e-4)


@given(SEEDS, st.sampled_from([(0.01, 100), (0.05, 7), (1.0, 1)]))
def test_float64_in_float64_out(close, seed, settings):
    M, p, e = problem(seed)
    with jax.enable_x64(True):
        got = solve(*map(jnp.float64, (M, p, e)), *settings)
        assert {leaf.dtype for leaf in got} == {jnp.dtype("float64")}
        value, error = reference.sinkhorn(M, p, e, *settings)
        close(got.value, value, "transport")
        close(got.marginal_error, error, "transport")


def test_float32_stays_float32_with_x64_on():
    with jax.enable_x64(True):
        got = solve(*map(jnp.float32, problem(0)))
    assert {leaf.dtype for leaf in got} == {jnp.dtype("float32")}


@given(SEEDS)
def test_marginals(seed):
    """The last update leaves the columns exact; the error of the rows is the one reported."""
    M, p, e = problem(seed)
    got = solve(*map(jnp.float32, (M, p, e)), 0.05, 20)
    pi = plan(got, M, 0.05)
    np.testing.assert_allclose(pi.sum(0), e, rtol=1e-4)
    np.testing.assert_allclose(np.abs(pi.sum(1) - p).sum(), got.marginal_error, atol=1e-4)
    np.testing.assert_allclose((pi * M).sum(), got.value, rtol=1e-4)
    assert np.isneginf(got.f[p == 0]).all()
    assert np.isfinite(got.g).all()


def exact(M, p, e):
    """W of the linear programme."""
    n, t = M.shape
    rows, columns = np.kron(np.eye(n), np.ones(t)), np.kron(np.ones(n), np.eye(t))
    return linprog(M.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([p, e])).fun


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("epsilon", [0.05, 0.005])
def test_converged_value_is_the_linear_programmes(seed, epsilon):
    """<pi, M> exceeds the optimum by no more than epsilon times the entropy to be had, log t."""
    M, p, e = problem(seed)
    with jax.enable_x64(True):
        got = solve(*map(jnp.float64, (M, p, e)), epsilon, 50_000)
    assert float(got.marginal_error) < 1e-6
    best = exact(M, p, e / e.sum())
    assert best - 1e-5 <= float(got.value) <= best + epsilon * np.log(T) + 1e-5


def test_more_iterations_lower_the_error():
    M, p, e = map(jnp.float32, problem(3))
    errors = [float(solve(M, p, e, 0.05, n).marginal_error) for n in (1, 4, 16, 256)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4 < errors[0]


@given(SEEDS)
def test_one_pick_takes_all_the_mass(close, seed):
    M, p, e = problem(seed, 1)
    got = solve(*map(jnp.float32, (M, p, e)))
    close(got.value, p @ M[:, 0])
    assert got.marginal_error < 1e-5


def test_one_candidate():
    got = solve(jnp.full((1, 1), 0.3), jnp.ones(1), jnp.ones(1))
    np.testing.assert_allclose(got.value, 0.3, rtol=1e-5)


def test_no_mass_at_all_gives_zero():
    M, _, e = map(jnp.float32, problem(0))
    got = solve(M, jnp.zeros(K), e)
    assert (float(got.value), float(got.marginal_error)) == (0, 0)


@given(SEEDS)
def test_rows_without_mass_change_nothing(seed):
    M, p, e = map(jnp.float32, problem(seed))
    junk = jnp.asarray(np.random.default_rng(seed).uniform(0, 2, (6, T)), jnp.float32)
    padded = solve(jnp.concatenate([M, junk]), jnp.concatenate([p, jnp.zeros(6)]), e)
    alone = solve(M, p, e)
    np.testing.assert_allclose(padded.value, alone.value, rtol=1e-5)
    np.testing.assert_allclose(padded.marginal_error, alone.marginal_error, atol=1e-5)


@given(SEEDS)
def test_order_of_rows_and_columns_does_not_matter(seed):
    M, p, e = map(jnp.float32, problem(seed))
    rows, columns = np.random.default_rng(seed).permutation(K), np.random.default_rng(seed).permutation(T)
    np.testing.assert_allclose(
        solve(M[rows][:, columns], p[rows], e[columns]).value, solve(M, p, e).value, rtol=1e-4, atol=1e-6
    )


def test_vmap_is_the_loop():
    M, p, e = (jnp.stack(x) for x in zip(*(map(jnp.float32, problem(seed)) for seed in range(5)), strict=True))
    batch = jax.jit(jax.vmap(sinkhorn))(M, p, e)
    for b in range(5):
        for got, want in zip(batch, solve(M[b], p[b], e[b]), strict=True):
            np.testing.assert_allclose(got[b], want, rtol=1e-4, atol=1e-5)


def test_jit_is_eager():
    M, p, e = map(jnp.float32, problem(1))
    with jax.disable_jit():
        eager = sinkhorn(M, p, e, 0.05, 3)
    for got, want in zip(solve(M, p, e, 0.05, 3), eager, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_nan_in_the_cost_is_not_hidden():
    M, p, e = map(jnp.float32, problem(1))
    row = int(np.argmax(p))
    assert np.isnan(solve(M.at[row, 0].set(jnp.nan), p, e).value)
