"""What holds for every greedy selector over a Gram matrix, whatever it maximises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from greedy_runs import ALL, COVERAGE, PICKS, TRANSPORT, K, arrays
from hypothesis import given
from hypothesis import strategies as st
from instances import as32, instance

SEEDS = st.integers(0, 10**6)
RUNS = COVERAGE | TRANSPORT
every = pytest.mark.parametrize("name", RUNS)


@every
def test_forced_pick_must_be_free(name):
    case = instance(4, K)
    mask = ALL.at[3].set(False)
    forced, free = (RUNS[name](*arrays(case), mask, first) for first in (3, -1))
    np.testing.assert_array_equal(forced.indices, free.indices)
    assert 3 not in free.indices


@every
@given(seed=SEEDS)
def test_padding_of_the_pool_changes_nothing(name, seed):
    """Masked candidates without demand may hold any similarity."""
    case, rng = instance(seed, K - 3), np.random.default_rng(seed)
    G = as32(rng.uniform(-1, 1, (K, K)))
    G = (G + G.T) / 2
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
