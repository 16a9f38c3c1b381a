import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import as32, instance
from scipy.optimize import linprog

from georag_jax.kernels import sinkhorn, sinkhorn_with_each, transport

K, T = 10, 3
SEEDS = st.integers(0, 10**6)
solve = jax.jit(sinkhorn, static_argnames=("epsilon", "iterations"))
extend = jax.jit(sinkhorn_with_each, static_argnames=("epsilon", "iterations"))


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


# --- the picks and each candidate ------------------------------------------------------------------
PADDED = [([4, 0, 0], [True, False, False]), ([4, 1, 0], [True, True, False]), ([4, 7, 1], [True, False, True])]


def pool(seed):
    """Costs and a demand that is flat, or sharp, with zeros."""
    case = instance(seed, K, zeros=seed % 3)
    p = case.p ** (1 + 3 * (seed % 2))
    return as32(1 - case.gram), as32(p / p.sum())


def each(costs, p, picks, has, epsilon, iterations):
    """W and error [K] of the oracle."""
    own = [pick for pick, there in zip(picks, has, strict=True) if there]
    sets = np.stack([costs[:, [*own, i]] for i in range(len(p))])
    return reference.sinkhorn(sets, p, np.full(len(own) + 1, 1 / (len(own) + 1)), epsilon, iterations)


@pytest.mark.parametrize(
    "epsilon, iterations", [(0.01, 1), (0.01, 2), (0.01, 10), (0.01, 11), (0.01, 100), (0.1, 10), (0.1, 100)]
)
@given(seed=SEEDS)
def test_with_each_is_the_oracles(epsilon, iterations, seed):
    costs, p = pool(seed)
    picks, has = PADDED[seed % 3]
    got = extend(*map(jnp.float32, (costs, p)), np.int32(picks), np.array(has), epsilon, iterations)
    value, error = each(costs, p, picks, has, epsilon, iterations)
    np.testing.assert_allclose(got.value, value, atol=3e-5)
    np.testing.assert_allclose(got.marginal_error, error, atol=1e-4)


@given(SEEDS)
def test_with_each_in_float64(seed):
    costs, p = pool(seed)
    picks, has = PADDED[seed % 3]
    with jax.enable_x64(True):
        got = extend(*map(jnp.float64, (costs, p)), np.int32(picks), np.array(has), 0.05, 25)
        assert {x.dtype.name for x in got} == {"float64"}
        value, error = each(costs, p, picks, has, 0.05, 25)
        np.testing.assert_allclose(got.value, value, atol=1e-12)
        np.testing.assert_allclose(got.marginal_error, error, atol=1e-12)


def circle(seed):
    """Costs between points of a circle, up to 2; at epsilon .001 the kernel's logarithms go to -2,000."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * np.pi, K)
    return as32(1 - np.cos(angle[:, None] - angle)), as32(rng.dirichlet(np.full(K, 0.3)))


@pytest.mark.parametrize("epsilon, iterations", [(0.001, 11), (0.003, 30), (0.01, 30), (0.03, 30)])
@given(seed=SEEDS)
def test_with_each_where_scalings_leave_their_range(epsilon, iterations, seed):
    """Whether in the scaling form or in the log domain; float32 resolves a logarithm of 1 / epsilon to 1e-7 of it."""
    costs, p = circle(seed)
    picks, has = PADDED[seed % 3]
    got = extend(*map(jnp.float32, (costs, p)), np.int32(picks), np.array(has), epsilon, iterations)
    value, error = each(costs, p, picks, has, epsilon, iterations)
    np.testing.assert_allclose(got.value, value, atol=1e-6 / epsilon + 1e-5)
    np.testing.assert_allclose(got.marginal_error, error, atol=1e-6 / epsilon + 1e-5)


def outside(costs, p, picks, has, epsilon, iterations, monkeypatch):
    """Whether the log domain was needed: then its place-holder is what comes back."""
    with monkeypatch.context() as patch:
        patch.setattr(transport, "_literal_with_each", lambda costs, p, *_: (p * 0 - 1, p * 0 - 1))
        got = transport.sinkhorn_with_each(
            *map(jnp.asarray, (np.float32(costs), np.float32(p), np.int32(picks), np.array(has))), epsilon, iterations
        )
    return bool((np.asarray(got.value) == -1).all())


def test_the_log_domain_is_for_what_needs_it(monkeypatch):
    assert outside(2 * (1 - np.eye(K)), np.eye(K)[0], *PADDED[1], 0.001, 11, monkeypatch)
    assert not outside(*pool(0), *PADDED[1], 0.1, 11, monkeypatch)


def test_the_log_domain_says_the_same(monkeypatch):
    costs, p = pool(3)
    arguments = [jnp.asarray(x) for x in (np.float32(costs), np.float32(p), *map(np.array, PADDED[2]))]
    want = transport.sinkhorn_with_each(*arguments, 0.05, 11)
    monkeypatch.setattr(transport, "RANGE", 1e-3)
    got = transport.sinkhorn_with_each(*arguments, 0.05, 11)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
        assert not np.array_equal(a, b)


def test_with_each_of_no_mass_is_zero():
    costs, _ = pool(0)
    got = extend(jnp.float32(costs), jnp.zeros(K), np.int32(PADDED[1][0]), np.array(PADDED[1][1]), 0.01, 100)
    assert (np.asarray(got.value) == 0).all()
    assert (np.asarray(got.marginal_error) == 0).all()


def test_with_each_under_vmap_is_the_loop():
    cases = [pool(seed) for seed in range(3)]
    costs, p = (jnp.float32(np.stack(x)) for x in zip(*cases, strict=True))
    picks, has = np.int32(PADDED[1][0]), np.array(PADDED[1][1])
    batch = jax.vmap(lambda c, q: extend(c, q, picks, has, 0.1, 10))(costs, p)
    for b in range(3):
        for got, want in zip(batch, extend(costs[b], p[b], picks, has, 0.1, 10), strict=True):
            np.testing.assert_allclose(got[b], want, atol=2e-6)
