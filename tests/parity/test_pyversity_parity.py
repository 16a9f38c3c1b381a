"""Picks and gains against pyversity, whose ``diversity`` is 1 - relevance weight.

It clips cosines at 0 where MMR here takes them signed, so that vectors without negative entries are compared. Its
determinantal kernel has the qualities exp(beta z) of z-scored relevances z with beta = (1 - diversity) * scale: the
relevances z with the weight 2 beta / (1 + 2 beta) here. Beyond the rank of the kernel its picks are arbitrary.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from georag_jax.kernels import greedy_dpp, greedy_mmr, top_relevance

pytestmark = pytest.mark.parity
K, D, PICKS = 60, 24, 8
mmr = jax.jit(greedy_mmr, static_argnames=("k", "relevance_weight"))
dpp = jax.jit(greedy_dpp, static_argnames=("k", "relevance_weight"))
many = pytest.mark.parametrize("seed", range(4))


@pytest.fixture(scope="module")
def peer():
    return pytest.importorskip("pyversity", reason="pyversity is not installed")


def problem(seed, signed):
    rng = np.random.default_rng(seed)
    E = rng.normal(size=(6, D))[rng.integers(0, 6, K)] + 0.5 * rng.normal(size=(K, D))
    E = E if signed else np.abs(E)
    E = (E / np.linalg.norm(E, axis=1, keepdims=True)).astype(np.float32)
    return E, (E @ E[:3].mean(0) + 0.01 * rng.normal(size=K)).astype(np.float32)


def diversify(peer, E, r, strategy, diversity, **more):
    return peer.diversify(E, r, PICKS, strategy=strategy, diversity=diversity, **more)


@many
@pytest.mark.parametrize("diversity", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_mmr(close, peer, seed, diversity):
    E, r = problem(seed, signed=False)
    want = diversify(peer, E, r, "mmr", diversity)
    got = mmr(jnp.asarray(E), jnp.asarray(r), jnp.ones(K, bool), PICKS, 1 - diversity)
    assert got.indices.tolist() == want.indices.tolist()
    close(got.gains, want.selection_scores)


def test_mmr_of_negative_cosines(peer):
    """What clipping does: an opposite row is worth no more than an unrelated one."""
    E, r = np.float32([[1, 0], [-1, 0], [0, 1]]), np.float32([0.9, 0.1, 0.2])
    assert peer.diversify(E, r, 2, strategy="mmr", diversity=0.5).indices.tolist() == [0, 2]
    assert mmr(jnp.asarray(E), jnp.asarray(r), jnp.ones(3, bool), 2, 0.5).indices.tolist() == [0, 1]


@many
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("diversity, scale", [(0.1, 1.0), (0.5, 1.0), (0.5, 3.0), (0.9, 1.0)])
def test_dpp(peer, seed, signed, diversity, scale):
    E, r = problem(seed, signed)
    want = diversify(peer, E, r, "dpp", diversity, scale=scale)
    beta, z = (1 - diversity) * scale, (r - r.mean()) / r.std()
    got = dpp(jnp.asarray(E), jnp.asarray(z), jnp.ones(K, bool), PICKS, 2 * beta / (1 + 2 * beta))
    assert got.indices.tolist() == want.indices.tolist()
    np.testing.assert_allclose(got.gains, np.log(want.selection_scores), atol=2e-4)


@many
def test_relevance_alone(peer, seed):
    E, r = problem(seed, signed=True)
    got = top_relevance(jnp.asarray(r), jnp.ones(K, bool), PICKS)
    for strategy in ("mmr", "dpp"):
        assert got.indices.tolist() == diversify(peer, E, r, strategy, 0.0).indices.tolist()
