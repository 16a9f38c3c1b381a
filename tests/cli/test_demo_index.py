"""The demonstration's index in the cache: built once, whoever else builds it, and mended."""

import json
import os
import time

import pytest

from georag_jax import retrieval
from georag_jax.cli import demo, main
from georag_jax.models import SentenceEncoder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GEORAG_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def tiny(encoder):
    return SentenceEncoder.from_directory(encoder)


@pytest.fixture
def open_demo(folder, tiny, cache):
    return lambda: demo._index(folder / "corpus.jsonl", tiny)


@pytest.fixture
def builds(monkeypatch):
    """Where indexes were built; ``builds.meanwhile`` is called once, at the end of a build."""
    build = retrieval.build_index

    class Builds(list):
        meanwhile = staticmethod(lambda: None)

    seen = Builds()

    def watched(corpus, out, encoder):
        index = build(corpus, out, encoder)
        seen.append(out)
        then, seen.meanwhile = seen.meanwhile, lambda: None
        then()
        return index

    monkeypatch.setattr(retrieval, "build_index", watched)
    return seen


def only(cache):
    (home,) = cache.iterdir()  # nothing is left beside the index
    return home


def test_built_once(open_demo, builds, cache):
    assert open_demo().size == open_demo().size == 40
    assert len(builds) == 1
    assert only(cache).name.startswith("demo-")


def test_the_other_first_run_was_faster(open_demo, builds, cache):
    builds.meanwhile = open_demo
    assert open_demo().size == 40
    assert len(set(builds)) == 2
    only(cache)


def test_damaged_indexes_are_replaced_by_both(open_demo, builds, cache):
    open_demo()
    home = only(cache)
    (home / "vectors.npy").write_bytes(b"")
    builds.clear()
    builds.meanwhile = open_demo
    assert open_demo().size == 40
    assert len(builds) == 2
    assert only(cache) == home


def test_a_failed_build_leaves_nothing(open_demo, builds, cache):
    def fail():
        raise OSError("disk full")

    builds.meanwhile = fail
    with pytest.raises(OSError, match="disk full"):
        open_demo()
    assert list(cache.iterdir()) == []


def test_leftovers_of_killed_builds_are_removed_but_not_those_at_work(open_demo, cache):
    dead, alive = cache / ".demo-build-dead", cache / ".demo-build-alive"
    for scratch in (dead, alive):
        (scratch / "index").mkdir(parents=True)
    os.utime(dead, (time.time() - 200_000,) * 2)
    open_demo()
    assert not dead.exists()
    assert alive.exists()


def test_a_language_model_writes_and_answers_the_question_that_is_shown(tiny, local, cache, monkeypatch, capsys):
    monkeypatch.setattr(demo, "load_encoder", lambda name: tiny)
    # Chance vectors agree on nothing.
    monkeypatch.setattr("georag_jax.models.subqueries.joined.agreement", lambda questions, *_: [1.0] * len(questions))
    read = demo.read_questions
    monkeypatch.setattr(demo, "read_questions", lambda path: read(path)[:3])
    local.behave = lambda question, i, sampling: "a ferry [5]" if "Question:" in question else f"Which ferry {i}?"
    command = ["demo", "--question", "q-01", "--llm", "tiny", "--llm-n", "3"]
    assert main(command) == 0
    page = capsys.readouterr().out
    assert "Which ferry 2?" in page
    assert "answer: a ferry  (from 1)" in page
    assert "accepted: a roll-on roll-off train ferry" in page
    assert "stored sub-queries" in page
    asked = len(local.calls)
    assert main([*command, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["llm"]["answer"] == "a ferry"
    assert report["llm"]["counts"]["kept"] == 3
    assert len(report["questions"]) == 3
    assert len(local.calls) == asked  # the answers were kept
