"""How a batch is cut into blocks of few sizes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from georag_jax.selection import batching

SIZES = st.lists(st.integers(1, 600), max_size=80)
COUNTS = st.integers(1, 40)
WORKERS = st.integers(1, 8)


def rows(part, count):
    return np.arange(count)[part.rows].tolist()


@given(SIZES, COUNTS, WORKERS)
def test_every_query_is_in_one_part_that_its_pool_fits(sizes, largest, workers):
    parts = batching.parts(np.array(sizes, int), largest, workers)
    covered = [rows(part, len(sizes)) for part in parts]
    assert sorted(sum(covered, [])) == list(range(len(sizes)))
    assert all(part.size >= sizes[b] for part, each in zip(parts, covered, strict=True) for b in each)


@given(SIZES, COUNTS, WORKERS)
def test_no_part_is_too_large_or_empty(sizes, largest, workers):
    lengths = [len(rows(part, len(sizes))) for part in batching.parts(np.array(sizes, int), largest, workers)]
    assert max(lengths) <= largest
    assert min(lengths) > 0 or lengths == [0]


@given(SIZES, COUNTS, WORKERS)
def test_the_largest_pools_go_first(sizes, largest, workers):
    found = [part.size for part in batching.parts(np.array(sizes, int), largest, workers)]
    assert found == sorted(found, reverse=True)


@given(SIZES, COUNTS, WORKERS)
def test_order_is_kept_within_a_part(sizes, largest, workers):
    for part in batching.parts(np.array(sizes, int), largest, workers):
        assert rows(part, len(sizes)) == sorted(rows(part, len(sizes)))


def test_no_query_is_one_empty_part():
    (part,) = batching.parts(np.zeros(0, int), 16, 4)
    assert rows(part, 0) == []
    assert part.size > 0


@given(st.integers(1, 300), st.integers(1, 600), COUNTS, WORKERS)
def test_pools_of_one_size_are_slices_enough_for_every_worker(count, size, largest, workers):
    parts = batching.parts(np.full(count, size), largest, workers)
    assert all(isinstance(part.rows, slice) and part.size == batching.bucket(size) for part in parts)
    assert sum((rows(part, count) for part in parts), []) == list(range(count))
    assert max(len(rows(part, count)) for part in parts) <= -(-count // workers)


def test_few_sizes_and_little_padding():
    sizes = np.arange(20, 501)
    parts = batching.parts(sizes, 10**6, 1)
    assert len({part.size for part in parts}) <= 20
    assert all(part.size <= 1.25 * sizes[b] for part in parts for b in rows(part, len(sizes)) if sizes[b] >= 32)


@pytest.mark.parametrize("least", [4, 8])
def test_buckets_hold_and_do_not_move(least):
    sizes = [batching.bucket(n, least) for n in range(1, 1025)]
    assert sizes == sorted(sizes)
    assert all(size >= n and size % least == 0 for n, size in enumerate(sizes, 1))
    assert all(size == batching.bucket(size, least) for size in sizes)


def test_buckets_are_few_and_close():
    assert all(batching.bucket(n) <= 1.125 * n for n in range(64, 2049))
    assert all(batching.bucket(n, steps=4) <= 1.25 * n for n in range(32, 2049))
    assert len({batching.bucket(n) for n in range(1, 257)}) <= 32


def test_powers_of_two():
    assert [batching.power_of_two(n) for n in (0, 1, 2, 3, 64, 65)] == [1, 1, 2, 4, 64, 128]
