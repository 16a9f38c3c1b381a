import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from instances import instance

from georag_jax import SelectConfig, Selection, select
from georag_jax.selection import batching

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


def test_blocks_are_joined(monkeypatch):
    arrays = batch(range(5))
    whole = select(**arrays, config=CONFIGS[0])
    monkeypatch.setattr(batching, "BLOCK_BYTES", 2 * 4 * K * K * 3)
    assert len(list(batching.blocks(5, 4 * K * K * 3))) == 3
    same(select(**arrays, config=CONFIGS[0]), whole)


@pytest.mark.parametrize("queries, each", [(0, 1), (1, 10**12), (1000, 1), (7, 2**27), (300, 2**20)])
def test_blocks_cover_the_batch_within_the_memory(queries, each):
    parts = list(batching.blocks(queries, each))
    assert [n for part in parts for n in range(part.start, part.stop)] == list(range(queries))
    assert all((part.stop - part.start) * each <= max(batching.BLOCK_BYTES, each) for part in parts)


def test_buckets():
    for least in (4, 8):
        sizes = [batching.bucket(n, least) for n in range(1, 1025)]
        assert sizes == sorted(sizes)
        assert all(size >= n and size % least == 0 for n, size in enumerate(sizes, 1))
        assert all(size == batching.bucket(size, least) for size in sizes)
    assert all(batching.bucket(n) <= 1.125 * n for n in range(64, 2049))
    assert len({batching.bucket(n) for n in range(1, 257)}) <= 32
    assert [batching.power_of_two(n) for n in (1, 2, 3, 64, 65)] == [1, 2, 4, 64, 128]


def test_pad():
    x = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(batching.pad(x, (3, 4), -1), [[0, 1, 2, -1], [3, 4, 5, -1], [-1] * 4])
    assert batching.pad(x, (2, 3), 0) is x
