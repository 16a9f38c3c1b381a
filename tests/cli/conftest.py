"""A small corpus on disk, with a tiny random encoder: the command line runs its real code on it."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from georag_jax.cli import main
from georag_jax.models.weights import LANGUAGE_MODELS

sys.path.append(str(Path(__file__).parents[1] / "models"))
from fake_chat import FakeChat  # noqa: E402 (both lie beside the tests of the models)
from fake_server import FakeServer  # noqa: E402

ENCODER = str(Path(__file__).parents[1] / "models" / "data" / "tiny")
TOPICS = ["river", "bridge", "opera", "novel", "canal", "mountain", "painter", "engine"]


def lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def encoder():
    return ENCODER


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """corpus.jsonl (40 passages), queries.jsonl (6), subqueries.jsonl, and the finished index."""
    home = tmp_path_factory.mktemp("cli")
    texts = [
        f"The {TOPICS[i % 8]} number {i} of the {TOPICS[(i * 3) % 8]} and its {TOPICS[(i // 8) % 8]}."
        for i in range(40)
    ]
    lines(home / "corpus.jsonl", [{"id": f"p{i}", "title": f"Entry {i}", "text": t} for i, t in enumerate(texts)])
    queries = [
        {"id": f"q{i}", "question": f"Which {TOPICS[i]} and which {TOPICS[i + 1]}?", "gold_ids": [f"p{i}", f"p{i + 8}"]}
        for i in range(6)
    ]
    lines(home / "queries.jsonl", queries)
    lines(
        home / "subqueries.jsonl",
        [{"id": q["id"], "subqueries": [f"the {TOPICS[i]}", f"its {TOPICS[i + 1]}"]} for i, q in enumerate(queries)],
    )
    assert main(["index", str(home / "corpus.jsonl"), "--out", str(home / "index"), "--encoder", ENCODER]) == 0
    return home


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    fake = FakeServer()
    yield fake
    fake.close()


@pytest.fixture
def local(monkeypatch):
    """A language model of this machine, as --llm tiny names it; what it answers is the test's to say."""
    fake = FakeChat(lambda question, i, sampling: f"about the river {i}?")

    class LanguageModel:
        @staticmethod
        def from_path(name):
            if name != "tiny":
                raise ValueError(f"{name!r} is neither a file nor a known model")
            return fake

    module = ModuleType("language_model")
    module.LanguageModel = LanguageModel
    monkeypatch.setitem(sys.modules, "georag_jax.models.language_model", module)
    monkeypatch.setitem(LANGUAGE_MODELS, "tiny", LANGUAGE_MODELS["smollm2"])
    monkeypatch.setattr("georag_jax.models.subqueries._draft.SAME", 2)  # all texts are alike to the random encoder
    return fake


@pytest.fixture
def select(folder, encoder):
    """Runs georag select on the folder and returns its exit code."""

    def run(out, *extra, queries="queries.jsonl", subqueries="subqueries.jsonl"):
        given = ["--subqueries", str(folder / subqueries)] if subqueries else []
        return main(
            ["select", str(folder / "index"), "--queries", str(folder / queries), *given, "--encoder", encoder]
            + ["--candidates", "20", "--out", str(out), *extra]
        )

    return run
