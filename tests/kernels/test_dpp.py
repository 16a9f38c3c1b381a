"""Greedy MAP of a determinantal point process against the published loop and determinants, both in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from instances import instance

from georag_jax.kernels import greedy_dpp
from georag_jax.kernels.dpp import rank_tolerance

K, D, PICKS = 10, 5, 4
SEEDS = st.integers(0, 10**6)
WEIGHTS = [0.0, 0.5, 0.9]
ALL = jnp.ones(K, bool)
dpp = jax.jit(greedy_dpp, static_argnames=("k", "relevance_weight"))
every = pytest.mark.parametrize("weight", WEIGHTS)


def published(E, r, k, weight):
    """Chen, Zhang and Zhou's loop on the whole kernel; stops where the rank does."""
    quality = np.exp(weight / (2 * (1 - weight)) * r)
    L = quality[:, None] * (E @ E.T) * quality
    residual, c, S, gains = L.diagonal().copy(), np.zeros((len(E), 0)), [], []
    while len(S) < min(k, len(E)):
        j = max(set(range(len(E))) - set(S), key=lambda i: (residual[i], -i))
        if residual[j] < 1e-10:
            break
        S.append(j)
        gains.append(np.log(residual[j]))
        e = (L[j] - c @ c[j]) / np.sqrt(residual[j])
        c, residual = np.column_stack([c, e]), residual - e**2
    return S, gains


def value(E, r, S, weight):
    """Log of the determinant of L on S."""
    return weight / (1 - weight) * r[S].sum() + np.linalg.slogdet(E[S] @ E[S].T)[1] if len(S) else 0.0


def arrays(case):
    return jnp.float32(case.candidates), jnp.float32(case.candidates @ case.query)


@every
@given(seed=SEEDS)
def test_gains_are_those_of_the_determinant(weight, seed):
    """The oracle's choice from the same prefix; a logarithm of d2 is known to the last bits of 1 over d2."""
    case = instance(seed, K)
    E, r = case.candidates, case.candidates @ case.query
    got = dpp(*arrays(case), ALL, PICKS, weight)
    S = got.indices.tolist()
    assert len(set(S)) == PICKS
    for t in range(PICKS):
        gain = lambda i, t=t: value(E, r, [*S[:t], i], weight) - value(E, r, S[:t], weight)
        off = 1e-5 + 4e-6 / np.exp(gain(S[t]) - weight / (1 - weight) * r[S[t]])
        np.testing.assert_allclose(got.gains[t], gain(S[t]), atol=off)
        assert gain(S[t]) >= max(gain(i) for i in range(K) if i not in S[:t]) - 2 * off
    assert float(got.marginal_error) == 0


