import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import instance

from georag_jax import SelectConfig, reverse_validation, select

QUALITIES = ["overlap", "overlap_novelty", "uniform"]
IDS = st.lists(st.sampled_from("abcdefgh"), max_size=6)


@given(st.lists(IDS, max_size=4), IDS, st.sampled_from(QUALITIES), st.sampled_from([0.0, 0.05, 0.5]))
def test_is_the_oracle(close, retrieved, primary, quality, threshold):
    got = reverse_validation(retrieved, primary, quality, threshold)
    assert (got.shape, got.dtype) == ((len(retrieved),), np.float32)
    if retrieved:
        close(got, reference.reverse_validation([set(ids) for ids in retrieved], primary, threshold, quality))


@pytest.mark.parametrize("quality", QUALITIES)
def test_agrees_with_select(quality):
    case, rng = instance(0), np.random.default_rng(0)
    lists = rng.integers(0, 16, (4, 8))
    got = select(
        case.candidates,
        case.query,
        case.subqueries,
        retrieved=lists,
        config=SelectConfig(quality=quality, quality_saturation=None),
    )
    np.testing.assert_allclose(got.quality, reverse_validation(lists.tolist(), range(10), quality), atol=1e-6)


def test_a_pool_made_of_the_lists_would_validate_anything():
    lists = [["a", "b"], ["x", "y"]]
    np.testing.assert_allclose(reverse_validation(lists, ["a", "b"]), [1, 0])
    np.testing.assert_allclose(reverse_validation(lists, ["a", "b", "x", "y"]), [0.5, 0.5])


def test_any_hashable_names_a_chunk():
    np.testing.assert_allclose(reverse_validation([[("t", 1), 7], [7.5]], [7, 7.5]), [1 / 3, 2 / 3], rtol=1e-6)


def test_nothing():
    assert reverse_validation([], ["a"]).shape == (0,)
    np.testing.assert_allclose(reverse_validation([[], []], []), [0.5, 0.5])
