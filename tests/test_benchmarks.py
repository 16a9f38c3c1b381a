"""The benchmark's own pieces: baselines against brute force, its NumPy twin against the package, its report."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

import georag_jax as gr
from benchmarks import baselines, crossfit, data, transport, twin

N, SIZE, M, D, K = 6, 20, 4, 6, 4


@pytest.fixture(scope="module")
def pool():
    rng = np.random.default_rng(0)
    unit = lambda x: (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)
    candidates, query = unit(rng.normal(size=(N, SIZE, D)) + 0.8), unit(rng.normal(size=(N, D)) + 0.8)
    subqueries = unit(rng.normal(size=(N, M, D)) + 0.5)
    affinity = np.clip(np.einsum("nmd,nKd->nmK", subqueries, candidates), 0, 1)
    own = np.stack([[rng.permutation(40)[:6] for _ in range(M)] for _ in range(N)])
    numbers = np.stack([rng.permutation(40)[:SIZE] for _ in range(N)])
    place = lambda row, entries: np.array([row.tolist().index(e) if e in row else SIZE + e for e in entries])
    arguments = {
        "candidates": candidates,
        "query": query,
        "subqueries": subqueries,
        "affinity": affinity,
        "retrieved": np.stack([[place(numbers[i], each) for each in own[i]] for i in range(N)]),
        "primary": np.tile(np.arange(SIZE), (N, 1)),
    }
    gold = [
        set(rng.choice(numbers[i] if i else np.arange(40, 44), 1 + i % 3, replace=False).tolist()) for i in range(N)
    ]
    question = np.clip(np.einsum("nd,nKd->nK", query, candidates), 0, 1)
    return data.Pool(numbers, arguments, gold, question, own, numbers, None)


def test_mmr(pool):
    got = baselines.mmr(pool, K, 0.7)
    for candidates, query, picks in zip(pool.arguments["candidates"], pool.arguments["query"], got, strict=True):
        want = []
        for _ in range(K):
            score = lambda i: (
                0.7 * candidates[i] @ query - 0.3 * max([candidates[i] @ candidates[j] for j in want], default=0)
            )
            want.append(max((i for i in range(SIZE) if i not in want), key=score))
        assert picks.tolist() == want


@pytest.mark.parametrize("sharpness", [5, None])
def test_dpp_takes_the_largest_determinant(pool, sharpness):
    got = baselines.dpp(pool, K, sharpness)
    for candidates, query, picks in zip(pool.arguments["candidates"], pool.arguments["query"], got, strict=True):
        items, relevance = candidates.astype(float), (candidates @ query).astype(float)
        r = np.maximum(relevance, 0) if sharpness is None else np.exp(sharpness * relevance)
        kernel = r[:, None] * (items @ items.T) * r
        for t in range(K):
            volume = lambda i, t=t, kernel=kernel, picks=picks: np.linalg.det(
                kernel[np.ix_([*picks[:t], i], [*picks[:t], i])]
            )
            assert picks[t] == max((i for i in range(SIZE) if i not in picks[:t]), key=volume)


def test_subquery_rankings(pool):
    affinity = pool.arguments["affinity"]
    for i, picks in enumerate(baselines.subquery_max(pool, K)):
        assert picks.tolist() == sorted(range(SIZE), key=lambda c, i=i: -max(affinity[i, :, c]))[:K]
    lists = zip(pool.own, pool.primary, strict=True)
    weight = np.stack([gr.reverse_validation(own, row, "overlap_novelty") for own, row in lists])
    for i, picks in enumerate(baselines.subquery_mean_validated(pool, K)):
        assert picks.tolist() == sorted(range(SIZE), key=lambda c, i=i: -(weight[i] @ affinity[i, :, c]))[:K]


def test_ceiling(pool):
    got = baselines.ceiling(pool, 3)
    for i, k in itertools.product(range(N), (1, 2, 3)):
        sets = itertools.combinations(pool.numbers[i].tolist(), k)
        assert got[i, k - 1] == any(pool.gold[i] <= set(each) for each in sets)


@pytest.mark.parametrize("quality", ["uniform", "overlap", "overlap_novelty"])
@pytest.mark.parametrize("saturation", [None, 0.15])
def test_twin_weights(pool, quality, saturation):
    got = twin.weights(*baselines.pool_factors(pool), quality, saturation)
    for own, primary, weight in zip(pool.own, pool.primary, got, strict=True):
        want = gr.reverse_validation(own.tolist(), primary.tolist(), quality, saturation=saturation)
        np.testing.assert_allclose(weight, want, rtol=1e-5)


@pytest.mark.parametrize(
    "setting",
    [
        {},
        {"power": 10, "ownership": 0.7, "discount": 0.3, "consensus": 0.1, "weights": "overlap saturated at .15"},
        {"power": 2, "ownership": 1, "discount": 0.6, "weights": "overlap"},
        {"temperature": 0.04, "discount": 0.3},
        {"temperature": 0.02, "discount": 0, "weights": "overlap"},
    ],
    ids=str,
)
def test_twin_picks_as_the_package(pool, setting, monkeypatch):
    monkeypatch.setattr(crossfit, "K", K)
    chosen = crossfit.Setting(**setting)
    quality, _, saturation = chosen.weights.partition(" saturated at ")
    points = chosen.temperature is None
    config = gr.SelectConfig(
        k=K,
        quality=quality,
        quality_saturation=float(saturation) if saturation else None,
        likelihood_temperature=chosen.temperature,
        demand_points="subqueries" if points else "candidates",
        service_discount=chosen.discount,
        similarity_power=chosen.power,
        ownership=chosen.ownership,
        consensus=chosen.consensus if points else None,
    )
    assert crossfit.picks(pool, chosen).tolist() == gr.select(**pool.arguments, config=config).indices.tolist()


def test_the_presets_setting_is_the_preset(pool, monkeypatch):
    monkeypatch.setattr(crossfit, "K", K)
    want = gr.select(**pool.arguments, config=gr.SelectConfig(k=K)).indices
    assert crossfit.picks(pool, crossfit.families()["preset default"][0]).tolist() == want.tolist()


@pytest.mark.parametrize("first_pick, gate_losses", [("query", True), ("demand", False)])
def test_transport_picks_as_the_package(pool, first_pick, gate_losses):
    how = {"solver": "algorithm2", "epsilon": 0.1, "first_pick": first_pick, "gate_losses": gate_losses}
    config = gr.SelectConfig(objective="sinkhorn", k=K, **how)
    got = gr.select(**pool.arguments, config=config)
    for i, vectors in enumerate(pool.arguments["candidates"].astype(float)):
        gram, first = vectors @ vectors.T, None
        if first_pick == "query":
            first = int((vectors @ pool.arguments["query"][i]).argmax())
        rest = (got.demand[i], K, 0.1, 100, gram, first, gate_losses)
        picks, error = transport.greedy_transport(1 - gram, *rest)
        assert picks == got.indices[i].tolist()
        assert error == pytest.approx(got.marginal_error[i], abs=1e-5)


def test_converged_is_where_the_sweeps_end(pool):
    rng = np.random.default_rng(1)
    vectors = pool.arguments["candidates"][0].astype(float)
    costs, mass = 1 - vectors @ vectors.T, rng.dirichlet(np.ones(SIZE))
    kernel, free = np.exp(-costs / 0.05), np.arange(3, SIZE)
    long, error = transport.swept(costs, kernel, mass, [0, 1, 2], free, 5000)
    short, column_error = transport.converged(costs, kernel, mass, [0, 1, 2], free, 1e-9)
    assert error.max() < 1e-9
    assert column_error.max() <= 1e-9
    np.testing.assert_allclose(short, long, atol=1e-8)


def test_a_question_is_counted_under_what_the_others_chose():
    hits = np.zeros((2, 1, 4, 3), bool)
    hits[0, 0, :2], hits[1, 0, 2:] = True, True  # each setting is right on one half alone
    fold = np.array([0, 0, 1, 1])
    assert crossfit._crossfit(hits, fold).sum() == 0
    hits[0], hits[1] = False, True
    assert crossfit._crossfit(hits, fold).tolist() == [[4, 4, 4]]


def test_report_from_a_small_dict():
    from benchmarks.report import report

    row = {"questions": 10, "intervals": [[0, 1]] * 3}
    rows = [
        row
        | {"set": "hotpotqa", "pool": "dense", "selector": "cosine top-k", "counts": [1, 2, 3], "published": [1, 2, 4]},
        row | {"set": "hotpotqa", "pool": "dense", "selector": "preset default", "counts": [5, 6, 7]},
        row | {"set": "hotpotqa", "pool": "dense", "selector": "default with power 4", "counts": [5, 6, 8]},
    ]
    config = replace(gr.SelectConfig(), service_discount=0.25)
    from benchmarks.rows import settings

    result = {
        "environment": {"commit": "abc", "jax": "1", "cores": 2},
        "settings": {"candidates": 200, "k": 5, "targets": {"dense": {"hotpotqa": [5, 7, 7]}}}
        | {"configs": {"preset default": settings(config)}},
        "rows": rows,
        "decomposer": None,
    }
    text = report(json.loads(json.dumps(result)))
    for said in (
        "| hotpotqa dense | 5 / 7 / 7 | 5 / 6 / 7 | 1 |",
        "Missing to the targets: 1",
        "hotpotqa dense @2, hotpotqa dense @5",
        "| default with power 4 | 5 / 6 / 8 | 19 | 1 |",
        "2 of its 3 counts are reproduced exactly; 1 are not: cosine top-k, hotpotqa dense @5: 3, earlier 4",
        "demand_points subqueries, discount 0.25, power 10, ownership 0.7, consensus 0.1",
        "Not measured",
    ):
        assert said in text
    assert "None" not in text.split("## Settings")[0]
