import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from georag_jax.retrieval import fuse

lists = st.tuples(st.integers(0, 6), st.integers(0, 8)).flatmap(
    lambda shape: arrays(np.int64, shape, elements=st.integers(-1, 9))
)


def plain_fusion(numbers, size, rank_constant=60):
    ranks = {}
    for row in numbers.tolist():
        seen = set()
        for rank, number in enumerate(row, 1):
            if number >= 0 and number not in seen:
                seen.add(number)
                ranks.setdefault(number, []).append(rank)
    scores = {number: sum(1 / (rank_constant + rank) for rank in sorted(r)) for number, r in ranks.items()}
    return sorted(scores, key=lambda number: (-scores[number], number))[:size]


@given(lists, st.integers(1, 12))
def test_equals_the_definition(numbers, size):
    fused = fuse(numbers, size)
    assert fused.dtype == np.int64
    assert fused.tolist() == plain_fusion(numbers, size)


@given(lists, st.randoms())
def test_the_order_of_the_lists_does_not_matter(numbers, random):
    order = list(range(len(numbers)))
    random.shuffle(order)
    assert fuse(numbers[order], 20).tolist() == fuse(numbers, 20).tolist()


@given(lists)
def test_padding_changes_nothing(numbers):
    wider = np.pad(numbers, ((0, 1), (0, 3)), constant_values=-1)
    assert fuse(wider, 20).tolist() == fuse(numbers, 20).tolist()


@given(lists)
def test_a_repeated_entry_counts_once(numbers):
    repeated = np.concatenate([numbers, numbers[:, ::-1]], axis=1)
    assert fuse(repeated, 20).tolist() == fuse(numbers, 20).tolist()


@given(lists, st.integers(1, 9))
def test_smaller_pools_are_prefixes(numbers, size):
    assert fuse(numbers, size).tolist() == fuse(numbers, 20)[:size].tolist()


def test_ranks_start_at_one_and_the_constant_is_obeyed():
    numbers = np.array([[5, 1], [1, 2], [2, 7]])
    # With constant 0: 5 has 1, 1 has 1.5, 2 has 1.5, 7 has .5. Ties go to the lowest number.
    assert fuse(numbers, 4, rank_constant=0).tolist() == [1, 2, 5, 7]


def test_large_numbers_and_narrow_types():
    assert fuse(np.array([[2**40, 3]]), 5).tolist() == [2**40, 3]
    assert fuse(np.array([[2, 3]], np.int32), 5).dtype == np.int64
    assert fuse([[2, 3], [3, 2]], 1).tolist() == [2]


@pytest.mark.parametrize(
    ("numbers", "size", "constant", "name"),
    [
        ([1, 2], 3, 60, "numbers"),
        ([[1.0, 2.0]], 3, 60, "numbers"),
        ([[1, 2]], 0, 60, "size"),
        ([[1, 2]], 3, -1, "rank_constant"),
        ([[1, 2]], 3, float("nan"), "rank_constant"),
    ],
)
def test_bad_arguments_are_named(numbers, size, constant, name):
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        fuse(numbers, size, constant)
