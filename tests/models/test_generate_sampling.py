"""What is drawn, against the exact distribution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from georag_jax.models.chat import Sampling
from georag_jax.models.sampling import Knobs, choose, mode_of, row_keys


def frequencies(logits, sampling, draws=20_000):
    rows = jnp.tile(jnp.asarray(logits, jnp.float32), (draws, 1))
    keys = row_keys(sampling.seed, np.arange(draws, dtype=np.int32))
    picks = jax.jit(choose, static_argnames="mode")(rows, keys, 3, Knobs.of(sampling), mode=mode_of(sampling))
    return np.bincount(np.asarray(picks), minlength=len(logits))


def distribution(logits, sampling):
    """By sorting, in float64."""
    scaled = np.asarray(logits, np.float64) / sampling.temperature
    p = np.exp(scaled - scaled.max())
    order = np.argsort(-p)
    if sampling.top_k:
        p[order[sampling.top_k :]] = 0
    p /= p.sum()
    before = np.cumsum(p[order]) - p[order]
    p[order[before >= sampling.top_p]] = 0
    return p / p.sum()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0, seed=1),
        Sampling(temperature=0.5, seed=2),
        Sampling(temperature=1.0, top_p=0.8, seed=3),
        Sampling(temperature=1.3, top_k=5, seed=4),
        Sampling(temperature=1.5, top_k=40, top_p=0.6, seed=5),
        Sampling(temperature=1.0, top_p=1e-6, seed=6),
        Sampling(temperature=1.0, top_k=1, seed=2**40 + 7),
    ],
    ids=str,
)
@pytest.mark.parametrize("size", [11, 1300])
def test_frequencies_are_those_of_the_distribution(sampling, size):
    logits = np.random.default_rng(size).normal(0, 2, size).astype(np.float32)
    want, got = distribution(logits, sampling), frequencies(logits, sampling)
    assert not got[want == 0].any()
    expected = want * got.sum()
    often = expected >= 5
    if often.sum() < 2:
        assert got[often].sum() == got.sum()
        return
    rest = got.sum() - got[often].sum(), got.sum() - expected[often].sum()
    square = ((got[often] - expected[often]) ** 2 / expected[often]).sum() + (rest[0] - rest[1]) ** 2 / max(rest[1], 5)
    freedom = often.sum()  # far beyond 1 in 10 000
    assert square < freedom + 4 * np.sqrt(2 * freedom) + 6


def test_greedy_ties_go_to_the_lowest_token():
    assert not frequencies([1.0, 3.0, 3.0, 0.0], Sampling(temperature=0.0), 5)[[0, 2, 3]].any()


def test_tokens_as_likely_as_the_last_one_kept_are_kept():
    got = frequencies([2.0, 1.0, 1.0, 0.0], Sampling(temperature=1.0, top_k=2))
    assert (got[:3] > 0).all()
    assert got[3] == 0


def test_other_steps_draw_other_numbers():
    logits, keys, knobs = jnp.zeros((64, 1000)), row_keys(0, np.arange(64, dtype=np.int32)), Knobs.of(Sampling())
    first, second = (np.asarray(choose(logits, keys, jnp.int32(step), knobs, "all")) for step in (1, 2))
    assert (first != second).mean() > 0.9
    assert len(set(first.tolist())) > 50
