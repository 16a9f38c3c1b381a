import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from instances import instance

from georag_jax import SelectConfig, Selection, select

K, M, D, B = 10, 4, 5, 3
CONFIGS = [SelectConfig(k=4), SelectConfig(k=4, objective="sinkhorn", subqueries_kept=2)]
every = pytest.mark.parametrize("config", CONFIGS, ids=["default", "sinkhorn"])


def batch(seeds):
    cases = [instance(seed, K, M, D) for seed in seeds]
    stack = lambda field: np.stack([getattr(case, field) for case in cases]).astype(np.float32)
    return {name: stack(name) for name in ("candidates", "query", "subqueries")}


def row(arrays, b):
    return {name: x[b] for name, x in arrays.items()}


def same(got, want, b=None):
    for field in Selection._fields[:-1]:
        a = getattr(got, field) if b is None else getattr(got, field)[b]
        np.testing.assert_allclose(a, getattr(want, field), atol=2e-5, err_msg=field)
        assert np.shape(a) == np.shape(getattr(want, field))


@every
@given(seed=st.integers(0, 10**6))
def test_batch_is_the_loop(config, seed):
    arrays = batch(range(seed, seed + B))
    got = select(**arrays, config=config)
    for b in range(B):
        same(got, select(**row(arrays, b), config=config), b)


@every
def test_the_same_query_twice(config):
    got = select(**batch([7, 3, 7, 7]), config=config)
    for b in (2, 3):
        for field in Selection._fields[:-1]:
            np.testing.assert_array_equal(getattr(got, field)[b], getattr(got, field)[0])


@every
@given(seed=st.integers(0, 10**6))
def test_padding_a_ragged_batch_changes_nothing(config, seed):
    """A pool of 7 in a batch of pools of 10 with two sub-queries fewer; what fills the gap is arbitrary."""
    arrays = batch([seed, seed + 1])
    valid, asked = np.ones((2, K), bool), np.ones((2, M), bool)
    valid[0, 7:] = asked[0, 2:] = False
    got = select(**arrays, candidate_mask=valid, subquery_mask=asked, config=config)
    short = {"candidates": arrays["candidates"][0, :7], "subqueries": arrays["subqueries"][0, :2]}
    want = select(query=arrays["query"][0], **short, config=config)
    assert (got.demand[0, 7:] == 0).all()
    assert (got.quality[0, 2:] == 0).all()
    trimmed = got._replace(demand=got.demand[:, :7], quality=got.quality[:, :2])
    same(trimmed, want, 0)


@every
@given(seed=st.integers(0, 10**6))
def test_order_of_candidates_does_not_matter(config, seed):
    arrays, order = row(batch([seed]), 0), np.random.default_rng(seed).permutation(K)
    kept = select(**arrays, config=config)
    moved = select(**(arrays | {"candidates": arrays["candidates"][order]}), config=config)
    np.testing.assert_allclose(moved.demand, kept.demand[order], atol=1e-6)
    tie = np.abs(moved.gains - kept.gains).max() < 2e-5
    assert order[moved.indices].tolist() == kept.indices.tolist() or tie


def test_order_of_subqueries_does_not_matter():
    arrays, order = row(batch([5]), 0), [2, 0, 3, 1]
    kept = select(**arrays, config=CONFIGS[0])
    moved = select(**(arrays | {"subqueries": arrays["subqueries"][order]}), config=CONFIGS[0])
    np.testing.assert_array_equal(moved.indices, kept.indices)
    np.testing.assert_allclose(moved.gains, kept.gains, atol=1e-6)


@every
def test_copies_of_a_candidate_are_taken_in_order(config):
    arrays = row(batch([2]), 0)
    pool = np.concatenate([arrays["candidates"], arrays["candidates"] * 3])
    picks = select(**(arrays | {"candidates": pool}), config=config).indices.tolist()
    assert all(pick < K or pick - K in picks[:t] for t, pick in enumerate(picks))


@every
def test_no_query_at_all(config):
    arrays = {name: x[:0] for name, x in batch([1]).items()}
    got = select(**arrays, weights=np.zeros((0, M)), config=config)
    shapes = {field: getattr(got, field).shape for field in Selection._fields[:-1]}
    one = select(**batch([1]), config=config)
    assert shapes == {field: (0, *getattr(one, field).shape[1:]) for field in shapes}
    assert all(getattr(got, field).dtype == getattr(one, field).dtype for field in shapes)


def test_one_candidate_one_number():
    got = select([[2.0]], [1.0], [[3.0]], config=CONFIGS[1])
    assert got.indices.tolist() == [0, -1, -1, -1]
    np.testing.assert_allclose([got.gains[0], got.demand[0]], 1, rtol=1e-6)
