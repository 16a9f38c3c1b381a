import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from greedy_runs import ALL, COVERAGE, PICKS, K, arrays
from hypothesis import given
from hypothesis import strategies as st
from instances import instance

from georag_jax.kernels import (
    greedy_facility_location,
)

SEEDS = st.integers(0, 10**6)
VALUES = {
    "facility": reference.facility_location,
    "discounted": lambda G, p, S: reference.discounted_facility_location(G, p, S, 0.3, 4),
    "modular": lambda G, p, S: reference.discounted_facility_location(G, p, S, 1.0),
    "entropic": lambda G, p, S: reference.entropic_facility_location(G, p, S, 0.05),
}
every = pytest.mark.parametrize("name", COVERAGE)
with_value = pytest.mark.parametrize("name", VALUES)


@with_value
@given(seed=SEEDS)
def test_picks_and_gains_are_the_oracles(close, name, seed):
    case = instance(seed, K)
    F = lambda S: VALUES[name](case.gram, case.p, S)
    got = COVERAGE[name](*arrays(case), ALL)
    S = got.indices.tolist()
    close(got.gains, [F(S[: t + 1]) - F(S[:t]) for t in range(PICKS)])
    close(got.gains.sum(), F(S))
    for t in range(PICKS):  # the oracle's choice from the same prefix, up to rounding
        gains = [F([*S[:t], i]) - F(S[:t]) for i in range(K) if i not in S[:t]]
        assert F(S[: t + 1]) - F(S[:t]) >= max(gains) - 2e-6
    assert float(got.marginal_error) == 0


@with_value
@given(seed=SEEDS)
def test_no_less_than_1_minus_1_over_e_of_the_best_set(name, seed):
    case = instance(seed, K, zeros=3)
    F = lambda S: VALUES[name](case.gram, case.p, S)
    best = F(reference.best_set(F, K, PICKS))
    assert F(COVERAGE[name](*arrays(case), ALL).indices.tolist()) >= (1 - 1 / np.e) * best - 1e-6


@every
@given(seed=SEEDS)
def test_forced_first_pick(close, name, seed):
    case, forced = instance(seed, K), seed % K
    got = COVERAGE[name](*arrays(case), ALL, forced)
    assert int(got.indices[0]) == forced
    close(got.gains[0], VALUES[name](case.gram, case.p, [forced]))
    assert len(set(got.indices.tolist())) == PICKS


@every
def test_nan_is_never_selected(name):
    case = instance(2, K)
    G, p = arrays(case)
    got = COVERAGE[name](G.at[:, 4].set(jnp.nan), p, ALL)
    assert 4 not in got.indices.tolist()
    assert len(set(got.indices.tolist())) == PICKS


def test_the_program_does_not_grow_with_k():
    """Thirty-two picks are compiled from at most a handful of loop bodies more than sixteen."""
    gram, p, mask = jnp.eye(40), jnp.full(40, 1 / 40), jnp.ones(40, bool)
    call = lambda k: greedy_facility_location(gram, p, mask, k, discount=0.3)
    size = lambda k: len(str(jax.make_jaxpr(lambda: call(k))()))
    assert size(32) < 1.3 * size(16)
