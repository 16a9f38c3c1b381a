import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import instance

from georag_jax.kernels import demand, likelihood, retrieval_prior

K, M = 10, 4
SEEDS = st.integers(0, 10**6)
ALL = jnp.ones(K, bool)
prior_of = jax.jit(retrieval_prior, static_argnames="temperature")
likelihood_of = jax.jit(likelihood, static_argnames="temperature")
demand_of = jax.jit(demand, static_argnames=("alpha", "beta", "fusion"))
TEMPERATURES = st.sampled_from([None, 0.04, 1.0])
EXPONENTS = st.sampled_from([(1.0, 1.0), (0.0, 1.0), (1.0, 0.0), (0.5, 2.0)])


def draw(seed):
    case, rng = instance(seed, K, M), np.random.default_rng(seed)
    weight = rng.random(M)
    weight[0] = 0
    return case, rng.normal(size=K), weight / weight.sum()


@given(SEEDS, st.sampled_from([0.1, 1.0, 3.0]))
def test_prior_is_the_oracles(close, seed, temperature):
    _, score, _ = draw(seed)
    got = prior_of(jnp.float32(score), ALL, temperature)
    close(got, reference.retrieval_prior(score, temperature))
    close(prior_of(jnp.float32(score + 50), ALL, temperature).sum(), 1)


@given(SEEDS, TEMPERATURES)
def test_likelihood_is_the_oracles(close, seed, temperature):
    case, _, weight = draw(seed)
    affinity = jnp.float32(case.subqueries @ case.candidates.T)
    got = likelihood_of(affinity, jnp.float32(weight), ALL, temperature)
    close(got, reference.likelihood(case.candidates, case.subqueries, weight, temperature))
    if temperature is not None:
        close(got.sum(), 1)  # each sub-query owns its weight


@given(SEEDS, TEMPERATURES, EXPONENTS)
def test_demand_is_the_oracles(close, seed, temperature, exponents):
    case, score, weight = draw(seed)
    prior = reference.retrieval_prior(score)
    like = reference.likelihood(case.candidates, case.subqueries, weight, temperature)
    p, alone = demand_of(jnp.float32(prior), jnp.float32(like), ALL, *exponents)
    close(p, reference.demand(prior, like, *exponents))
    close(p.sum(), 1)
    assert bool(alone) == (exponents[1] > 0 and not (like > 0).any())
    if like.sum() > 0:
        p, _ = demand_of(jnp.float32(prior), jnp.float32(like), ALL, *exponents, "linear")
        alpha, beta = exponents
        close(p, (alpha * prior + beta * like / like.sum()) / (alpha + beta))


@pytest.mark.parametrize("fusion", ["product", "linear"])
@pytest.mark.parametrize("alpha", [1.0, 0.0])
def test_without_likelihood_the_prior_stands_alone(close, fusion, alpha):
    prior = reference.retrieval_prior(np.arange(K) / 3)
    p, alone = demand_of(jnp.float32(prior), jnp.zeros(K), ALL, alpha, 1.0, fusion)
    assert bool(alone)
    close(p.sum(), 1)
    if fusion == "product" or alpha:
        close(p, reference.demand(prior, np.zeros(K), alpha))


def test_a_candidate_without_likelihood_has_no_demand():
    p, alone = demand_of(jnp.full(K, 1 / K), jnp.zeros(K).at[3].set(1e-30), ALL)
    assert p.tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    assert not alone


def test_small_times_small_does_not_underflow():
    p, _ = demand_of(jnp.full(K, 1e-30), jnp.full(K, 1e-30), ALL)
    np.testing.assert_allclose(p, 1 / K, rtol=1e-5)


@given(SEEDS, TEMPERATURES, st.sampled_from(["product", "linear"]))
def test_masked_candidates_change_nothing(seed, temperature, fusion):
    case, score, weight = draw(seed)
    mask = np.random.default_rng(seed).random(K) < 0.6
    mask[0] = True
    affinity = case.subqueries @ case.candidates.T

    def run(score, affinity, mask):
        valid = jnp.array(mask)
        like = likelihood_of(jnp.float32(affinity), jnp.float32(weight), valid, temperature)
        return demand_of(prior_of(jnp.float32(score), valid), like, valid, 1.0, 1.0, fusion)

    p, alone = run(np.where(mask, score, np.nan), np.where(mask, affinity, np.nan), mask)
    clean, alone_clean = run(np.where(mask, score, 0), np.where(mask, affinity, 0), mask)
    np.testing.assert_array_equal(p, clean)
    assert (np.asarray(p)[~mask] == 0).all()
    np.testing.assert_allclose(p.sum(), 1, rtol=1e-5)
    assert bool(alone) == bool(alone_clean)


@pytest.mark.parametrize("fusion", ["product", "linear"])
def test_nothing_valid_gives_zeros(fusion):
    none = ~ALL
    prior, like = prior_of(jnp.ones(K), none), likelihood_of(jnp.ones((M, K)), jnp.full(M, 0.25), none, 0.04)
    p, alone = demand_of(prior, like, none, 1.0, 1.0, fusion)
    assert (prior.sum(), like.sum(), p.sum(), bool(alone)) == (0, 0, 0, False)


@pytest.mark.parametrize("size, m", [(1, 1), (1, 0), (0, 1)])
def test_sizes_zero_and_one(size, m):
    mask = jnp.ones(size, bool)
    if size:
        like = likelihood(jnp.ones((m, size)), jnp.ones(m), mask, 0.04)
        p, alone = demand(retrieval_prior(jnp.zeros(size), mask), like, mask)
        assert (p.tolist(), bool(alone)) == ([1.0], m == 0)


def test_float64_in_float64_out_and_eager_is_jit():
    case, score, weight = draw(0)
    with jax.enable_x64(True):
        for dtype in (jnp.float32, jnp.float64):
            affinity = jnp.asarray(case.subqueries @ case.candidates.T, dtype)
            like = likelihood(affinity, jnp.asarray(weight, dtype), ALL, 0.04)
            p, _ = demand(retrieval_prior(jnp.asarray(score, dtype), ALL), like, ALL)
            assert (like.dtype, p.dtype) == (dtype, dtype)
            jitted, _ = demand_of(prior_of(jnp.asarray(score, dtype), ALL), like, ALL)
            np.testing.assert_allclose(p, jitted, rtol=1e-5)
