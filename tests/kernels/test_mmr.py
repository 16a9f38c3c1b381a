"""Relevance alone and maximal marginal relevance against their literal definitions in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from instances import instance

from georag_jax.kernels import greedy_mmr, top_relevance

K, PICKS = 10, 4
SEEDS = st.integers(0, 10**6)
WEIGHTS = [0.0, 0.5, 1.0]
ALL = jnp.ones(K, bool)
mmr = jax.jit(greedy_mmr, static_argnames=("k", "relevance_weight"))
top = jax.jit(top_relevance, static_argnames="k")
every = pytest.mark.parametrize("weight", WEIGHTS)


def literal_scores(E, r, S, weight):
    """Score of each candidate after the picks S."""
    if not S:
        return weight * r
    return weight * r - (1 - weight) * np.array([max(E[i] @ E[j] for j in S) for i in range(len(E))])


def literal(E, r, k, weight):
    S = [int(np.argmax(r))]
    while len(S) < min(k, len(E)):
        score = literal_scores(E, r, S, weight)
        S.append(max(set(range(len(E))) - set(S), key=lambda i: (score[i], -i)))
    return S


def arrays(case):
    return jnp.float32(case.candidates), jnp.float32(case.candidates @ case.query)


@every
@given(seed=SEEDS)
def test_picks_and_gains_are_the_oracles(close, weight, seed):
    case = instance(seed, K)
    E, r = case.candidates, case.candidates @ case.query
    got = mmr(*arrays(case), ALL, PICKS, weight)
    S = got.indices.tolist()
    assert len(set(S)) == PICKS
    assert r[S[0]] >= r.max() - 2e-6  # the most relevant, whatever the weight
    close(got.gains[0], weight * r[S[0]])
    for t in range(1, PICKS):
        score = literal_scores(E, r, S[:t], weight)
        close(got.gains[t], score[S[t]])
        assert score[S[t]] >= max(score[i] for i in range(K) if i not in S[:t]) - 2e-6
    assert float(got.marginal_error) == 0


@every
@given(seed=SEEDS)
def test_float64_is_the_oracle(weight, seed):
    case = instance(seed, K)
    r = case.candidates @ case.query
    with jax.enable_x64(True):
        got = mmr(jnp.float64(case.candidates), jnp.float64(r), ALL, K, weight)
        assert got.indices.tolist() == literal(case.candidates, r, K, weight)
        assert {got.gains.dtype, got.marginal_error.dtype} == {jnp.dtype("float64")}
        assert got.indices.dtype == jnp.int32


@given(SEEDS)
def test_later_gains_never_rise(seed):
    gains = np.asarray(mmr(*arrays(instance(seed, K)), ALL, K, 0.5).gains)
    assert (np.diff(gains[1:]) <= 1e-6).all()


@given(SEEDS)
def test_weight_one_is_relevance(seed):
    case = instance(seed, K)
    E, r = arrays(case)
    got, want = mmr(E, r, ALL, PICKS, 1.0), top(r, ALL, PICKS)
    np.testing.assert_array_equal(got.indices, want.indices)
    np.testing.assert_array_equal(got.gains, want.gains)
    order = np.argsort(-np.asarray(r), kind="stable")[:PICKS]
    np.testing.assert_allclose(want.gains, r[order], atol=1e-6)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_relevance_of_any_size(scale):
    """Reciprocal ranks and logits differ from cosines in size: a tie is relative to the best."""
    r = jnp.float32(np.array([-3, 0.5, 1, 0.999, -1e9]) * scale)
    assert top(r, ALL[:5], 5).indices.tolist() == [2, 3, 1, 0, 4]
    assert mmr(jnp.eye(5), r, ALL[:5], 5, 1.0).indices.tolist() == [2, 3, 1, 0, 4]


def test_the_nearest_of_all_picks_counts():
    """A copy of the first pick stays away after a second, unlike pick; the last pick alone would let it in."""
    E = jnp.float32([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]])
    assert mmr(E, jnp.float32([0.9, 0.8, 0.9, 0.1]), ALL[:4], 4, 0.5).indices.tolist() == [0, 1, 3, 2]


def test_a_negative_cosine_adds():
    got = mmr(jnp.float32([[1, 0], [-1, 0], [0, 1]]), jnp.float32([0.9, 0.1, 0.2]), ALL[:3], 2, 0.5)
    assert got.indices.tolist() == [0, 1]
    np.testing.assert_allclose(got.gains, [0.45, 0.55], rtol=1e-6)


@every
def test_a_zero_row_resembles_nothing(weight):
    E, r = jnp.float32([[1, 0], [0, 0], [0.6, 0.8]]), jnp.float32([0.9, 0.0, 0.5])
    got = mmr(E, r, ALL[:3], 3, weight)
    assert got.indices.tolist() == ([0, 2, 1] if weight == 1 else [0, 1, 2])
    assert np.isfinite(got.gains).all()


@every
@given(seed=SEEDS)
def test_padding_changes_nothing(weight, seed):
    """Masked candidates may hold any vector and any relevance."""
    case, rng = instance(seed, K - 3), np.random.default_rng(seed)
    E, r = arrays(case)
    padded = jnp.concatenate([E, jnp.float32(rng.normal(size=(3, 5)))]), jnp.append(r, jnp.full(3, 9.0))
    got, want = mmr(*padded, jnp.arange(K) < K - 3, K, weight), mmr(E, r, ALL[3:], K, weight)
    np.testing.assert_array_equal(got.indices, want.indices)
    np.testing.assert_allclose(got.gains, want.gains, atol=2e-6)
    assert got.indices.tolist()[K - 3 :] == [-1] * 3


@every
@given(seed=SEEDS)
def test_order_of_candidates_does_not_matter(weight, seed):
    case, order = instance(seed, K), np.random.default_rng(seed).permutation(K)
    E, r = arrays(case)
    moved, kept = mmr(E[order], r[order], ALL, PICKS, weight), mmr(E, r, ALL, PICKS, weight)
    np.testing.assert_array_equal(order[np.asarray(moved.indices)], kept.indices)
    np.testing.assert_allclose(moved.gains, kept.gains, atol=2e-6)


@every
@given(seed=SEEDS)
def test_copies_tie_to_the_lowest_index(weight, seed):
    case = instance(seed, 5)
    E, r = (jnp.concatenate([x, x]) for x in arrays(case))
    got = mmr(E, r * (1 + 1e-7 * (jnp.arange(K) >= 5)), ALL, K, weight).indices.tolist()
    assert sorted(got) == [*range(K)]
    assert all(got.index(i) < got.index(i + 5) for i in range(5))


@every
def test_all_equal_candidates_come_in_order(weight):
    row = jnp.full((K, 3), 3**-0.5)
    assert mmr(row, jnp.full(K, 0.7), ALL, PICKS, weight).indices.tolist() == [0, 1, 2, 3]
    assert top(jnp.full(K, 0.7), ALL, PICKS).indices.tolist() == [0, 1, 2, 3]


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_never_selected(weight, bad):
    E, r = arrays(instance(2, K))
    best, other = int(jnp.argmax(r)), int(jnp.argmin(r))
    got = mmr(E.at[best, 1].set(bad), r.at[other].set(bad), ALL, K, weight)
    assert sorted(got.indices.tolist()) == [-1, -1, *sorted({*range(K)} - {best, other})]
    assert np.isfinite(got.gains).all()
    assert other not in top(r.at[other].set(bad), ALL, K).indices.tolist()


@every
def test_pool_smaller_than_k(weight):
    E, r = arrays(instance(6, K))
    got = mmr(E, r, jnp.arange(K) < 2, PICKS, weight)
    assert sorted(got.indices[:2].tolist()) == [0, 1]
    assert (got.indices[2:].tolist(), got.gains[2:].tolist()) == ([-1, -1], [0, 0])
    for nothing in (mmr(E, r, ~ALL, PICKS, weight), top(r, ~ALL, PICKS)):
        assert (nothing.indices.tolist(), nothing.gains.tolist()) == ([-1] * PICKS, [0] * PICKS)


@every
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("k", [0, 1, 3])
def test_sizes_zero_and_one(weight, size, k):
    arguments = jnp.full(size, 0.5), jnp.ones(size, bool), k
    for got, gain in ((mmr(jnp.ones((size, 1)), *arguments, weight), 0.5 * weight), (top(*arguments), 0.5)):
        picked = min(size, k)
        assert got.indices.tolist() == [*[0] * picked, *[-1] * (k - picked)]
        np.testing.assert_allclose(got.gains, [*[gain] * picked, *[0.0] * (k - picked)], rtol=1e-6)
        assert got.marginal_error.shape == ()


@every
def test_one_pick_is_the_most_relevant(weight):
    E, r = arrays(instance(3, K))
    assert mmr(E, r, ALL, 1, weight).indices.tolist() == [int(jnp.argmax(r))]


@every
def test_vmap_is_a_loop(weight):
    E, r = (jnp.stack(x) for x in zip(*(arrays(instance(seed, K)) for seed in range(3)), strict=True))
    mask = jnp.arange(K) < jnp.array([K, 3, 0])[:, None]
    batch = jax.jit(jax.vmap(lambda *x: greedy_mmr(*x, PICKS, weight)))(E, r, mask)
    ranked = jax.vmap(lambda *x: top_relevance(*x, PICKS))(r, mask)
    for b in range(3):
        one = mmr(E[b], r[b], mask[b], PICKS, weight)
        np.testing.assert_array_equal(batch.indices[b], one.indices)
        np.testing.assert_allclose(batch.gains[b], one.gains, atol=2e-6)
        np.testing.assert_array_equal(ranked.indices[b], top(r[b], mask[b], PICKS).indices)


@every
@pytest.mark.parametrize("size", [1, 3, K])
def test_cosines_are_those_to_the_picks(close, weight, size):
    E, r = (x[:size] for x in arrays(instance(5, K)))
    got = mmr(E, r, ALL[:size], PICKS, weight)
    assert got.cosines.shape == (size, PICKS)
    found = min(size, PICKS)
    close(got.cosines[:, :found], np.asarray(E, float) @ np.asarray(E, float)[got.indices[:found]].T)


def test_jit_is_eager():
    (E, r), weight = arrays(instance(7, K)), 0.5
    with jax.disable_jit():
        eager, ranked = greedy_mmr(E, r, ALL, PICKS, weight), top_relevance(r, ALL, PICKS)
    got = mmr(E, r, ALL, PICKS, weight)
    np.testing.assert_array_equal(got.indices, eager.indices)
    np.testing.assert_allclose(got.gains, eager.gains, atol=2e-6)
    np.testing.assert_array_equal(top(r, ALL, PICKS).indices, ranked.indices)


def test_the_program_neither_grows_with_k_nor_holds_a_square():
    E, r, mask = jnp.ones((40, 3)), jnp.ones(40), jnp.ones(40, bool)
    program = lambda k: str(jax.make_jaxpr(lambda *x: greedy_mmr(*x, k, 0.5))(E, r, mask))
    assert len(program(32)) < 1.1 * len(program(4))
    assert "[40,40]" not in program(32)
