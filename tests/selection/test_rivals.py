"""MMR, DPP and cosine as objectives of ``select``."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from instances import instance

from georag_jax import SelectConfig, Selection, Status, StopReason, select

K, M, D, PICKS, B = 10, 4, 5, 4, 2
MMR, DPP, COSINE = (SelectConfig(k=PICKS, objective=name, relevance_weight=0.5) for name in ("mmr", "dpp", "cosine"))
every = pytest.mark.parametrize("config", [MMR, DPP, COSINE], ids=lambda config: config.objective)
seeds = given(seed=st.integers(0, 10**6))


def draw(seed, count=B):
    cases = [instance(seed + b, K, M, D) for b in range(count)]
    return {name: np.stack([getattr(case, name) for case in cases]) for name in ("candidates", "query", "subqueries")}


def cosines(arrays):
    return np.einsum("bkd,bd->bk", arrays["candidates"], arrays["query"])


def same(got, want, fields=Selection._fields[:-1]):
    for field in fields:
        np.testing.assert_array_equal(getattr(got, field), getattr(want, field), err_msg=field)


@seeds
def test_relevance_alone_is_one_objective(seed):
    arrays = draw(seed)
    want = select(**arrays, config=COSINE)
    for config in (MMR, DPP):
        same(select(**arrays, config=replace(config, relevance_weight=1)), want)


@seeds
def test_cosine_takes_the_largest_scores(seed):
    arrays = draw(seed)
    got = select(**arrays, config=COSINE)
    np.testing.assert_array_equal(got.indices, np.argsort(-cosines(arrays), axis=1, kind="stable")[:, :PICKS])
    np.testing.assert_allclose(got.scores, -np.sort(-cosines(arrays), axis=1)[:, :PICKS], atol=2e-6)
    np.testing.assert_array_equal(got.gains, got.scores)


@seeds
def test_cosine_takes_the_largest_of_given_scores(seed):
    scores = np.random.default_rng(seed).permutation(3 * K * B).reshape(B, -1)[:, :K] / 7
    got = select(**draw(seed), scores=scores, config=COSINE)
    np.testing.assert_array_equal(got.indices, np.argsort(-scores, axis=1)[:, :PICKS])
    np.testing.assert_allclose(got.scores, -np.sort(-scores, axis=1)[:, :PICKS], rtol=1e-6)


@pytest.mark.parametrize("config", [MMR, DPP], ids=["mmr", "dpp"])
def test_given_scores_are_the_relevance(config):
    arrays = draw(1)
    toward = cosines(arrays)
    want = select(**arrays, config=config)
    other = arrays | {"query": -arrays["query"]}  # without the scores, the least relevant would come first
    got = select(**other, scores=toward, config=config)
    same(got, want, ("indices",))
    np.testing.assert_allclose(got.gains, want.gains, atol=2e-5)
    assert (select(**other, config=config).indices != want.indices).any()


def mmr(toward, gram, w):
    picks = [int(np.argmax(toward))]
    while len(picks) < PICKS:
        score = w * toward - (1 - w) * gram[picks].max(0)
        score[picks] = -np.inf
        picks.append(int(np.argmax(score)))
    return picks


def dpp(toward, gram, w):
    picks, total = [], lambda S: w / (1 - w) * toward[S].sum() + np.linalg.slogdet(gram[np.ix_(S, S)])[1]
    while len(picks) < PICKS:
        rest = [i for i in range(K) if i not in picks]
        picks.append(max(rest, key=lambda i: total([*picks, i])))
    return picks


@pytest.mark.parametrize("config, plain", [(MMR, mmr), (DPP, dpp)], ids=["mmr", "dpp"])
@seeds
def test_picks_are_those_of_the_formula(config, plain, seed):
    arrays = draw(seed)
    got = select(**arrays, config=config)
    for b, (pool, toward) in enumerate(zip(arrays["candidates"], cosines(arrays), strict=True)):
        assert got.indices[b].tolist() == plain(toward, pool @ pool.T, 0.5)


@every
@seeds
def test_what_holds_beside_the_picks_is_what_holds_for_every_objective(config, seed):
    arrays = draw(seed)
    got, default = select(**arrays, config=config), select(**arrays, config=SelectConfig(k=PICKS))
    for field in ("demand", "quality", "status", "stopped", "marginal_error"):
        np.testing.assert_allclose(getattr(got, field), getattr(default, field), atol=1e-6, err_msg=field)
    assert got.indices.dtype == np.int32
    for b, picks in enumerate(got.indices):
        gram = arrays["candidates"][b] @ arrays["candidates"][b].T
        covered = [(gram[:, picks[: t + 1]].max(1).clip(0) * got.demand[b]).sum() for t in range(PICKS)]
        np.testing.assert_allclose(got.coverage[b], covered, atol=2e-6)
        np.testing.assert_allclose(got.scores[b], cosines(arrays)[b][picks], atol=2e-6)


@pytest.mark.parametrize("config", [DPP, replace(MMR, relevance_weight=0.3)], ids=["dpp", "mmr"])
def test_planted_duplicates_are_left(config):
    """Five directions, each twice: five picks of five directions, though the copies are as relevant."""
    rng = np.random.default_rng(0)
    base = np.linalg.qr(rng.normal(size=(D, D)))[0] + 0.05 * rng.normal(size=(D, D))
    pool, query = np.concatenate([base, base * 2]), base.sum(0)
    got = select(pool, query, config=replace(config, k=D))
    assert sorted(got.indices) == list(range(D))
    if config.objective == "dpp":
        assert sorted(select(pool, query, config=replace(config, k=K)).indices) == list(range(K))


@every
def test_more_slots_than_candidates(config):
    arrays = draw(2)
    few = arrays | {"candidates": arrays["candidates"][:, :2]}
    got = select(**few, config=config)
    assert (np.sort(got.indices[:, :2], 1) == [0, 1]).all()
    assert (got.indices[:, 2:] == -1).all()
    assert not got.gains[:, 2:].any()
    assert not got.scores[:, 2:].any()
    assert (got.status & Status.POOL_EXHAUSTED).all()
    assert (got.stopped == StopReason.POOL_EXHAUSTED).all()


@every
def test_what_a_mask_leaves_out_is_never_picked(config):
    arrays, mask = draw(3), np.random.default_rng(3).random((B, K)) < 0.7
    mask[:, -1] = True
    filled = arrays | {"candidates": np.where(mask[..., None], arrays["candidates"], np.nan)}
    got = select(**filled, candidate_mask=mask, config=config)
    for b in range(B):
        kept = np.flatnonzero(mask[b])
        alone = {name: x[b] for name, x in arrays.items()}
        want = select(**alone | {"candidates": arrays["candidates"][b, kept]}, config=config)
        assert got.indices[b].tolist() == kept[want.indices].tolist()
        np.testing.assert_allclose(got.gains[b], want.gains, atol=2e-5)


@every
def test_a_batch_is_the_loop(config):
    arrays = draw(4)
    got = select(**arrays, config=config)
    for b in range(B):
        want = select(**{name: x[b] for name, x in arrays.items()}, config=config)
        np.testing.assert_array_equal(got.indices[b], want.indices)
        np.testing.assert_allclose(got.gains[b], want.gains, atol=2e-5)
