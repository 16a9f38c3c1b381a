import json
from pathlib import Path

import numpy as np
import pytest

from georag_jax.cli import main
from georag_jax.cli import select as command
from georag_jax.models.language_model import LanguageModel

MODELS = Path(__file__).parents[1] / "models" / "data"


@pytest.fixture
def asked(folder, encoder, capsys):
    """Asks one question with a reranker; returns exit code, output and messages."""

    def asked(reranker, *more):
        arguments = ["ask", str(folder / "index"), "Which river and which bridge?", "--encoder", encoder, "--json"]
        code = main([*arguments, "--reranker", str(reranker), "--candidates", "12", *more])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return asked


def test_a_cross_encoder_scores_the_pool(asked):
    code, out, err = asked(MODELS / "xlm_reranker", "--set", "objective=cosine")
    assert code == 0
    picks = json.loads(out)
    assert len(picks["picks"]) == 5
    assert picks["picks"] != picks["cosine"]
    assert err == ""


def test_settings_that_read_no_scores_are_refused_before_anything_is_loaded(asked):
    code, _, err = asked(MODELS / "no such directory")
    assert code == 2
    assert "--reranker: expected settings that read scores" in err


def test_several_labels_are_refused(asked):
    code, _, err = asked(MODELS / "bert_nli", "--preset", "paper")
    assert code == 2
    assert "--reranker: expected a cross-encoder with one label, got ['CONTRADICTION'" in err


def test_what_is_no_model_is_refused(asked):
    code, _, err = asked(MODELS / "no such directory", "--preset", "paper")
    assert code == 2
    assert "georag: --reranker: " in err
    assert "no such directory" in err


def test_a_language_model_stands_in_and_says_so(asked, monkeypatch):
    class Model:
        fingerprint = "fake:1"

        def option_scores(self, chats, options):
            liked = [chat[-1]["content"].count("opera") for chat in chats]
            return np.stack([np.array(liked, np.float32), np.zeros(len(chats), np.float32)], axis=1)

    monkeypatch.setattr(LanguageModel, "from_path", lambda name: Model())
    code, out, err = asked("some-model", "--set", "objective=cosine")
    assert code == 0
    assert "--reranker some-model: a language model's Yes against No stands in for a reranker" in err
    assert json.loads(out)["picks"]


def test_a_run_with_another_reranker_is_begun_afresh(folder, encoder, tmp_path, capsys):
    settings = []
    real = command._settings
    arguments = ["select", str(folder / "index"), "--queries", str(folder / "queries.jsonl"), "--encoder", encoder]
    arguments += ["--set", "objective=cosine", "--candidates", "8", "--out"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "_settings", lambda *given: settings.append(real(*given)) or settings[-1])
        for more in ([], ["--reranker", str(MODELS / "bert_reranker")]):
            assert main([*arguments, str(tmp_path / f"{len(more)}.jsonl"), *more]) == 0
    assert settings[0]["reranker"] is None
    assert settings[1]["reranker"].startswith("cross-encoder:")
