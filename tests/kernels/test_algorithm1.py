"""Algorithm 1 over both solvers: what must hold for either, and each against its float64 oracle."""

import jax
import jax.numpy as jnp
import make_goldens
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import as32, instance

from georag_jax.kernels import greedy_sinkhorn, sinkhorn

K, PICKS = 10, 4
SEEDS = st.integers(0, 10**6)
ALL = jnp.ones(K, bool)
STATIC = ("k", "epsilon", "solver", "iterations", "gate", "gate_losses")
transport = jax.jit(greedy_sinkhorn, static_argnames=STATIC)
RUNS = {  # similarity, demand, mask, first -> Greedy
    "converged": lambda G, p, mask, first=-1: transport(G, p, mask, PICKS, first=first),
    "algorithm2": lambda G, p, mask, first=-1: transport(G, p, mask, PICKS, solver="algorithm2", first=first),
    "ungated": lambda G, p, mask, first=-1: transport(G, p, mask, PICKS, gate=False, first=first),
}
every = pytest.mark.parametrize("name", RUNS)
every_solver = pytest.mark.parametrize("solver", ["converged", "algorithm2"])


def arrays(case):
    return jnp.float32(case.gram), jnp.float32(case.p)


@given(SEEDS)
def test_the_papers_iterations_are_the_oracles(close, seed):
    case = instance(seed, K)
    toward = case.candidates @ case.query
    S, scores, margins = reference.georag_trace(case.gram, toward, case.p, PICKS)
    literal, literal_scores = reference.georag(case.gram, toward, case.p, PICKS)
    assert literal == S or min(margins) < 1e-9
    got = RUNS["algorithm2"](*arrays(case), ALL, S[0])
    same = PICKS if min(margins) > 1e-5 else int(np.argmax(np.array(margins) < 1e-5))
    assert got.indices.tolist()[:same] == S[:same]
    close(got.gains[:same], scores[:same], "transport")


@pytest.mark.parametrize("epsilon, gate, gate_losses", [(0.01, True, True), (0.1, True, False), (0.1, False, True)])
@given(seed=SEEDS)
def test_converged_picks_are_the_oracles(epsilon, gate, gate_losses, seed):
    case, forced = instance(seed, K), seed % K
    first = None if seed % 2 else forced
    p = case.p / case.p.sum()
    S, scores, margins = reference.georag_converged(case.gram, first, p, PICKS, epsilon, gate, gate_losses)
    start = S[0] if first is None else forced
    got = transport(*arrays(case), ALL, PICKS, epsilon, gate=gate, gate_losses=gate_losses, first=start)
    same = PICKS if min(margins) > 1e-5 else int(np.argmax(np.array(margins) < 1e-5))
    assert got.indices.tolist()[:same] == S[:same]
    np.testing.assert_allclose(got.gains[:same], scores[:same], atol=1e-5)
    assert float(got.marginal_error) <= 3e-6


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("losses", [True, False])
@given(seed=SEEDS)
def test_score_of_each_pick(gate, losses, seed):
    """gate x Delta W from the paper's iterations, in float64; with ``gate_losses`` off a loss stays whole."""
    case = instance(seed, K)
    with jax.enable_x64(True):
        p = case.p / case.p.sum()
        got = transport(
            jnp.float64(case.gram), jnp.float64(p), ALL, PICKS, solver="algorithm2", gate=gate, gate_losses=losses
        )
        W = lambda *sets: reference.sinkhorn(
            np.stack([1 - case.gram[:, S] for S in sets]), p, np.full(len(sets[0]), 1 / len(sets[0]))
        )
        S, worst = got.indices.tolist(), 0.0
        assert got.indices.dtype == jnp.int32
        assert {got.gains.dtype, got.marginal_error.dtype} == {jnp.dtype("float64")}
        np.testing.assert_allclose(got.gains[0], 1 - W(S[:1])[0][0], rtol=1e-9)
        for t in range(1, PICKS):
            rest = [i for i in range(K) if i not in S[:t]]
            solved, errors = W(*([*S[:t], i] for i in rest))
            worst, loss = max(worst, errors.max()), W(S[:t])[0][0] - solved
            closed = 1 - case.gram[np.ix_(rest, S[:t])].max(1) if gate else np.ones(len(rest))
            score = loss * (closed if losses else np.where(loss < 0, 1, closed))
            np.testing.assert_allclose(got.gains[t], score.max(), rtol=1e-7, atol=1e-12)
            assert score[rest.index(S[t])] >= score.max() - 1e-9
        np.testing.assert_allclose(got.marginal_error, worst, rtol=1e-6, atol=1e-12)


@every
@given(seed=SEEDS)
def test_first_pick_without_a_cold_start_is_the_medoid(name, seed):
    case = instance(seed, K)
    got = RUNS[name](*arrays(case), ALL)
    toward = case.p @ case.gram
    assert toward[got.indices[0]] >= toward.max() - 2e-6


