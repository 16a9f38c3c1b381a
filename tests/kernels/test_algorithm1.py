"""Algorithm 1 over both solvers: what must hold for either, and each against its float64 oracle."""

import jax
import jax.numpy as jnp
import make_goldens
import numpy as np
import pytest
import reference
from greedy_runs import ALL, PICKS, TRANSPORT, K, arrays, transport
from hypothesis import given
from hypothesis import strategies as st
from instances import as32, instance

from georag_jax.kernels import greedy_sinkhorn, sinkhorn

SEEDS = st.integers(0, 10**6)
every = pytest.mark.parametrize("name", TRANSPORT)
every_solver = pytest.mark.parametrize("solver", ["converged", "algorithm2"])


@given(SEEDS)
def test_the_papers_iterations_are_the_oracles(close, seed):
    case = instance(seed, K)
    toward = case.candidates @ case.query
    S, scores, margins = reference.georag_trace(case.gram, toward, case.p, PICKS)
    literal, literal_scores = reference.georag(case.gram, toward, case.p, PICKS)
    assert literal == S or min(margins) < 1e-9
    got = TRANSPORT["algorithm2"](*arrays(case), ALL, S[0])
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
    got = TRANSPORT[name](*arrays(case), ALL)
    toward = case.p @ case.gram
    assert toward[got.indices[0]] >= toward.max() - 2e-6


@every
@given(seed=SEEDS)
def test_forced_first_pick(close, name, seed):
    case, forced = instance(seed, K), seed % K
    got = TRANSPORT[name](*arrays(case), ALL, forced)
    assert int(got.indices[0]) == forced
    close(got.gains[0], case.p @ case.gram[:, forced])
    assert len(set(got.indices.tolist())) == PICKS


@every
def test_nan_spoils_what_it_reaches_and_is_never_selected(name):
    """A cost without a number reaches every transport problem: after the first pick there is none."""
    G, p = arrays(instance(2, K))
    got = TRANSPORT[name](G.at[:, 4].set(jnp.nan).at[4].set(jnp.nan), p, ALL, 0)
    assert got.indices.tolist() == [0, -1, -1, -1]


@every
def test_no_demand_at_all(name):
    G, _ = arrays(instance(2, K))
    got = TRANSPORT[name](G, jnp.zeros(K), ALL)
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
