"""The converged solver against the float64 oracle, for every candidate: a flat score discards none."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import as32, instance

from georag_jax.kernels import laplacian as laplacian_kernel
from georag_jax.kernels import semidual
from georag_jax.kernels.start import start_potentials

K, T = 10, 3
SEEDS = st.integers(0, 10**6)
EPSILONS = (0.002, 0.01, 0.1, 1.0)
every_epsilon = pytest.mark.parametrize("epsilon", EPSILONS)
SOLVED = 3e-6  # the marginal error that is promised


def flat(value, at):
    return jnp.zeros_like(value)


@partial(jax.jit, static_argnames=("epsilon", "score"))
def solve(costs, p, picks, has, potentials, free, epsilon, score=flat):
    return semidual.solve_with_each(costs, p, picks, has, potentials, epsilon, score, free)


def chain(costs, p, picks, epsilon, dtype="float32", free=None):
    """``solve`` for the first pick, the first two, ... of three, each from the potentials of the one before."""
    costs, p = jnp.asarray(costs, dtype), jnp.asarray(p, dtype)
    theta, out = np.zeros(T, dtype), []
    for t in range(1, len(picks) + 1):
        padded = np.append(picks[:t], [0] * (T - t)).astype(np.int32)
        has = np.arange(T) < t
        out.append(solve(costs, p, padded, has, theta, jnp.ones(len(p), bool) if free is None else free, epsilon))
        if t < len(picks):
            found = np.asarray(out[-1].potentials)[:, picks[t]]
            theta = np.zeros(T, dtype)
            theta[:t], theta[t] = found[:t] - found[-1], 0
    return out


def oracle(costs, p, picks, epsilon):
    """W [K] of the picks and each candidate."""
    sets = np.stack([costs[:, [*picks, i]] for i in range(len(p))])
    return reference.transport_converged(sets, p, np.full(len(picks) + 1, 1 / (len(picks) + 1)), epsilon)[0]


def check(costs, p, picks, epsilon):
    """Values and marginals of a chain, in float32."""
    for t, got in enumerate(chain(costs, p, picks, epsilon), 1):
        assert float(got.marginal_error.max()) <= SOLVED
        np.testing.assert_allclose(got.value, oracle(costs, p, picks[:t], epsilon), atol=1e-5)
        assert int(got.count) == len(p)


def problem(seed, zeros=None):
    """Costs, demand and three picks; every other demand is sharp."""
    rng = np.random.default_rng(seed)
    case = instance(seed, K, zeros=seed % 4 if zeros is None else zeros)
    p = case.p ** (1 + 3 * (seed % 2))
    return as32(1 - case.gram), as32(p / p.sum()), rng.permutation(K)[:T]


@every_epsilon
@given(seed=SEEDS)
def test_values_and_marginals_are_the_oracles(epsilon, seed):
    check(*problem(seed), epsilon)


@pytest.mark.parametrize("epsilon", [0.002, 0.1])
@given(seed=SEEDS)
def test_float64_is_far_more_exact(epsilon, seed):
    costs, p, picks = problem(seed)
    p = p / p.sum()
    with jax.enable_x64(True):
        for t, got in enumerate(chain(costs, p, picks, epsilon, "float64"), 1):
            assert {x.dtype.name for x in got[:3]} == {"float64"}
            assert float(got.marginal_error.max()) < 1e-13
            np.testing.assert_allclose(got.value, oracle(costs, p, picks[:t], epsilon), atol=1e-11)


def test_float32_stays_float32_with_x64_on():
    with jax.enable_x64(True):
        got = chain(*problem(3), 0.01)[-1]
    assert {x.dtype.name for x in got[:3]} == {"float32"}


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_the_oracle_is_where_algorithm_2_ends(epsilon):
    costs, p, picks = problem(5)
    e, p = np.full(T, 1 / T), p / p.sum()
    value, error = reference.sinkhorn(costs[:, picks], p, e, epsilon, 5000)
    assert error < 1e-12
    np.testing.assert_allclose(reference.transport_converged(costs[:, picks], p, e, epsilon)[0], value, atol=1e-11)


@every_epsilon
@given(seed=SEEDS)
def test_the_start_does_not_matter(epsilon, seed):
    costs, p, picks = problem(seed)
    theta = np.random.default_rng(seed).normal(size=T) * 5
    got = solve(*map(jnp.float32, (costs, p)), picks, np.ones(T, bool), jnp.float32(theta), np.ones(K, bool), epsilon)
    assert float(got.marginal_error.max()) <= SOLVED
    np.testing.assert_allclose(got.value, oracle(costs, p, picks, epsilon), atol=1e-5)


@given(SEEDS)
def test_potentials_are_those_of_the_plan(seed):
    """The plan of the potentials pays the value and holds the target in every column."""
    costs, p, picks = problem(seed)
    got = chain(costs, p, picks, 0.1)[-1]
    for i in range(K):
        own = costs[:, [*picks, i]]
        z = np.asarray(got.potentials, float)[:, i] - own / 0.1
        s = np.exp(z - z.max(1, keepdims=True))
        plan = p[:, None] * s / s.sum(1, keepdims=True)
        np.testing.assert_allclose(plan.sum(0), 1 / (T + 1), atol=1e-5)
        np.testing.assert_allclose((plan * own).sum(), got.value[i], atol=1e-5)


# --- candidates that are not solved ----------------------------------------------------------------
GATE = np.linspace(1.0, 0.1, K).astype(np.float32)


def gated(value, at):
    return (0.5 - value) * jnp.asarray(GATE)[at]


def loss(value, at):
    return -value


@pytest.mark.parametrize("epsilon, score", [(0.01, loss), (0.1, gated)], ids=["value", "gated"])
@given(seed=SEEDS)
def test_what_is_discarded_never_wins(epsilon, score, seed):
    costs, p, picks = problem(seed)
    arguments = (*map(jnp.float32, (costs, p)), picks, np.ones(T, bool), np.zeros(T, np.float32), np.ones(K, bool))
    some, whole = (solve(*arguments, epsilon, each) for each in (score, flat))
    solved = np.isfinite(np.asarray(some.value))
    scores = np.asarray(score(whole.value, np.arange(K)))
    assert (scores[~solved] <= scores[solved].max() + 1e-5).all()
    assert int(some.count) == solved.sum()
    assert (np.asarray(some.marginal_error)[~solved] == 0).all()
    np.testing.assert_allclose(np.asarray(some.value)[solved], np.asarray(whole.value)[solved], atol=1e-5)


def test_most_candidates_need_no_solution():
    """On 100 candidates of two clusters no more than a third is solved to the end."""
    case = instance(1, 100)
    costs = jnp.float32(1 - case.gram)
    best = int(np.argmin(case.p @ (1 - case.gram)))
    arguments = (costs, jnp.float32(case.p), np.array([best, 0, 0]), np.arange(T) < 1, np.zeros(T, np.float32))
    got = solve(*arguments, np.ones(100, bool), 0.01, loss)
    assert 1 <= int(got.count) <= 33


def test_only_free_candidates_are_solved():
    costs, p, picks = problem(2)
    free = np.arange(K) % 3 == 0
    got, whole = chain(costs, p, picks, 0.1, free=free)[0], chain(costs, p, picks, 0.1)[0]
    np.testing.assert_array_equal(np.isfinite(got.value), free)
    np.testing.assert_allclose(got.value[free], whole.value[free], atol=1e-6)
    nothing = chain(costs, p, picks[:1], 0.1, free=~np.ones(K, bool))[0]
    assert (int(nothing.count), np.isinf(nothing.value).all(), float(nothing.marginal_error.max())) == (0, True, 0)


@partial(jax.jit, static_argnames="epsilon")
def bounds(costs, p, picks, theta, epsilon):
    problem = semidual._problem(costs, p, picks, jnp.ones(T, bool), theta, epsilon)
    own, lifted = start_potentials(problem.scaled, problem.level, p, problem.target[-1], epsilon)
    return semidual.Start(own, semidual._dual(problem, own, lifted))


@pytest.mark.parametrize("epsilon, dtype", [(0.002, "float32"), (0.1, "float32"), (0.01, "float64")])
@given(seed=SEEDS)
def test_the_bound_is_below_the_value(epsilon, dtype, seed):
    costs, p, picks = problem(seed)
    p = p / p.sum()
    theta = np.random.default_rng(seed).normal(size=T) * 10.0 ** (seed % 3)
    with jax.enable_x64(dtype == "float64"):
        start = bounds(*(jnp.asarray(x, dtype) for x in (costs, p)), picks, jnp.asarray(theta, dtype), epsilon)
        assert np.isfinite(np.asarray(start.theta)).all()
        slack = 4e-6 if dtype == "float32" else 1e-12
        assert (np.asarray(start.dual) <= oracle(costs, p, picks, epsilon) + slack).all()


# --- corners ---------------------------------------------------------------------------------------
@every_epsilon
@pytest.mark.parametrize("seed", range(3))
def test_duplicates_of_a_pick_and_of_each_other(epsilon, seed):
    costs, p, picks = problem(seed)
    twin, other = picks[0], [i for i in range(K) if i not in picks]
    order = np.arange(K)
    order[other[0]], order[other[2]] = twin, other[1]
    costs = costs[order][:, order]
    check(costs, p, picks, epsilon)
    copies = chain(costs, p, [twin, other[0], other[1]], epsilon)[-1]  # a pick that is the copy of another
    np.testing.assert_allclose(copies.value, oracle(costs, p, [twin, other[0], other[1]], epsilon), atol=1e-5)
    np.testing.assert_allclose(copies.value[other[1]], copies.value[other[2]], atol=1e-6)


@every_epsilon
@pytest.mark.parametrize("kind", ["one-hot", "one pick alone", "nearly one-hot", "softmax", "equal"])
def test_extreme_demands(epsilon, kind):
    costs, _, picks = problem(4)
    cold = np.exp(-costs[:, 2] / 0.01)
    p = {
        "one-hot": np.eye(K)[5],
        "one pick alone": np.eye(K)[picks[0]],
        "nearly one-hot": np.where(np.arange(K) == 5, 1, 1e-7),
        "softmax": cold / cold.sum(),
        "equal": np.full(K, 1 / K),
    }[kind]
    check(costs, as32(p / p.sum()), picks, epsilon)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_small_pools(size):
    case = instance(size, size, zeros=0)
    check(as32(1 - case.gram), case.p, np.arange(size), 0.01)


@pytest.mark.parametrize("copies", [2, 9])
def test_all_candidates_are_one(copies):
    check(np.zeros((copies, copies)), as32(np.full(copies, 1 / copies)), [0, 1], 0.01)


@pytest.mark.parametrize("epsilon", [0.002, 0.01])
def test_opposite_clusters(epsilon):
    """No row is between them: the weights that tie their columns together are far below the numbers of float32."""
    sign = np.where(np.arange(K) < K // 2, 1.0, -1.0)
    vectors = np.stack([sign, 0.1 * np.random.default_rng(0).normal(size=K)], 1)
    unit = reference.unit(vectors)
    p = as32(np.append([0.14] * 5, [0.06] * 5))
    check(as32(1 - np.clip(unit @ unit.T, -1, 1)), p, [0, 7, 1], epsilon)


def test_no_demand_at_all_is_not_solved():
    costs, _, picks = problem(1)
    got = chain(costs, np.zeros(K), picks[:2], 0.01)[-1]
    assert float(got.marginal_error.max()) == 0
    assert not np.isnan(got.value).any()


@given(SEEDS)
def test_slots_without_a_pick_change_nothing(seed):
    costs, p, picks = problem(seed)
    costs, p = jnp.float32(costs), jnp.float32(p)
    theta = np.array([0.3, 0, -0.3], np.float32)
    middle = np.array([True, False, True])
    got = solve(costs, p, picks, middle, theta, np.ones(K, bool), 0.1)
    want = solve(costs, p, picks[[0, 2, 0]], np.arange(T) < 2, theta[[0, 2, 1]], np.ones(K, bool), 0.1)
    np.testing.assert_allclose(got.value, want.value, atol=2e-6)
    exact = oracle(np.asarray(costs, float), np.asarray(p, float), picks[[0, 2]], 0.1)
    np.testing.assert_allclose(got.value, exact, atol=1e-5)


@given(SEEDS)
def test_order_of_candidates_does_not_matter(seed):
    costs, p, picks = problem(seed)
    order = np.random.default_rng(seed).permutation(K)
    back = np.argsort(order)
    moved = chain(costs[order][:, order], p[order], back[picks], 0.1)[-1]
    np.testing.assert_allclose(moved.value, chain(costs, p, picks, 0.1)[-1].value[order], atol=3e-6)


@given(SEEDS)
def test_candidates_without_demand_change_nothing(seed):
    costs, p, picks = problem(seed)
    junk = as32(np.random.default_rng(seed).uniform(0, 2, (K + 3, K + 3)))
    junk[:K, :K] = costs
    padded = chain((junk + junk.T) / 2, np.append(p, [0, 0, 0]), picks, 0.1)[-1]
    np.testing.assert_allclose(padded.value[:K], chain(costs, p, picks, 0.1)[-1].value, atol=3e-6)


def test_vmap_is_the_loop():
    cases = [problem(seed) for seed in range(4)]
    costs, p, picks = (np.stack(x) for x in zip(*cases, strict=True))
    costs, p = jnp.float32(costs), jnp.float32(p)
    rest = (np.ones(T, bool), np.zeros(T, np.float32), np.ones(K, bool))
    batch = jax.vmap(lambda c, q, s: solve(c, q, s, *rest, 0.1, loss))(costs, p, picks)
    for b in range(4):
        one = solve(costs[b], p[b], picks[b], *rest, 0.1, loss)
        np.testing.assert_allclose(batch.value[b], one.value, atol=2e-6)
        assert int(batch.count[b]) == int(one.count)


def test_a_solution_cut_short_says_so(monkeypatch):
    """Two steps do not do: the error that is reported is the real one of the potentials that are returned."""
    monkeypatch.setattr(semidual, "STEPS", 2)
    costs, p, picks = problem(6)
    arguments = map(jnp.asarray, (np.float32(costs), np.float32(p), picks, np.ones(T, bool), np.zeros(T, np.float32)))
    got = semidual.solve_with_each(*arguments, 0.02, flat, jnp.ones(K, bool))
    assert float(got.marginal_error.max()) > 1e-3
    for i in range(K):
        z = np.asarray(got.potentials, float)[:, i] - costs[:, [*picks, i]] / 0.02
        s = np.exp(z - z.max(1, keepdims=True))
        s /= s.sum(1, keepdims=True)
        np.testing.assert_allclose(np.abs(p @ s - 1 / (T + 1)).sum(), got.marginal_error[i], atol=1e-4)
        np.testing.assert_allclose((p[:, None] * s * costs[:, [*picks, i]]).sum(), got.value[i], atol=1e-4)


# --- elimination -----------------------------------------------------------------------------------
laplacian = jax.jit(laplacian_kernel.solve_laplacian)


def graphs(seed, t, least, n=6):
    """Weights [t, t, n] between 10^-least and 1 and right-hand sides [t, n] of potentials that are known."""
    rng = np.random.default_rng(seed)
    weights = 10.0 ** rng.uniform(-least, 0, (t, t, n))
    weights = as32(np.triu(np.ones((t, t)), 1)[:, :, None] * weights)
    weights = weights + weights.transpose(1, 0, 2)
    x = rng.normal(size=(t, n))
    return weights, x - x[-1]


def applied(weights, x):
    return (weights * (x[:, None] - x[None])).sum(1)


@pytest.mark.parametrize("t", [1, 2, 5, 8, 9, 20])
@given(seed=SEEDS)
def test_laplacian_systems(t, seed):
    weights, x = graphs(seed, t, 2)
    got = np.asarray(laplacian(jnp.float32(weights), jnp.float32(applied(weights, x))), float)
    assert (got[-1] == 0).all()
    np.testing.assert_allclose(got, x, atol=1e-4)


@pytest.mark.parametrize("t", [2, 5, 9])
@given(seed=SEEDS)
def test_nearly_disconnected_graphs_are_solved_as_well(t, seed):
    """A path whose links are anything from 1e-30 to 1: each carries the mass to one side of it, whatever its weight."""
    rng = np.random.default_rng(seed)
    links = as32(10.0 ** rng.uniform(-30, 0, t - 1))
    weights = np.zeros((t, t, 1))
    weights[range(t - 1), range(1, t), 0] = weights[range(1, t), range(t - 1), 0] = links
    b = rng.normal(size=t)
    b[-1] -= b.sum()
    drops = np.cumsum(b)[:-1] / links
    want = np.append(np.cumsum(drops[::-1])[::-1], 0)
    order = rng.permutation(t - 1)
    order = np.append(order, t - 1)  # the last column stays: it is the one that is held at 0
    got = laplacian(jnp.float32(weights[order][:, order]), jnp.float32(b[order])[:, None])[:, 0]
    scale = np.abs(drops).max()
    np.testing.assert_allclose(np.asarray(got, float) / scale, want[order] / scale, atol=1e-4)


@pytest.mark.parametrize("t, empty", [(5, 2), (5, 0), (9, 4), (20, 7)])
def test_a_column_without_weights_stays_and_changes_nothing(t, empty):
    weights, x = graphs(t, t, 2)
    weights[empty] = weights[:, empty] = 0
    b = applied(weights, x)
    got = np.asarray(laplacian(jnp.float32(weights), jnp.float32(b)))
    x[empty] = 0
    np.testing.assert_allclose(got, x, atol=1e-4)


@pytest.mark.parametrize("t", [2, 5, 8])
def test_written_out_is_the_loop(t, monkeypatch):
    weights, x = graphs(t, t, 2)
    arguments = jnp.float32(weights), jnp.float32(applied(weights, x))
    written = laplacian_kernel.solve_laplacian(*arguments)
    monkeypatch.setattr(laplacian_kernel, "UNROLLED", 0)
    np.testing.assert_allclose(laplacian_kernel.solve_laplacian(*arguments), written, atol=1e-5)