@every
@given(seed=SEEDS)
def test_forced_first_pick(close, name, seed):
    case, forced = instance(seed, K), seed % K
    got = RUNS[name](*arrays(case), ALL, forced)
    assert int(got.indices[0]) == forced
    close(got.gains[0], case.p @ case.gram[:, forced])
    assert len(set(got.indices.tolist())) == PICKS


@every
def test_forced_pick_must_be_free(name):
    case = instance(4, K)
    mask = ALL.at[3].set(False)
    forced, free = (RUNS[name](*arrays(case), mask, first) for first in (3, -1))
    np.testing.assert_array_equal(forced.indices, free.indices)
    assert 3 not in free.indices


@every
@given(seed=SEEDS)
def test_padding_of_the_pool_changes_nothing(name, seed):
    """Masked candidates without demand may hold any similarity."""
    case, rng = instance(seed, K - 3), np.random.default_rng(seed)
    G = as32(rng.uniform(-1, 1, (K, K)))
    G = (G + G.T) / 2
    G[: K - 3, : K - 3] = case.gram
    padded = RUNS[name](jnp.float32(G), jnp.float32([*case.p, 0, 0, 0]), jnp.arange(K) < K - 3)
    alone = RUNS[name](*arrays(case), jnp.ones(K - 3, bool))
    np.testing.assert_array_equal(padded.indices, alone.indices)
    np.testing.assert_allclose(padded.gains, alone.gains, atol=2e-5)


@every
@given(seed=SEEDS)
def test_order_of_candidates_does_not_matter(name, seed):
    case, order = instance(seed, K), np.random.default_rng(seed).permutation(K)
    G, p = arrays(case)
    moved = RUNS[name](G[order][:, order], p[order], ALL)
    back = order[np.asarray(moved.indices)]
    kept = RUNS[name](G, p, ALL)
    gap = np.abs(np.asarray(moved.gains) - np.asarray(kept.gains)).max()
    assert back.tolist() == kept.indices.tolist() or gap < 1e-5


