"""Metrics against hand-counted cases, and intervals against known distributions."""

import numpy as np
import pytest

from georag_jax import metrics


def test_recall_counts_each_gold_passage_once():
    assert metrics.recall(["a", "a", "b", "x"], ["a", "b"], 4).tolist() == [0.5, 0.5, 1, 1]


def test_recall_of_fewer_picks_than_k_stays_level():
    assert metrics.recall(["a"], ["a", "b"], 3).tolist() == [0.5, 0.5, 0.5]


def test_no_gold_is_no_number():
    assert np.isnan(metrics.recall(["a"], [], 2)).all()
    assert np.isnan(metrics.recall_ceiling(["a"], [], 2)).all()
    assert np.isnan(metrics.all_gold(np.array([np.nan]))).all()


def test_ceiling_is_bounded_by_the_pool_and_by_k():
    assert metrics.recall_ceiling(["a", "b", "x"], ["a", "b", "c", "d"], 3).tolist() == [0.25, 0.5, 0.5]


def test_no_choice_beats_the_ceiling():
    rng = np.random.default_rng(0)
    for _ in range(50):
        pool, gold = rng.permutation(12)[:8].tolist(), rng.permutation(12)[:3].tolist()
        picks = rng.permutation(pool).tolist()
        assert (metrics.recall(picks, gold, 5) <= metrics.recall_ceiling(pool, gold, 5)).all()


def test_all_gold_needs_every_passage():
    assert metrics.all_gold(np.array([0.5, 1.0])).tolist() == [0, 1]


def test_interval_holds_the_mean_and_narrows_with_n():
    rng = np.random.default_rng(1)
    few, many = (metrics.interval(rng.integers(0, 2, n)) for n in (40, 4000))
    for found in (few, many):
        assert found.low <= found.mean <= found.high
    assert many.high - many.low < (few.high - few.low) / 5


def test_interval_has_the_width_of_the_normal_approximation():
    values = np.r_[np.ones(300), np.zeros(700)]
    found = metrics.interval(values)
    assert found.mean == pytest.approx(0.3)
    assert found.high - found.low == pytest.approx(2 * 1.96 * np.sqrt(0.3 * 0.7 / 1000), rel=0.05)


def test_interval_leaves_out_missing_values_and_is_the_same_every_time():
    values = np.array([0.2, np.nan, 0.9, 0.4])
    assert metrics.interval(values) == metrics.interval(np.array([0.2, 0.9, 0.4]))


def test_interval_of_nothing():
    assert np.isnan(metrics.interval(np.array([]))).all()


@pytest.mark.parametrize(
    "answer, accepted, exact, f1",
    [
        ("The  Elbe.", ["elbe"], 1, 1),
        ("river Elbe", ["the Elbe", "an elbe-river"], 0, 2 / 3),
        ("an Elbe, a Loire", ["Loire Elbe"], 0, 1),
        ("Elbe Elbe", ["Elbe"], 0, 2 / 3),
        ("Yes.", ["yes"], 1, 1),
        ("yes it is", ["yes"], 0, 0),
        ("no", ["no man"], 0, 0),
        ("", ["Elbe"], 0, 0),
        ("the", ["A"], 1, 0),
        ("theatre", ["atre"], 0, 0),
        ("J.K. Rowling", ["JK Rowling"], 1, 1),
    ],
)
def test_answers_by_the_rules_of_hotpotqa(answer, accepted, exact, f1):
    assert metrics.exact_match(answer, accepted) == exact
    assert metrics.f1(answer, accepted) == pytest.approx(f1)


def test_answers_without_an_accepted_one_are_no_number():
    assert np.isnan(metrics.exact_match("x", []))
    assert np.isnan(metrics.f1("x", []))
