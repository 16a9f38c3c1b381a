"""The default preset against a plain NumPy reading of its formula, and what each of its terms is for."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from georag_jax import SelectConfig, reverse_validation, select
from georag_jax.kernels.coverage import facility_location

DEFAULT = SelectConfig.preset("default")


def reference(affinity, overlap, k, power=10.0, ownership=0.7, discount=0.3, consensus=0.1, saturation=0.15):
    """Picks of the default objective: float64, one candidate at a time."""
    weight = np.where(overlap >= 0.05, overlap / (overlap + saturation), 0)
    weight = weight / weight.sum() if weight.sum() else np.full(len(weight), 1 / len(weight))
    blended = (1 - consensus) * affinity + consensus * weight @ affinity
    service = blended**power
    service = service / service.sum(1, keepdims=True) ** ownership

    def value(chosen):
        served = -np.sort(-service[:, chosen], axis=1)
        return weight @ (served @ discount ** np.arange(len(chosen)))

    picks = []
    for _ in range(k):
        gains = [-np.inf if i in picks else value([*picks, i]) for i in range(affinity.shape[1])]
        picks.append(int(np.argmax(gains)))
    return picks, value(picks), weight


def problem(seed, m=6, K=40, d=12, r=10):
    rng = np.random.default_rng(seed)
    own = np.stack([rng.permutation(2 * K)[:r] for _ in range(m)])  # about half of each list lies outside the pool
    return {
        "candidates": rng.normal(size=(K, d)),
        "query": rng.normal(size=d),
        "subqueries": rng.normal(size=(m, d)),
        "affinity": rng.uniform(size=(m, K)),
        "retrieved": own,
    }


@pytest.mark.parametrize("seed", range(8))
def test_picks_are_those_of_the_formula(seed):
    given = problem(seed)
    overlap = (given["retrieved"] < 40).mean(1)
    picks, value, weight = reference(given["affinity"], overlap, 5)
    found = select(**given)
    assert found.indices.tolist() == picks
    np.testing.assert_allclose(found.quality, weight, rtol=1e-5)
    assert found.gains.sum() == pytest.approx(value, rel=1e-4)


def test_weights_by_id_are_those_by_number():
    given = problem(0)
    by_id = reverse_validation(given["retrieved"].tolist(), range(40), saturation=0.15)
    np.testing.assert_allclose(by_id, select(**given).quality, rtol=1e-6)


def test_saturation_lies_between_equal_weights_and_proportional_ones():
    given = problem(1)
    spread = lambda s: np.ptp(select(**given, config=replace(DEFAULT, quality_saturation=s)).quality)
    assert spread(1e-6) < spread(0.15) < spread(None)
    assert spread(1e-6) == pytest.approx(0, abs=1e-5)
    assert spread(1e6) == pytest.approx(spread(None), rel=1e-4)


def test_ownership_serves_the_side_with_little_evidence():
    """Ten chunks serve one side well and one chunk serves the other less well: only shared credit reaches it first."""
    affinity = np.full((2, 11), 0.05)
    affinity[0, :10] = np.linspace(0.9, 0.8, 10)
    affinity[1, 10] = 0.6
    given = {"candidates": np.eye(11), "query": np.ones(11), "subqueries": np.ones((2, 11)), "affinity": affinity}
    first = lambda share: select(**given, config=replace(DEFAULT, k=1, ownership=share, consensus=0)).indices[0]
    assert first(0.0) == 0
    assert first(1.0) == 10


def test_full_ownership_shares_one_unit_a_point():
    similarity = jnp.asarray(np.random.default_rng(2).uniform(size=(4, 9)), jnp.float32)
    everything = facility_location(similarity, jnp.full(4, 0.25), jnp.arange(9), discount=1.0, ownership=1.0)
    assert float(everything) == pytest.approx(1, abs=1e-5)


def test_consensus_prefers_what_several_subqueries_like():
    affinity = np.array([[0.9, 0.75, 0.1], [0.0, 0.45, 0.7]])  # squares: .81 and .77 served; consensus closes the gap
    given = {"candidates": np.eye(3), "query": np.ones(3), "subqueries": np.ones((2, 3)), "affinity": affinity}
    plain = replace(DEFAULT, k=1, ownership=0, similarity_power=2, consensus=0)
    assert select(**given, config=plain).indices[0] == 0
    assert select(**given, config=replace(plain, consensus=0.5)).indices[0] == 1


def test_rows_that_nothing_serves_stay_defined():
    affinity = np.zeros((2, 5))
    affinity[0] = [0.1, 0.9, 0.2, 0.3, 0.4]
    found = select(np.eye(5), np.ones(5), np.ones((2, 5)), affinity=affinity)
    assert found.indices[0] == 1
    assert np.isfinite(found.gains).all()


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1e30])
def test_no_length_of_a_float32_vector_changes_the_picks(scale):
    given = problem(3)
    small = {
        name: (given[name] * np.float64(scale)).astype(np.float32) for name in ("candidates", "query", "subqueries")
    }
    assert select(**(given | small)).indices.tolist() == select(**given).indices.tolist()


def test_huge_weights_and_scores_do_not_overflow():
    given = problem(4)
    weights = select(**given, weights=np.full(6, 3e38)).quality
    np.testing.assert_allclose(weights, 1 / 6, rtol=1e-6)
    paper = replace(SelectConfig.preset("paper"), iterations=5, prior_temperature=1e-3)
    found = select(**given, scores=np.linspace(0, 1e38, 40), config=paper)
    assert found.demand.sum() == pytest.approx(1, abs=1e-5)


def test_empty_lists_are_none_where_there_are_no_subqueries():
    given = problem(5)
    found = select(given["candidates"], given["query"], [], retrieved=[])
    assert found.quality.shape == (0,)
    assert (found.indices >= 0).all()
