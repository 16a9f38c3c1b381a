"""A build that dies at any moment goes on where it was, and ends the same to the byte."""

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from georag_jax.retrieval import build_index, indexing, open_index, store


def contents(directory):
    """All files but the lock's, which is empty and which a build that dies may leave behind."""
    files = (p for p in directory.rglob("*") if p.is_file() and p.name != "build.lock")
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in files}


@pytest.fixture
def corpus(tmp_path, make_corpus):
    return make_corpus(tmp_path / "corpus.jsonl", 60)


@pytest.fixture
def expected(tmp_path, corpus, encoder):
    build_index(corpus, tmp_path / "expected", encoder, batch=10)
    return contents(tmp_path / "expected")


SLOW_BUILD = """
import sys
sys.path.insert(0, sys.argv[1])
from conftest import FakeEncoder
from georag_jax.retrieval import build_index
encoder = FakeEncoder()
def stall(done, total):
    encoder.sleep = 600 if done >= 30 else 0.05
build_index(sys.argv[2], sys.argv[3], encoder, batch=10, progress=stall)
"""


def test_killed_in_the_middle_and_resumed(tmp_path, corpus, expected, make_encoder):
    out = tmp_path / "index"
    arguments = [sys.executable, "-c", SLOW_BUILD, str(Path(__file__).parent), str(corpus), str(out)]
    process = subprocess.Popen(arguments)
    try:
        deadline = time.monotonic() + 60
        while not (out / "work.json").exists() or json.loads((out / "work.json").read_text())["done"] < 20:
            assert process.poll() is None, "the build ended before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    with pytest.raises(ValueError, match="unfinished.*: run georag index again"):
        open_index(out)
    done = json.loads((out / "work.json").read_text())["done"]
    assert done in (20, 30)
    second, seen = make_encoder(), []
    build_index(corpus, out, second, batch=10, progress=lambda *counts: seen.append(counts))
    assert len(second.batches) == (60 - done) // 10
    assert seen[0] == (done, 60)
    assert contents(out) == expected


def test_dying_at_every_step_changes_nothing(tmp_path, corpus, expected, make_encoder, monkeypatch):
    """The build breaks at its 1st, 2nd, ... write of state, before or after it took place, and is started again."""
    out, real, calls = tmp_path / "index", os.replace, 0

    class Died(BaseException):
        pass

    def replace(source, target):
        nonlocal calls
        calls += 1
        if calls % 2 == 1:
            raise Died
        real(source, target)
        if calls % 4 == 0:
            raise Died

    monkeypatch.setattr(store.os, "replace", replace)
    attempts, encoder = 0, make_encoder()
    while not (out / "index.json").exists():
        attempts += 1
        assert attempts < 50
        with pytest.raises(Died):
            build_index(corpus, out, encoder, batch=10)
    monkeypatch.undo()
    assert attempts > 10
    build_index(corpus, out, make_encoder(fail_after=0), batch=10)
    assert {
        name: data for name, data in contents(out).items() if name not in ("work.json", "work.json.part")
    } == expected


@pytest.mark.parametrize("step", ["_store_corpus", "_embed", "_store_words", "_finish"])
@pytest.mark.parametrize("after", [False, True])
def test_dying_between_steps(tmp_path, corpus, expected, make_encoder, monkeypatch, step, after):
    real = getattr(indexing, step)

    def dying(*args):
        if after:
            real(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(indexing, step, dying)
    with pytest.raises(KeyboardInterrupt):
        build_index(corpus, tmp_path / "index", make_encoder(), batch=10)
    monkeypatch.undo()
    encoder = make_encoder()
    build_index(corpus, tmp_path / "index", encoder, batch=10)
    embedded = step in ("_store_words", "_finish") or (step == "_embed" and after)
    assert len(encoder.batches) == (0 if embedded else 6)
    assert contents(tmp_path / "index") == expected


def test_an_encoder_that_breaks_loses_nothing_that_was_finished(tmp_path, corpus, expected, make_encoder):
    with pytest.raises(RuntimeError, match="the encoder broke"):
        build_index(corpus, tmp_path / "index", make_encoder(fail_after=4), batch=10)
    encoder = make_encoder()
    build_index(corpus, tmp_path / "index", encoder, batch=10)
    assert len(encoder.batches) == 2
    assert contents(tmp_path / "index") == expected


@pytest.mark.parametrize("other", ["corpus", "encoder"])
def test_another_corpus_or_encoder_starts_afresh(tmp_path, corpus, expected, make_encoder, make_corpus, caplog, other):
    first = make_corpus(tmp_path / "first.jsonl", 60, seed=9) if other == "corpus" else corpus
    encoder = make_encoder(fail_after=4, name="first" if other == "encoder" else "hash")
    with pytest.raises(RuntimeError):
        build_index(first, tmp_path / "index", encoder, batch=10)
    encoder = make_encoder()
    build_index(corpus, tmp_path / "index", encoder, batch=10)
    assert len(encoder.batches) == 6
    assert "starting afresh" in caplog.text
    assert contents(tmp_path / "index") == expected


def test_lost_vectors_are_made_again(tmp_path, corpus, expected, make_encoder):
    with pytest.raises(RuntimeError):
        build_index(corpus, tmp_path / "index", make_encoder(fail_after=4), batch=10)
    (tmp_path / "index" / "vectors.npy").unlink()
    build_index(corpus, tmp_path / "index", make_encoder(), batch=10)
    assert contents(tmp_path / "index") == expected


def test_a_corpus_that_changes_while_it_is_read_is_reported(tmp_path, corpus, make_encoder, monkeypatch):
    real = indexing.scan_corpus

    def scan_then_change(path):
        found = real(path)
        corpus.write_bytes(corpus.read_bytes() + b"\n")
        return found

    monkeypatch.setattr(indexing, "scan_corpus", scan_then_change)
    with pytest.raises(ValueError, match="changed while it was read"):
        build_index(corpus, tmp_path / "index", make_encoder(), batch=10)


def test_resuming_is_logged(tmp_path, corpus, make_encoder, caplog):
    with pytest.raises(RuntimeError):
        build_index(corpus, tmp_path / "index", make_encoder(fail_after=1), batch=10)
    with caplog.at_level(logging.INFO, "georag_jax"):
        build_index(corpus, tmp_path / "index", make_encoder(), batch=10)
    assert "going on behind 10 of 60 passages" in caplog.text
