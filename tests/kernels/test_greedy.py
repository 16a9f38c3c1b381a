import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import as32, instance

from georag_jax.kernels import (
    greedy_entropic_facility_location,
    greedy_facility_location,
    greedy_sinkhorn,
    sinkhorn,
)

K, PICKS = 10, 4
SEEDS = st.integers(0, 10**6)
ALL = jnp.ones(K, bool)
facility = jax.jit(greedy_facility_location, static_argnames=("k", "discount", "power"))
entropic = jax.jit(greedy_entropic_facility_location, static_argnames=("k", "epsilon"))
transport = jax.jit(greedy_sinkhorn, static_argnames=("k", "gate", "gate_losses"))
RUNS = {  # similarity, weight, mask, first -> Greedy
    "facility": lambda G, p, mask, first=-1: facility(G, p, mask, PICKS, first=first),
    "discounted": lambda G, p, mask, first=-1: facility(G, p, mask, PICKS, 0.3, 4.0, first=first),
    "modular": lambda G, p, mask, first=-1: facility(G, p, mask, PICKS, 1.0, first=first),
    "entropic": lambda G, p, mask, first=-1: entropic(G, p, mask, PICKS, 0.05, first=first),
    "sinkhorn": lambda G, p, mask, first=-1: transport(G, p, mask, PICKS, first=first),
    "ungated": lambda G, p, mask, first=-1: transport(G, p, mask, PICKS, gate=False, first=first),
}
VALUES = {
    "facility": reference.facility_location,
    "discounted": lambda G, p, S: reference.discounted_facility_location(G, p, S, 0.3, 4),
    "modular": lambda G, p, S: reference.discounted_facility_location(G, p, S, 1.0),
    "entropic": lambda G, p, S: reference.entropic_facility_location(G, p, S, 0.05),
}
every = pytest.mark.parametrize("name", RUNS)
with_value = pytest.mark.parametrize("name", VALUES)


def arrays(case):
    return jnp.float32(case.gram), jnp.float32(case.p)


@with_value
@given(seed=SEEDS)
def test_picks_and_gains_are_the_oracles(close, name, seed):
    case = instance(seed, K)
    F = lambda S: VALUES[name](case.gram, case.p, S)
    got = RUNS[name](*arrays(case), ALL)
    S = got.indices.tolist()
    close(got.gains, [F(S[: t + 1]) - F(S[:t]) for t in range(PICKS)])
    close(got.gains.sum(), F(S))
    for t in range(PICKS):  # the oracle's choice from the same prefix, up to rounding
        gains = [F([*S[:t], i]) - F(S[:t]) for i in range(K) if i not in S[:t]]
        assert F(S[: t + 1]) - F(S[:t]) >= max(gains) - 2e-6
    assert float(got.marginal_error) == 0


@with_value
@given(seed=SEEDS)
def test_no_less_than_1_minus_1_over_e_of_the_best_set(name, seed):
    case = instance(seed, K, zeros=3)
    F = lambda S: VALUES[name](case.gram, case.p, S)
    best = F(reference.best_set(F, K, PICKS))
    assert F(RUNS[name](*arrays(case), ALL).indices.tolist()) >= (1 - 1 / np.e) * best - 1e-6


@given(SEEDS)
def test_algorithm_1_is_the_oracles(close, seed):
    case = instance(seed, K)
    toward = case.candidates @ case.query
    S, scores, margins = reference.georag_trace(case.gram, toward, case.p, PICKS)
    literal, literal_scores = reference.georag(case.gram, toward, case.p, PICKS)
    assert literal == S or min(margins) < 1e-9
    got = RUNS["sinkhorn"](*arrays(case), ALL, S[0])
    same = PICKS if min(margins) > 1e-5 else int(np.argmax(np.array(margins) < 1e-5))
    assert got.indices.tolist()[:same] == S[:same]
    close(got.gains[:same], scores[:same], "transport")


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("losses", [True, False])
@given(seed=SEEDS)
def test_score_of_each_pick(gate, losses, seed):
    """gate x Delta W from the transport kernel, in float64; with ``gate_losses`` off a loss stays whole."""
    case = instance(seed, K)
    with jax.enable_x64(True):
        p = case.p / case.p.sum()
        got = transport(jnp.float64(case.gram), jnp.float64(p), ALL, PICKS, gate=gate, gate_losses=losses)
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


@given(SEEDS)
def test_first_pick_without_a_cold_start_is_the_medoid(seed):
    case = instance(seed, K)
    got = RUNS["sinkhorn"](*arrays(case), ALL)
    toward = case.p @ case.gram
    assert toward[got.indices[0]] >= toward.max() - 2e-6


@every
@given(seed=SEEDS)
def test_forced_first_pick(close, name, seed):
    case, forced = instance(seed, K), seed % K
    got = RUNS[name](*arrays(case), ALL, forced)
    assert int(got.indices[0]) == forced
    want = case.p @ case.gram[:, forced] if name not in VALUES else VALUES[name](case.gram, case.p, [forced])
    close(got.gains[0], want)
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
def test_padding_changes_nothing(name, seed):
    """Masked candidates without demand may hold any similarity."""
    case, rng = instance(seed, K - 3), np.random.default_rng(seed)
    G = as32(rng.uniform(-1, 1, (K, K)))
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
def test_nan_is_never_selected(name):
    case = instance(2, K)
    G, p = arrays(case)
    got = RUNS[name](G.at[:, 4].set(jnp.nan), p, ALL)
    assert 4 not in got.indices.tolist()
    assert len(set(got.indices.tolist())) == PICKS


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


def test_error_is_zero_where_it_cannot_be_otherwise():
    """One pick needs no transport; two identical candidates of equal demand converge at once."""
    one = transport(jnp.ones((3, 3)), jnp.full(3, 1 / 3), jnp.ones(3, bool), 1)
    assert float(one.marginal_error) == 0
    equal = sinkhorn(jnp.zeros((2, 2)), jnp.full(2, 0.5), jnp.full(2, 0.5))
    assert float(equal.marginal_error) < 1e-6


@pytest.mark.parametrize("objective", ["facility", "sinkhorn"])
def test_the_program_does_not_grow_with_k(objective):
    """Thirty-two picks are compiled from at most a handful of loop bodies more than sixteen."""
    gram, p, mask = jnp.eye(40), jnp.full(40, 1 / 40), jnp.ones(40, bool)
    call = {
        "facility": lambda k: greedy_facility_location(gram, p, mask, k, discount=0.3),
        "sinkhorn": lambda k: greedy_sinkhorn(gram, p, mask, k, iterations=3),
    }[objective]
    size = lambda k: len(str(jax.make_jaxpr(lambda: call(k))()))
    assert size(32) < 1.3 * size(16)


@pytest.mark.parametrize("k", [12, 20])
def test_many_picks_are_algorithm_1(k):
    """Beyond eight picks problems are padded with columns without mass: the picks stay the oracle's."""
    rng = np.random.default_rng(k)
    vectors = rng.normal(size=(24, 6)) + 0.5
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    gram, p = vectors @ vectors.T, rng.dirichlet(np.ones(24))
    picks, scores = reference.georag(gram, gram[3], p, k=k, eps=0.1, iters=20)
    arrays = [jnp.asarray(x, jnp.float32) for x in (gram, p)]
    found = greedy_sinkhorn(*arrays, jnp.ones(24, bool), k, epsilon=0.1, iterations=20, first=picks[0])
    np.testing.assert_allclose(found.gains, scores, atol=3e-5)
    assert found.indices.tolist() == picks