@pytest.mark.parametrize("weight", [0.01, *WEIGHTS[1:]])
@given(seed=SEEDS)
def test_float64_is_the_published_loop(weight, seed):
    rng = np.random.default_rng(seed)
    E, r = rng.normal(size=(K, D)), rng.normal(size=K)
    E /= np.linalg.norm(E, axis=1, keepdims=True)
    with jax.enable_x64(True):
        got = dpp(jnp.float64(E), jnp.float64(r), ALL, K, weight)
        S, gains = published(E, r, K, weight)
        assert len(S) == D
        assert got.indices.tolist()[:D] == S
        np.testing.assert_allclose(got.gains[:D], gains, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(got.gains.sum(), value(E, r, S, weight), rtol=1e-8)
        assert {got.gains.dtype, got.marginal_error.dtype} == {jnp.dtype("float64")}
        assert got.indices.dtype == jnp.int32


@every
@given(seed=SEEDS)
def test_gains_never_rise(weight, seed):
    """A log-determinant is submodular."""
    gains = np.asarray(dpp(*arrays(instance(seed, K)), ALL, PICKS, weight).gains)
    assert (np.diff(gains) <= 1e-3).all()


@every
@given(seed=SEEDS)
def test_beyond_the_rank_relevance_fills(weight, seed):
    case = instance(seed, K)
    E, r = arrays(case)
    got = dpp(E, r, ALL, K, weight)
    S = got.indices.tolist()
    assert sorted(S) == [*range(K)]
    np.testing.assert_array_equal(got.gains[D:], np.zeros(K - D))
    filled = np.asarray(r)[S[D:]]
    assert (np.diff(filled) <= 1e-6).all()


@every
def test_copies_wait_for_the_rest(weight):
    """Three copies and a weak outsider: one copy, the outsider, then the copies by relevance with gain 0."""
    E = jnp.float32([[1, 0], [1, 0], [1, 0], [0.6, 0.8]])
    got = dpp(E, jnp.float32([0.5, 0.7, 0.6, -0.5]), ALL[:4], 4, weight)
    assert got.indices.tolist() == ([0, 3, 1, 2] if weight == 0 else [1, 3, 2, 0])
    assert got.gains[2:].tolist() == [0, 0]


@pytest.mark.parametrize("d", [2, 5, 384])
@given(seed=SEEDS)
def test_rounding_never_makes_a_copy_span(d, seed):
    """Copies that differ by the last bits have less residual than the tolerance, whatever the picks before them."""
    rng, k = np.random.default_rng(seed), 30
    base = rng.normal(size=(20, d)) + 1
    rows = np.concatenate([base, base * rng.uniform(0.1, 10, (20, 1)), base])
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    for weight in (0.0, 0.9):
        relevance = jnp.float32(rng.normal(size=60))
        got = dpp(jnp.asarray(rows), relevance, jnp.ones(60, bool), k, weight)
        S, spans = np.asarray(got.indices), np.asarray(got.gains) != 0
        assert len(set(S.tolist())) == k
        first = S[spans] if weight else S[: min(d, k, 20)]
        assert len(set((first % 20).tolist())) == len(first) <= min(d, k, 20)


@every
@given(seed=SEEDS)
def test_rows_rounded_to_float32_span_no_more_in_float64(weight, seed):
    """Their lengths are off by float32's last bits, which are far above the tolerance in float64."""
    case = instance(seed, K)
    with jax.enable_x64(True):
        got = dpp(jnp.float64(case.candidates), jnp.float64(case.candidates @ case.query), ALL, K, weight)
    np.testing.assert_array_equal(got.gains[D:], np.zeros(K - D))
    assert sorted(got.indices.tolist()) == [*range(K)]


def test_tolerance_is_of_the_right_size():
    assert 1e-5 < rank_tolerance(jnp.zeros((3, 384))) < 1e-3
    assert rank_tolerance(jnp.zeros((3, 384))) == rank_tolerance(jnp.zeros((99, 384)))


def test_fewer_picks_are_the_first_of_more():
    (E, r), weight = arrays(instance(9, K)), 0.5
    full = dpp(E, r, ALL, K, weight)
    for k in (3, D + 2):
        part = dpp(E, r, ALL, k, weight)
        np.testing.assert_array_equal(part.indices, full.indices[:k])
        np.testing.assert_allclose(part.gains, full.gains[:k], atol=1e-4)


@every
def test_zero_rows_come_last(weight):
    E, r = jnp.float32([[0, 0], [1, 0], [1, 0], [0, 0]]), jnp.float32([0.9, 0.1, 0.2, 0.8])
    got = dpp(E, r, ALL[:4], 4, weight)
    assert got.indices.tolist() == ([1, 2, 0, 3] if weight == 0 else [2, 1, 0, 3])
    zeros = dpp(jnp.zeros((4, 2)), r, ALL[:4], 4, weight)
    assert (zeros.indices.tolist(), zeros.gains.tolist()) == ([0, 3, 2, 1], [0] * 4)


@pytest.mark.parametrize("weight", [0.5, 0.99, 0.999999])
def test_no_relevance_overflows(weight):
    r = jnp.float32([-300, 250, 300, 0, 299])
    got = dpp(jnp.eye(5), r, ALL[:5], 5, weight)
    assert got.indices.tolist() == [2, 4, 1, 3, 0]
    np.testing.assert_allclose(got.gains, weight / (1 - weight) * np.array([300, 299, 250, 0, -300]), rtol=1e-5)


def test_more_weight_is_more_relevance():
    """Near weight 1 the order is that of relevance wherever d2 is not 0."""
    E, r = arrays(instance(5, K))
    order = np.argsort(-np.asarray(r), kind="stable")[:PICKS]
    assert dpp(E, r, ALL, PICKS, 0.9999).indices.tolist() == order.tolist()


@every
@given(seed=SEEDS)
def test_padding_changes_nothing(weight, seed):
    """Masked candidates may hold any vector and any relevance."""
    case, rng = instance(seed, K - 3), np.random.default_rng(seed)
    E, r = arrays(case)
    padded = jnp.concatenate([E, jnp.float32(rng.normal(size=(3, D)))]), jnp.append(r, jnp.full(3, 9.0))
    got, want = dpp(*padded, jnp.arange(K) < K - 3, K, weight), dpp(E, r, ALL[3:], K, weight)
    np.testing.assert_array_equal(got.indices, want.indices)
    np.testing.assert_allclose(got.gains, want.gains, atol=1e-3)
    assert got.indices.tolist()[K - 3 :] == [-1] * 3


@pytest.mark.parametrize("weight", [0.5, 0.9])  # with weight 0 every first pick is as good as any
@given(seed=SEEDS)
def test_order_of_candidates_does_not_matter(weight, seed):
    case, order = instance(seed, K), np.random.default_rng(seed).permutation(K)
    E, r = arrays(case)
    moved, kept = dpp(E[order], r[order], ALL, PICKS, weight), dpp(E, r, ALL, PICKS, weight)
    np.testing.assert_array_equal(order[np.asarray(moved.indices)], kept.indices)
    np.testing.assert_allclose(moved.gains, kept.gains, atol=1e-3)


@every
@given(seed=SEEDS)
def test_copies_tie_to_the_lowest_index(weight, seed):
    E, r = (jnp.concatenate([x, x]) for x in arrays(instance(seed, 5)))
    got = dpp(E, r, ALL, K, weight).indices.tolist()
    assert sorted(got) == [*range(K)]
    assert all(got.index(i) < got.index(i + 5) for i in range(5))


@every
def test_all_equal_candidates_come_in_order(weight):
    assert dpp(jnp.full((K, 3), 3**-0.5), jnp.full(K, 0.7), ALL, PICKS, weight).indices.tolist() == [0, 1, 2, 3]


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_never_selected(weight, bad):
    E, r = arrays(instance(2, K))
    best, other = int(jnp.argmax(r)), int(jnp.argmin(r))
    got = dpp(E.at[best, 1].set(bad), r.at[other].set(bad), ALL, K, weight)
    assert sorted(got.indices.tolist()) == [-1, -1, *sorted({*range(K)} - {best, other})]
    assert np.isfinite(got.gains).all()


@every
def test_pool_smaller_than_k(weight):
    E, r = arrays(instance(6, K))
    got = dpp(E, r, jnp.arange(K) < 2, PICKS, weight)
    assert sorted(got.indices[:2].tolist()) == [0, 1]
    assert (got.indices[2:].tolist(), got.gains[2:].tolist()) == ([-1, -1], [0, 0])
    nothing = dpp(E, r, ~ALL, PICKS, weight)
    assert (nothing.indices.tolist(), nothing.gains.tolist()) == ([-1] * PICKS, [0] * PICKS)


@every
@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize("k", [0, 1, 3])
def test_sizes_zero_and_one(weight, size, k):
    got, picked = dpp(jnp.ones((size, 1)), jnp.full(size, 0.5), jnp.ones(size, bool), k, weight), min(size, k)
    assert got.indices.tolist() == [*[0] * picked, *[-1] * (k - picked)]
    gain = 0.5 * weight / (1 - weight)
    np.testing.assert_allclose(got.gains, [*[gain] * picked, *[0.0] * (k - picked)], rtol=1e-6)
    assert got.marginal_error.shape == ()


@pytest.mark.parametrize("weight", WEIGHTS[1:])
def test_one_pick_is_the_most_relevant(weight):
    E, r = arrays(instance(3, K))
    assert dpp(E, r, ALL, 1, weight).indices.tolist() == [int(jnp.argmax(r))]


@every
def test_vmap_is_a_loop(weight):
    E, r = (jnp.stack(x) for x in zip(*(arrays(instance(seed, K)) for seed in range(3)), strict=True))
    mask = jnp.arange(K) < jnp.array([K, 3, 0])[:, None]
    batch = jax.jit(jax.vmap(lambda *x: greedy_dpp(*x, PICKS, weight)))(E, r, mask)
    for b in range(3):
        one = dpp(E[b], r[b], mask[b], PICKS, weight)
        np.testing.assert_array_equal(batch.indices[b], one.indices)
        np.testing.assert_allclose(batch.gains[b], one.gains, atol=1e-4)


def test_jit_is_eager():
    (E, r), weight = arrays(instance(7, K)), 0.5
    with jax.disable_jit():
        eager = greedy_dpp(E, r, ALL, PICKS, weight)
    got = dpp(E, r, ALL, PICKS, weight)
    np.testing.assert_array_equal(got.indices, eager.indices)
    np.testing.assert_allclose(got.gains, eager.gains, atol=1e-4)


def test_the_program_neither_grows_with_k_nor_holds_a_square():
    E, r, mask = jnp.ones((40, 3)), jnp.ones(40), jnp.ones(40, bool)
    program = lambda k: str(jax.make_jaxpr(lambda *x: greedy_dpp(*x, k, 0.5))(E, r, mask))
    assert len(program(32)) < 1.1 * len(program(4))
    assert "[40,40]" not in program(32)
