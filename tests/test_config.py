from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

from georag_jax import SelectConfig

PAPER = SelectConfig.preset("paper")
OBJECTIVES = ["sinkhorn", "facility_location", "entropic_facility_location"]
NEUTRAL = ("candidates", 0.0, 1.0, 0.0, 0.0)
NAN, INF = float("nan"), float("inf")


def test_presets():
    assert SelectConfig.preset("default") == SelectConfig()
    assert (PAPER.objective, PAPER.epsilon, PAPER.iterations) == ("sinkhorn", 0.01, 100)
    assert (PAPER.solver, SelectConfig().solver) == ("algorithm2", "converged")
    assert (PAPER.alpha, PAPER.beta, PAPER.fusion) == (1, 1, "product")
    assert (PAPER.prior_temperature, PAPER.likelihood_temperature) == (1, None)
    assert (PAPER.gate, PAPER.gate_losses, PAPER.first_pick) == (True, True, "query")
    assert (PAPER.subqueries_kept, PAPER.quality, PAPER.quality_threshold) == (10, "overlap_novelty", 0.05)
    assert (PAPER.k, PAPER.without_subqueries) == (5, "prior")
    with pytest.raises(ValueError, match=r"^preset: expected one of \['default', 'paper'\], got 'best'"):
        SelectConfig.preset("best")


def test_frozen_and_hashable():
    assert len({SelectConfig(), SelectConfig.preset("default"), PAPER, replace(PAPER, k=3)}) == 3
    with pytest.raises(FrozenInstanceError):
        PAPER.k = 3


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_change_of_objective_alone_is_valid(objective):
    service = replace(SelectConfig(), objective=objective).service
    assert (service == NEUTRAL) == (objective != "facility_location")
    assert replace(PAPER, objective=objective).service == NEUTRAL


CHOICES = "objective", "solver", "first_pick", "fusion", "quality", "without_subqueries", "demand_points"
WHOLE = "k", "iterations", "subqueries_kept"
POSITIVE = "epsilon", "prior_temperature", "likelihood_temperature", "similarity_power"
SHARES = "quality_threshold", "service_discount", "ownership", "consensus"
REFUSED = [
    *[(field, value) for field in CHOICES for value in ("best", "", 1)],
    *[(field, None) for field in ("k", "iterations", "epsilon", "prior_temperature", "quality_threshold")],
    *[(field, value) for field in WHOLE for value in (0, -1, 2.0, True, "3", NAN)],
    *[(field, value) for field in POSITIVE for value in (0, -1.0, NAN, INF, "1", True)],
    *[(field, value) for field in SHARES for value in (-0.1, 1.1, NAN, "1", True)],
    *[(field, value) for field in ("alpha", "beta") for value in (-0.1, NAN, INF, "1", None)],
    *[(field, value) for field in ("gate", "gate_losses") for value in (1, None, "yes")],
    *[("center", value) for value in ((NAN,), [INF, 0.0], ((1.0, 2.0),), 3.0, np.ones((2, 2)))],
]


@pytest.mark.parametrize("field, value", REFUSED)
def test_out_of_range_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=f"^{field}: expected .*, got"):
        SelectConfig(**{field: value})


def test_one_exponent_must_act():
    with pytest.raises(ValueError, match="^alpha, beta: expected at least one above 0"):
        SelectConfig(alpha=0, beta=0)


@pytest.mark.parametrize("objective", ["sinkhorn", "entropic_facility_location"])
@pytest.mark.parametrize(
    "field, value, neutral",
    [
        ("demand_points", "subqueries", "candidates"),
        ("service_discount", 0.3, 0.0),
        ("similarity_power", 4.0, 1.0),
        ("ownership", 0.5, 0.0),
        ("consensus", 0.5, 0.0),
    ],
)
def test_options_that_an_objective_lacks(objective, field, value, neutral):
    assert (
        getattr(SelectConfig(objective=objective, **{field: neutral}).service, field.split("_")[-1], neutral) == neutral
    )
    with pytest.raises(
        ValueError, match=f"^{field}: expected None or .* as objective '{objective}' has no such option"
    ):
        SelectConfig(objective=objective, **{field: value})
    assert getattr(SelectConfig(**{field: value}), field) == value


def test_numbers_become_plain():
    config = SelectConfig(k=np.int64(3), epsilon=np.float32(0.5), alpha=1, center=np.array([1, 2], np.float32))
    kinds = {field.name: type(getattr(config, field.name)) for field in fields(config)}
    assert [kinds[name] for name in ("k", "epsilon", "alpha", "center")] == [int, float, float, tuple]
    assert config.center == (1.0, 2.0)
    assert config == SelectConfig(k=3, epsilon=0.5, alpha=1.0, center=[1.0, 2.0])
    assert hash(config) == hash(SelectConfig(k=3, epsilon=0.5, alpha=1.0, center=(1, 2)))