@every
def test_exact_copies_tie_to_the_lowest_index(name):
    case = instance(8, K)
    for original in range(K // 2):
        G, p = np.tile(case.gram[:5, :5], (2, 2)), np.tile(case.p[:5] + 0.1, 2)
        got = RUNS[name](jnp.float32(G), jnp.float32(p / p.sum()), ALL, original)
        seen = set()
        for pick in got.indices.tolist():
            assert pick < 5 or pick - 5 in seen, got.indices
            seen.add(pick)


@every
def test_all_equal_candidates_come_in_order(name):
    got = RUNS[name](jnp.full((K, K), 0.5), jnp.full(K, 1 / K), ALL)
    assert got.indices.tolist() == [0, 1, 2, 3]


@every
def test_pool_smaller_than_k(name):
    case = instance(6, K)
    got = RUNS[name](*arrays(case), jnp.arange(K) < 2)
    assert sorted(got.indices[:2].tolist()) == [0, 1]
    assert (got.indices[2:].tolist(), got.gains[2:].tolist()) == ([-1, -1], [0, 0])
    nothing = RUNS[name](*arrays(case), ~ALL)
    assert (nothing.indices.tolist(), nothing.gains.tolist()) == ([-1] * PICKS, [0] * PICKS)
    assert float(nothing.marginal_error) == 0


@every
@pytest.mark.parametrize("size", [0, 1])
def test_sizes_zero_and_one(name, size):
    got = RUNS[name](jnp.ones((size, size)), jnp.ones(size), jnp.ones(size, bool))
    assert got.indices.tolist() == [*range(size), *[-1] * (PICKS - size)]
    np.testing.assert_allclose(got.gains, [*[1.0] * size, *[0.0] * (PICKS - size)], rtol=1e-6)


@every
def test_under_the_callers_jit_and_vmap(name):
    cases = [instance(seed, K) for seed in range(3)]
    G, p = (jnp.stack(x) for x in zip(*map(arrays, cases), strict=True))
    batch = jax.jit(jax.vmap(RUNS[name]))(G, p, jnp.stack([ALL] * 3), jnp.array([-1, 2, 5]))
    for b, first in enumerate([-1, 2, 5]):
        one = RUNS[name](G[b], p[b], ALL, first)
        np.testing.assert_array_equal(batch.indices[b], one.indices)
        np.testing.assert_allclose(batch.gains[b], one.gains, atol=2e-5)


@every
def test_jit_is_eager(name):
    G, p, mask = *arrays(instance(7, 5)), jnp.ones(5, bool)
    with jax.disable_jit():
        got = RUNS[name](G, p, mask)
    want = RUNS[name](G, p, mask)
    np.testing.assert_array_equal(got.indices, want.indices)
    np.testing.assert_allclose(got.gains, want.gains, atol=2e-5)


@every
def test_nan_spoils_what_it_reaches_and_is_never_selected(name):
    """A cost without a number reaches every transport problem: after the first pick there is none."""
    G, p = arrays(instance(2, K))
    got = RUNS[name](G.at[:, 4].set(jnp.nan).at[4].set(jnp.nan), p, ALL, 0)
    assert got.indices.tolist() == [0, -1, -1, -1]


@every
def test_no_demand_at_all(name):
    G, _ = arrays(instance(2, K))
    got = RUNS[name](G, jnp.zeros(K), ALL)
    assert len(set(got.indices.tolist())) == PICKS
    assert float(got.marginal_error) == 0


def test_error_is_zero_where_it_cannot_be_otherwise():
    """One pick needs no transport; two identical candidates of equal demand converge at once."""
    one = transport(jnp.ones((3, 3)), jnp.full(3, 1 / 3), jnp.ones(3, bool), 1)
    assert float(one.marginal_error) == 0
    equal = sinkhorn(jnp.zeros((2, 2)), jnp.full(2, 0.5), jnp.full(2, 0.5))
    assert float(equal.marginal_error) < 1e-6


@every_solver
def test_the_program_does_not_grow_with_the_picks(solver):
    """Thirty-two picks are compiled from at most one width of problems more than sixteen."""
    gram, p, mask = jnp.eye(40), jnp.full(40, 1 / 40), jnp.ones(40, bool)
    call = lambda k: greedy_sinkhorn(gram, p, mask, k, solver=solver, iterations=3)
    size = lambda k: len(str(jax.make_jaxpr(lambda: call(k))()))
    assert size(32) < 1.6 * size(16)


def test_a_second_call_compiles_nothing():
    for solver in ("converged", "algorithm2"):
        transport(*arrays(instance(1, K)), ALL, PICKS, solver=solver, first=1)
    before = transport._cache_size()
    for solver in ("converged", "algorithm2"):
        transport(*arrays(instance(2, K)), ALL.at[0].set(False), PICKS, solver=solver, first=2)
    assert transport._cache_size() == before


def test_many_picks_are_algorithm_1():
    """Beyond eight picks problems are padded with columns without mass: the picks stay the oracle's."""
    k = 12
    rng = np.random.default_rng(k)
    vectors = rng.normal(size=(24, 6)) + 0.5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    gram, p = vectors @ vectors.T, rng.dirichlet(np.ones(24))
    picks, scores = reference.georag(gram, gram[3], p, k=k, eps=0.1, iters=20)
    arrays = [jnp.asarray(x, jnp.float32) for x in (gram, p)]
    found = greedy_sinkhorn(
        *arrays, jnp.ones(24, bool), k, epsilon=0.1, solver="algorithm2", iterations=20, first=picks[0]
    )
    np.testing.assert_allclose(found.gains, scores, atol=3e-5)
    assert found.indices.tolist() == picks


@pytest.mark.parametrize("k", [12, 20])
def test_many_picks_are_the_converged_ones(k):
    rng = np.random.default_rng(k)
    vectors = reference.unit(rng.normal(size=(24, 6)) + 0.5)
    gram, p = as32(vectors @ vectors.T), as32(rng.dirichlet(np.ones(24)))
    picks, scores, margins = reference.georag_converged(gram, 3, p / p.sum(), k, 0.1)
    found = transport(jnp.float32(gram), jnp.float32(p), jnp.ones(24, bool), k, epsilon=0.1, first=3)
    same = k if min(margins) > 1e-5 else int(np.argmax(np.array(margins) < 1e-5))
    assert found.indices.tolist()[:same] == picks[:same]
    np.testing.assert_allclose(found.gains[:same], scores[:same], atol=1e-5)
    assert float(found.marginal_error) <= 3e-6


@pytest.mark.realdata
@pytest.mark.parametrize("name", make_goldens.SETS)
def test_converged_picks_of_real_pools_are_the_oracles(name, shared):
    """At full width; the paper's demand and the softmax of the default, turn about."""
    pools = make_goldens.full_width(name, 12, shared)
    for b in range(12):
        candidates, query, subqueries, lists = pools.row(b)
        E = reference.unit(candidates.astype(float))
        gram = as32(np.clip(E @ E.T, -1, 1))
        p, _ = reference.paper_demand(candidates, query, subqueries, lists, range(len(E)))
        if b % 2:
            p = reference.likelihood(
                E, reference.unit(subqueries.astype(float)), np.full(len(subqueries), 1 / 12), 0.04
            )
        p = as32(p / p.sum())
        first, losses = int(np.argmax(E @ reference.unit(query.astype(float)))), b % 2 == 0
        S, scores, margins = reference.georag_converged(gram, first, p / p.sum(), 5, gate_losses=losses)
        got = transport(jnp.float32(gram), jnp.float32(p), jnp.ones(len(p), bool), 5, gate_losses=losses, first=first)
        same = 5 if min(margins) > 1e-5 else int(np.argmax(np.array(margins) < 1e-5))
        assert got.indices.tolist()[:same] == S[:same]
        np.testing.assert_allclose(got.gains[:same], scores[:same], atol=1e-5)
        assert float(got.marginal_error) <= 3e-6
