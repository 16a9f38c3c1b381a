import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import instance

from georag_jax.kernels import cosine, cost
from georag_jax.kernels.cost import unit_gram
from georag_jax.kernels.numerics import first_best, logsumexp, masked_softmax, safe_divide, unit

SEEDS = st.integers(0, 10**6)


@given(SEEDS, st.sampled_from([1e-30, 1e-3, 1.0, 1e30]))
def test_cosine_is_the_oracles_at_any_length(close, seed, length):
    case = instance(seed)
    x, y = jnp.float32(case.candidates * length), jnp.float32(case.subqueries * 3)
    got = jax.jit(cosine)(x, y)
    close(got, reference.unit(case.candidates) @ reference.unit(case.subqueries).T)
    assert np.abs(got).max() <= 1
    np.testing.assert_array_equal(jax.jit(cost)(got), 1 - np.asarray(got))


@pytest.mark.parametrize("n", [0, 1, 24, 25, 40, 41, 200])
def test_a_gram_matrix_is_the_cosines_of_all_with_all(n, close):
    x = unit(jnp.float32(np.random.default_rng(n).normal(size=(n, 7))))
    got = jax.jit(unit_gram)(x)
    close(got, cosine(x, x))
    upper = np.triu(np.ones((n, n), bool), 8 * -(-n // 24))  # beyond the blocks on the diagonal
    np.testing.assert_array_equal(np.asarray(got)[upper], np.asarray(got).T[upper])


def test_zero_rows_have_cosine_zero():
    x = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    np.testing.assert_allclose(cosine(x, x), [[0, 0], [0, 1]], atol=1e-6)


@pytest.mark.parametrize("n, l", [(0, 3), (3, 0), (1, 1), (0, 0)])
def test_sizes_zero_and_one(n, l):
    assert cosine(jnp.ones((n, 2)), jnp.ones((l, 2))).shape == (n, l)


def test_float64_in_float64_out(close):
    case = instance(0)
    with jax.enable_x64(True):
        got = cosine(jnp.float64(case.candidates), jnp.float64(case.subqueries))
        assert got.dtype == jnp.float64
        close(got, reference.unit(case.candidates) @ reference.unit(case.subqueries).T)
        assert cosine(jnp.ones((2, 2), jnp.float32), jnp.ones((2, 2), jnp.float32)).dtype == jnp.float32


def test_unit_keeps_nan_to_its_row():
    got = np.asarray(unit(jnp.array([[jnp.nan, 1.0], [0.0, 2.0]])))
    assert np.isnan(got[0]).any()
    np.testing.assert_array_equal(got[1], [0, 1])


def test_safe_divide():
    np.testing.assert_array_equal(safe_divide(jnp.array([1.0, 3.0]), jnp.array([0.0, 2.0])), [0, 1.5])


def test_masked_softmax():
    x = jnp.array([[1.0, 2.0, 1e4, jnp.nan], [0.0, 0.0, 0.0, 0.0], [-1e30, 0.0, 0.0, 0.0]])
    mask = jnp.array([[True, True, False, False], [False] * 4, [True, False, False, False]])
    got = masked_softmax(x, mask)
    np.testing.assert_allclose(got[0], [1 / (1 + np.e), np.e / (1 + np.e), 0, 0], rtol=1e-6)
    np.testing.assert_array_equal(got[1:], [[0, 0, 0, 0], [1, 0, 0, 0]])


def test_logsumexp():
    x = jnp.array([[-jnp.inf, 0.0, 200.0], [-300.0, -300.0, -300.0]])
    np.testing.assert_allclose(logsumexp(x, axis=1), [200, -300 + np.log(3)], rtol=1e-6)


@pytest.mark.parametrize(
    "score, valid, resolution, want",
    [
        ([1.0, 3.0, 3.0], [1, 1, 1], 0.0, 1),
        ([1.0, 3.0, 3.0], [1, 0, 1], 0.0, 2),
        ([2.9999, 3.0, 1.0], [1, 1, 1], 0.001, 0),
        ([2.9, 3.0, 1.0], [1, 1, 1], 0.001, 1),
        ([np.nan, 0.0, -1.0], [1, 1, 1], 0.0, 1),
        ([np.nan, -np.inf, -1.0], [1, 1, 0], 0.0, 1),
        ([-np.inf, -np.inf], [0, 1], 0.0, 1),
        ([1.0, 2.0], [0, 0], 0.0, -1),
        ([np.nan, np.nan], [0, 1], 0.0, -1),
        ([np.inf, 2.0], [1, 1], 0.0, 0),
    ],
)
def test_first_best(score, valid, resolution, want):
    got = first_best(jnp.array(score), jnp.array(valid, bool), resolution)
    assert int(got) == want
    assert got.dtype == jnp.int32
