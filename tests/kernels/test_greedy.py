import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import as32, instance

from georag_jax.kernels import (
    greedy_entropic_facility_location,
    greedy_facility_location,
)

K, PICKS = 10, 4
SEEDS = st.integers(0, 10**6)
ALL = jnp.ones(K, bool)
facility = jax.jit(greedy_facility_location, static_argnames=("k", "discount", "power"))
entropic = jax.jit(greedy_entropic_facility_location, static_argnames=("k", "epsilon"))
RUNS = {  # similarity, weight, mask, first -> Greedy
    "facility": lambda G, p, mask, first=-1: facility(G, p, mask, PICKS, first=first),
    "discounted": lambda G, p, mask, first=-1: facility(G, p, mask, PICKS, 0.3, 4.0, first=first),
    "modular": lambda G, p, mask, first=-1: facility(G, p, mask, PICKS, 1.0, first=first),
    "entropic": lambda G, p, mask, first=-1: entropic(G, p, mask, PICKS, 0.05, first=first),
}
VALUES = {
    "facility": reference.facility_location,
    "discounted": lambda G, p, S: reference.discounted_facility_location(G, p, S, 0.3, 4),
    "modular": lambda G, p, S: reference.discounted_facility_location(G, p, S, 1.0),
    "entropic": lambda G, p, S: reference.entropic_facility_location(G, p, S, 0.05),
}
every = pytest.mark.parametrize("name", RUNS)
with_value = pytest.mark.parametrize("name", VALUES)


def arrays(case):
    return jnp.float32(case.gram), jnp.float32(case.p)


@with_value
@given(seed=SEEDS)
def test_picks_and_gains_are_the_oracles(close, name, seed):
    case = instance(seed, K)
    F = lambda S: VALUES[name](case.gram, case.p, S)
    got = RUNS[name](*arrays(case), ALL)
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
    assert F(RUNS[name](*arrays(case), ALL).indices.tolist()) >= (1 - 1 / np.e) * best - 1e-6


@every
@given(seed=SEEDS)
def test_forced_first_pick(close, name, seed):
    case, forced = instance(seed, K), seed % K
    got = RUNS[name](*arrays(case), ALL, forced)
    assert int(got.indices[0]) == forced
    close(got.gains[0], VALUES[name](case.gram, case.p, [forced]))
    assert len(set(got.indices.tolist())) == PICKS


@every
def test_forced_pick_must_be_free(name):
    case = instance(4, K)
    mask = ALL.at[3].set(False)
    forced, free = (RUNS[name](*arrays(case), mask, first) for first in (3, -1))
    np.testing.assert_array_equal(forced.indices, free.indices)
    assert 3 not in free.indices


@every
@given(seed=SEEDS)
def test_padding_changes_nothing(name, seed):
    """Masked candidates without demand may hold any similarity."""
    case, rng = instance(seed, K - 3), np.random.default_rng(seed)
    G = as32(rng.uniform(-1, 1, (K, K)))
    G[: K - 3, : K - 3] = case.gram
    padded = RUNS[name](jnp.float32(G), jnp.float32([*case.p, 0, 0, 0]), jnp.arange(K) < K - 3)
    alone = RUNS[name](*arrays(case), jnp.ones(K - 3, bool))
    np.testing.assert_array_equal(padded.indices, alone.indices)
    np.testing.assert_allclose(padded.gains, alone.gains, atol=2e-5)


@every
@given(seed=SEEDS)
def test_order_of_candidates_does_not_matter(name, seed):
    case, order = instance(seed, K), np.random.default_rng(seed).permutation(K)
    G, p = arrays(case)
    moved = RUNS[name](G[order][:, order], p[order], ALL)
    back = order[np.asarray(moved.indices)]
    kept = RUNS[name](G, p, ALL)
    gap = np.abs(np.asarray(moved.gains) - np.asarray(kept.gains)).max()
    assert back.tolist() == kept.indices.tolist() or gap < 1e-5


@every
def test_exact_copies_tie_to_the_lowest_index(name):
    case = instance(8, K)
    for original in range(K // 2):
        G, p = np.tile(case.gram[:5, :5], (2, 2)), np.tile(case.p[:5] + 0.1, 2)
        got = RUNS[name](jnp.float32(G), jnp.float32(p / p.sum()), ALL, original)
        seen = set()
        for pick in got.indices.tolist():
            assert pick < 5 or pick - 5 in seen, got.indices
            seen.add(pick)


@every
def test_all_equal_candidates_come_in_order(name):
    got = RUNS[name](jnp.full((K, K), 0.5), jnp.full(K, 1 / K), ALL)
    assert got.indices.tolist() == [0, 1, 2, 3]


@every
def test_nan_is_never_selected(name):
    case = instance(2, K)
    G, p = arrays(case)
    got = RUNS[name](G.at[:, 4].set(jnp.nan), p, ALL)
    assert 4 not in got.indices.tolist()
    assert len(set(got.indices.tolist())) == PICKS


@every
def test_pool_smaller_than_k(name):
    case = instance(6, K)
    got = RUNS[name](*arrays(case), jnp.arange(K) < 2)
    assert sorted(got.indices[:2].tolist()) == [0, 1]
    assert (got.indices[2:].tolist(), got.gains[2:].tolist()) == ([-1, -1], [0, 0])
    nothing = RUNS[name](*arrays(case), ~ALL)
    assert (nothing.indices.tolist(), nothing.gains.tolist()) == ([-1] * PICKS, [0] * PICKS)
    assert float(nothing.marginal_error) == 0


@every
@pytest.mark.parametrize("size", [0, 1])
def test_sizes_zero_and_one(name, size):
    got = RUNS[name](jnp.ones((size, size)), jnp.ones(size), jnp.ones(size, bool))
    assert got.indices.tolist() == [*range(size), *[-1] * (PICKS - size)]
    np.testing.assert_allclose(got.gains, [*[1.0] * size, *[0.0] * (PICKS - size)], rtol=1e-6)


@every
def test_under_the_callers_jit_and_vmap(name):
    cases = [instance(seed, K) for seed in range(3)]
    G, p = (jnp.stack(x) for x in zip(*map(arrays, cases), strict=True))
    batch = jax.jit(jax.vmap(RUNS[name]))(G, p, jnp.stack([ALL] * 3), jnp.array([-1, 2, 5]))
    for b, first in enumerate([-1, 2, 5]):
        one = RUNS[name](G[b], p[b], ALL, first)
        np.testing.assert_array_equal(batch.indices[b], one.indices)
        np.testing.assert_allclose(batch.gains[b], one.gains, atol=2e-5)


@every
def test_jit_is_eager(name):
    G, p, mask = *arrays(instance(7, 5)), jnp.ones(5, bool)
    with jax.disable_jit():
        got = RUNS[name](G, p, mask)
    want = RUNS[name](G, p, mask)
    np.testing.assert_array_equal(got.indices, want.indices)
    np.testing.assert_allclose(got.gains, want.gains, atol=2e-5)


def test_the_program_does_not_grow_with_k():
    """Thirty-two picks are compiled from at most a handful of loop bodies more than sixteen."""
    gram, p, mask = jnp.eye(40), jnp.full(40, 1 / 40), jnp.ones(40, bool)
    call = lambda k: greedy_facility_location(gram, p, mask, k, discount=0.3)
    size = lambda k: len(str(jax.make_jaxpr(lambda: call(k))()))
    assert size(32) < 1.3 * size(16)
