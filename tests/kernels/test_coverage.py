"""Lemma 1 and Proposition 2 for Eq. 4 and its kin, and what the running state says against the definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import instance

from georag_jax.kernels import coverage

K, PICKS = 10, 4
SEEDS = st.integers(0, 10**6)
DISCOUNTS = st.sampled_from([0.0, 0.3, 1.0])
POWERS = st.sampled_from([1.0, 4.0])
EPSILONS = st.sampled_from([0.01, 0.05, 1.0])
value = jax.jit(coverage.facility_location, static_argnames=("discount", "power"))
entropic = jax.jit(coverage.entropic_facility_location, static_argnames="epsilon")
gains_of = jax.jit(coverage.marginal_gains, static_argnames="discount")
entropic_gains = jax.jit(coverage.entropic_gains, static_argnames="epsilon")


def picks(S):
    return jnp.array([*S, *[-1] * (PICKS - len(S))], jnp.int32)


def draw(seed):
    case = instance(seed, K)
    return case.gram, case.p, np.random.default_rng(seed).permutation(K)[:PICKS].tolist()


@given(SEEDS, DISCOUNTS, POWERS, st.integers(0, PICKS))
def test_values_are_the_oracles(close, seed, discount, power, size):
    G, p, order = draw(seed)
    S = order[:size]
    got = value(jnp.float32(G), jnp.float32(p), picks(S), discount, power)
    close(got, reference.discounted_facility_location(G, p, S, discount, power))
    if (discount, power) == (0, 1):
        close(got, reference.facility_location(G, p, S))


@given(SEEDS, EPSILONS, st.integers(0, PICKS))
def test_entropic_values_are_the_oracles(close, seed, epsilon, size):
    G, p, order = draw(seed)
    got = entropic(jnp.float32(G), jnp.float32(p), picks(order[:size]), epsilon)
    close(got, reference.entropic_facility_location(G, p, order[:size], epsilon))


def functions(G, p, discount, power, epsilon):
    arrays = jnp.float64(G), jnp.float64(p)
    return [
        lambda S: float(value(*arrays, picks(S), discount, power)),
        lambda S: float(entropic(*arrays, picks(S), epsilon)),
    ]


@given(SEEDS, DISCOUNTS, POWERS, EPSILONS)
def test_monotone_and_submodular(seed, discount, power, epsilon):
    """F(B + i) >= F(B), and for A within B the gain of i at A is no smaller than at B."""
    G, p, (*B, i) = draw(seed)
    with jax.enable_x64(True):
        for F in functions(G, p, discount, power, epsilon):
            assert abs(F([])) < 1e-12
            for size in range(len(B) + 1):
                A = B[:size]
                assert F([*B, i]) >= F(B) - 1e-12
                assert F([*A, i]) - F(A) >= F([*B, i]) - F(B) - 1e-12


@given(SEEDS)
def test_discount_one_is_modular(close, seed):
    G, p, order = draw(seed)
    got = value(jnp.float32(G), jnp.float32(p), picks(order), 1.0, 1.0)
    close(got, sum(reference.facility_location(G, p, [i]) for i in order))


@given(SEEDS, DISCOUNTS, POWERS)
def test_marginal_gains_are_differences(close, seed, discount, power):
    G, p, order = draw(seed)
    F = lambda S: reference.discounted_facility_location(G, p, S, discount, power)
    similarity = coverage.service(jnp.float32(G), power)
    served = coverage.start_served(K, PICKS, discount, jnp.float32)
    for t, i in enumerate(order):
        gains = np.asarray(gains_of(served, similarity, jnp.float32(p), discount))
        rest = [j for j in range(K) if j not in order[:t]]
        close(gains[rest], [F([*order[:t], j]) - F(order[:t]) for j in rest])
        served = coverage.serve(served, similarity[:, i])
    best = -np.sort(-(np.maximum(G[:, order], 0) ** power), axis=1).T
    close(served, best if discount else best[:1])


@given(SEEDS, EPSILONS)
def test_entropic_gains_are_differences(close, seed, epsilon):
    G, p, order = draw(seed)
    F = lambda S: reference.entropic_facility_location(G, p, S, epsilon)
    similarity, level = jnp.maximum(jnp.float32(G), 0), jnp.zeros(K)
    for t, i in enumerate(order):
        gains = entropic_gains(level, similarity, jnp.float32(p), epsilon)
        close(gains, [F([*order[:t], j]) - F(order[:t]) for j in range(K)])
        level = coverage.entropic_serve(level, similarity[:, i], epsilon)


@given(SEEDS)
def test_entropic_limits(close, seed):
    """One pick is Eq. 4, a similarity of zero or less earns nothing, and epsilon -> 0 is Eq. 4."""
    G, p, order = draw(seed)
    arrays = jnp.float32(G), jnp.float32(p)
    for epsilon in (0.01, 1.0):
        close(entropic(*arrays, picks(order[:1]), epsilon), reference.facility_location(G, p, order[:1]))
        nothing = entropic_gains(jnp.float32(p), jnp.zeros((K, K)), arrays[1], epsilon)
        np.testing.assert_array_equal(nothing, np.zeros(K))
    got = entropic(*arrays, picks(order), 1e-4)
    np.testing.assert_allclose(got, reference.facility_location(G, p, order), atol=1e-4 * np.log(PICKS) + 1e-6)


@given(SEEDS, st.integers(0, PICKS))
def test_prefix_coverage(close, seed, size):
    G, p, order = draw(seed)
    got = jax.jit(coverage.prefix_coverage)(jnp.float32(G), jnp.float32(p), picks(order[:size]))
    want = [reference.facility_location(G, p, order[: min(t + 1, size)]) for t in range(PICKS)]
    close(got, want)


@pytest.mark.parametrize("n, size, k", [(0, 3, 2), (3, 1, 1), (1, 1, 2), (2, 3, 0)])
def test_sizes_zero_and_one(n, size, k):
    G, weight, chosen = jnp.ones((n, size)), jnp.full(n, 1 / max(n, 1)), jnp.array([0, -1], jnp.int32)[:k]
    want = float(n > 0 and k > 0)
    assert float(coverage.facility_location(G, weight, chosen)) == want
    np.testing.assert_allclose(coverage.entropic_facility_location(G, weight, chosen, 0.05), want, rtol=1e-6)
    assert coverage.prefix_coverage(jnp.ones((size, size)), jnp.ones(size) / size, chosen).shape == (k,)


def test_float64_in_float64_out():
    G, p, order = draw(0)
    with jax.enable_x64(True):
        for dtype in (jnp.float32, jnp.float64):
            arrays = jnp.asarray(G, dtype), jnp.asarray(p, dtype)
            assert value(*arrays, picks(order), 0.3, 4.0).dtype == dtype
            assert entropic(*arrays, picks(order), 0.05).dtype == dtype
            assert coverage.prefix_coverage(*arrays, picks(order)).dtype == dtype
            served = coverage.start_served(K, PICKS, 0.3, dtype)
            assert gains_of(served, arrays[0], arrays[1], 0.3).dtype == dtype
            assert entropic_gains(arrays[1], *arrays, 0.05).dtype == dtype
