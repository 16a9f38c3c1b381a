"""The language model that stands in for a reranker, over a scorer that knows which words count."""

import numpy as np
import pytest

from georag_jax._types import Reranker
from georag_jax.models.reranking import OptionScorer, YesNoReranker, sigmoid


class Counting:
    """Log-odds of Yes: how often the passage says "bridge", less 1."""

    fingerprint = "counting:1"

    def __init__(self):
        self.chats = []

    def option_scores(self, chats, options):
        assert tuple(options) == ("Yes", "No")
        self.chats += chats
        odds = np.array([chat[-1]["content"].count("bridge") - 1 for chat in chats], float).reshape(-1)
        return np.stack([np.log(sigmoid(odds)), np.log(sigmoid(-odds))], axis=1).astype(np.float32)


PAIRS = [("which way?", "bridge bridge bridge"), ("which way?", "hill"), ("", "bridge")]


def test_the_score_is_the_odds_of_yes_against_no():
    scores = YesNoReranker(Counting(), calibrated=False).score(PAIRS)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, [2, -1, 0], atol=1e-6)


def test_a_calibrated_score_is_the_share_of_yes():
    scores = YesNoReranker(Counting()).score(PAIRS)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, 1 / (1 + np.exp([-2.0, 1.0, 0.0])), atol=1e-6)


def test_the_model_is_instructed_and_shown_both_texts():
    model = Counting()
    YesNoReranker(model).score([("who {built} it?", "a\nbridge {0}")])
    system, user = model.chats[0]
    assert system["role"] == "system"
    assert "Yes" in system["content"]
    assert "No" in system["content"]
    assert "Question: who {built} it?" in user["content"]
    assert "Passage: a\nbridge {0}" in user["content"]


def test_long_texts_are_cut():
    model = Counting()
    YesNoReranker(model).score([("q" * 9999, "p" * 9999)])
    assert 4000 < len(model.chats[0][1]["content"]) < 4200


def test_no_pairs():
    assert YesNoReranker(Counting()).score([]).shape == (0,)


def test_it_is_a_reranker_and_says_which():
    model = Counting()
    assert isinstance(model, OptionScorer)
    calibrated, raw = YesNoReranker(model), YesNoReranker(model, calibrated=False)
    assert isinstance(calibrated, Reranker)
    assert calibrated.fingerprint.startswith("yes-no:counting:1:")
    assert calibrated.fingerprint != raw.fingerprint


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_far_logits_stay_finite(dtype):
    found = sigmoid(np.array([-1e4, -1, 0, 1, 1e4], dtype))
    assert found.dtype == dtype
    np.testing.assert_allclose(found, [0, 0.26894142, 0.5, 0.73105858, 1], rtol=1e-6)
