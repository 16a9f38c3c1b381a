"""georag models: what is known, what is fetched, what a place holds."""

import json
from pathlib import Path

import pytest

from georag_jax.cli import main
from georag_jax.models import weights

DATA = Path(__file__).parents[1] / "models" / "data"


def report(capsys, *arguments):
    assert main(["models", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEORAG_HOME", str(tmp_path))
    return tmp_path


def test_list_says_kind_source_size_licence_and_digests(cache, capsys):
    known = {entry["name"]: entry for entry in report(capsys, "list")}
    assert known["minilm"]["kind"] == "sentence encoder"
    assert known["smollm2"]["kind"] == "language model"
    for entry in known.values():
        assert entry["licence"]
        assert entry["megabytes"] > 0
        assert any("package registry" in source for source in entry["from"])
        assert all(len(digest) == 64 for digest in entry["sha256"].values())
        assert not entry["in the cache"]
    assert main(["models", "list"]) == 0
    page = capsys.readouterr().out
    assert "name          smollm2" in page
    assert "in the cache  no" in page


def test_what_lies_in_the_cache_is_said(cache, capsys):
    for file in weights.ENCODERS["minilm"].files:
        (cache / "models" / "minilm" / file).parent.mkdir(parents=True, exist_ok=True)
        (cache / "models" / "minilm" / file).touch()
    assert {entry["name"]: entry["in the cache"] for entry in report(capsys, "list")} == {
        "minilm": True,
        "smollm2": False,
    }


def test_get(cache, monkeypatch, capsys):
    monkeypatch.setattr(weights, "resolve_language_model", lambda name: cache / f"{name}.gguf")
    assert report(capsys, "get", "smollm2")["path"] == str(cache / "smollm2.gguf")
    assert main(["models", "get", "nothing"]) == 2
    assert "NAME: expected one of minilm, smollm2, got 'nothing'" in capsys.readouterr().err


def test_get_says_why_nothing_came(cache, monkeypatch, capsys):
    def unreachable(*_):
        raise OSError("no network here")

    monkeypatch.setattr(weights, "_from_hub", unreachable)
    monkeypatch.setattr(weights, "_download_wheel", unreachable)
    assert main(["models", "get", "smollm2"]) == 1
    assert "no network here" in capsys.readouterr().err


@pytest.mark.parametrize(
    "folder, kind, family, own",
    [
        ("tiny", "sentence encoder", "bert", {"pooling": "mean", "prompts": {"query": "who: "}}),
        ("bert_nli", "cross-encoder", "bert", {"head": ["CONTRADICTION", "entailment", "Neutral"]}),
    ],
)
def test_check(folder, kind, family, own, capsys):
    found = report(capsys, "check", str(DATA / folder))
    assert (found["kind"], found["family"]) == (kind, family)
    assert found["parameters"] > 1000
    assert found["stored as"] == ["F32"]
    assert "tokens" in found["tokenizer"]
    assert {key: found[key] for key in own} == own


def test_check_as_a_page(capsys):
    assert main(["models", "check", str(DATA / "bert_nli")]) == 0
    page = capsys.readouterr().out
    assert "head          CONTRADICTION\n              entailment\n" in page


@pytest.mark.parametrize("name", ["", "no/such/place"])
def test_check_of_what_is_no_model(name, tmp_path, capsys):
    assert main(["models", "check", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert "is not a language model's directory" in error or "PATH: expected a directory" in error


def test_an_action_is_needed():
    with pytest.raises(SystemExit) as stopped:
        main(["models"])
    assert stopped.value.code == 2
