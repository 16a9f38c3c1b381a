import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import instance

from georag_jax.kernels import Factors, max_min_filter, quality_weights, validation_factors
from georag_jax.kernels.quality import normalise_weights

M, R = 4, 6
SEEDS = st.integers(0, 10**6)
ALL = jnp.ones(M, bool)
keep = jax.jit(max_min_filter, static_argnames="kept")
factors_of = jax.jit(validation_factors)


@given(SEEDS, st.integers(1, M + 1))
def test_max_min_filter_is_the_oracles(seed, kept):
    case = instance(seed)
    got = keep(jnp.float32(case.subqueries * 3), jnp.float32(case.query / 2), ALL, kept)
    assert np.flatnonzero(got).tolist() == sorted(reference.max_min_filter(case.subqueries, case.query, kept))


@given(SEEDS)
def test_masked_subqueries_are_not_kept(seed):
    case = instance(seed)
    sub = jnp.float32(np.vstack([case.subqueries, np.full((2, 5), np.nan)]))
    got = keep(sub, jnp.float32(case.query), jnp.arange(M + 2) < M, 2)
    assert np.flatnonzero(got).tolist() == sorted(reference.max_min_filter(case.subqueries, case.query, 2))
    assert not keep(sub, jnp.float32(case.query), jnp.zeros(M + 2, bool), 2).any()


def test_max_min_ties_go_to_the_lowest_index():
    sub = jnp.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    assert keep(sub, jnp.array([1.0, 0.0]), jnp.ones(5, bool), 2).tolist() == [False, True, False, True, False]


def lists(seed):
    rng = np.random.default_rng(seed)
    retrieved = rng.integers(-1, 12, (M, R))
    retrieved[rng.integers(0, M)] = -1
    return retrieved, set(rng.permutation(12)[:6].tolist())


@given(SEEDS, st.sampled_from(["overlap_novelty", "overlap", "uniform"]), st.sampled_from([0.0, 0.05, 0.4]))
def test_weights_are_the_oracles(close, seed, quality, threshold):
    retrieved, primary = lists(seed)
    sets = [{int(i) for i in row if i >= 0} for row in retrieved]
    got = factors_of(jnp.int32(retrieved), jnp.array(np.isin(retrieved, list(primary))), ALL)
    union = lambda j: set().union(*(s for i, s in enumerate(sets) if i != j))
    close(got.overlap, [len(s & primary) / len(s) if s else 0 for s in sets])
    close(got.novelty, [len(s - union(j)) / len(s) if s else 0 for j, s in enumerate(sets)])
    weights, flat = quality_weights(got, ALL, quality, threshold)
    close(weights, reference.reverse_validation(sets, primary, threshold, quality))
    close(weights.sum(), 1)
    scores = {"overlap_novelty": got.overlap * got.novelty, "overlap": got.overlap, "uniform": jnp.ones(M)}[quality]
    assert bool(flat) == (not (scores >= threshold).any() or not (scores > 0).any())


@given(SEEDS)
def test_masked_lists_are_ignored(seed):
    retrieved, primary = lists(seed)
    member = jnp.array(np.isin(retrieved, list(primary)))
    got = factors_of(jnp.int32(retrieved), member, jnp.arange(M) < M - 1)
    want = validation_factors(jnp.int32(retrieved[:-1]), member[:-1], jnp.ones(M - 1, bool))
    for masked, alone in zip(got, want, strict=True):
        np.testing.assert_array_equal(masked, [*alone, 0])


def test_a_quality_at_the_threshold_is_kept():
    """a of 20 in the primary list and b of 20 new, a b = 20: 0.05 in whatever order of rounding."""
    for a, b in ((1, 20), (2, 10), (4, 5), (5, 4), (10, 2), (20, 1)):
        factors = Factors(jnp.array([a / 20, 1.0]), jnp.array([b / 20, 1.0]))
        weights, _ = quality_weights(factors, jnp.ones(2, bool), "overlap_novelty", 0.05)
        np.testing.assert_allclose(weights, [0.05 / 1.05, 1 / 1.05], rtol=1e-5)


@pytest.mark.parametrize("m, r", [(0, 3), (1, 0), (1, 1)])
def test_sizes_zero_and_one(m, r):
    factors = validation_factors(jnp.zeros((m, r), jnp.int32), jnp.ones((m, r), bool), jnp.ones(m, bool))
    weights, flat = quality_weights(factors, jnp.ones(m, bool), "overlap", 0.05)
    assert weights.tolist() == [1.0] * m
    assert bool(flat) == (m > 0 and r == 0)


def test_normalise_weights():
    for score, mask, want, flat in (
        ([1.0, 3.0, 9.0], [1, 1, 0], [0.25, 0.75, 0], False),
        ([0.0, 0.0, 9.0], [1, 1, 0], [0.5, 0.5, 0], True),
        ([1.0, jnp.nan, jnp.nan], [1, 0, 0], [1, 0, 0], False),
        ([1.0, 1.0, 1.0], [0, 0, 0], [0, 0, 0], False),
    ):
        weights, got = normalise_weights(jnp.array(score), jnp.array(mask, bool))
        assert weights.tolist() == want
        assert bool(got) == flat


def test_vmap_is_the_loop():
    drawn = [lists(seed) for seed in range(3)]
    retrieved = jnp.int32(np.stack([x for x, _ in drawn]))
    member = jnp.array(np.stack([np.isin(x, list(own)) for x, own in drawn]))
    got = jax.vmap(validation_factors)(retrieved, member, jnp.ones((3, M), bool))
    for b in range(3):
        for batch, one in zip(got, factors_of(retrieved[b], member[b], ALL), strict=True):
            np.testing.assert_array_equal(batch[b], one)
