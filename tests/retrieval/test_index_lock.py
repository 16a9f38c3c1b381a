"""One build at a time in one directory."""

import errno
import logging
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from georag_jax.retrieval import _lock, build_index, indexing, open_index

pytest.importorskip("fcntl")

STALLED_BUILD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from conftest import FakeEncoder
from georag_jax.retrieval import build_index
def stall(done, total):
    if done == 20:
        print("holding", flush=True)
        time.sleep(600)
build_index(sys.argv[2], sys.argv[3], FakeEncoder(), batch=10, progress=stall)
"""


@pytest.fixture
def corpus(tmp_path, make_corpus):
    return make_corpus(tmp_path / "corpus.jsonl")


def test_a_second_build_is_refused_until_the_first_is_killed(tmp_path, corpus, make_encoder):
    out = tmp_path / "index"
    arguments = [sys.executable, "-c", STALLED_BUILD, str(Path(__file__).parent), str(corpus), str(out)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "holding\n"
        before = (out / "work.json").read_bytes()
        for encoder in (make_encoder(), make_encoder(name="other")):
            with pytest.raises(RuntimeError, match=r"index is being built by another process, which holds build\.lock"):
                build_index(corpus, out, encoder, batch=10)
            assert encoder.batches == []
        assert (out / "work.json").read_bytes() == before
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.communicate()
    encoder = make_encoder()
    assert build_index(corpus, out, encoder, batch=10).size == 50
    assert len(encoder.batches) == 3
    assert not (out / "build.lock").exists()


def test_a_build_inside_a_build_is_refused(tmp_path, corpus, make_encoder):
    refused = []

    def again(done, total):
        with pytest.raises(RuntimeError, match="is being built"):
            build_index(corpus, tmp_path / "index", make_encoder())
        refused.append(done)

    build_index(corpus, tmp_path / "index", make_encoder(), progress=again)
    assert refused == [0, 50]


def test_a_build_that_ended_while_the_lock_was_taken_is_left_alone(tmp_path, corpus, make_encoder, monkeypatch):
    real, out = indexing._make_room, tmp_path / "index"

    def another_is_faster(directory):
        monkeypatch.setattr(indexing, "_make_room", real)
        build_index(corpus, directory, make_encoder())
        real(directory)

    monkeypatch.setattr(indexing, "_make_room", another_is_faster)
    late = make_encoder()
    assert build_index(corpus, out, late).size == 50
    assert late.batches == []
    assert not (out / "build.lock").exists()


def test_where_nothing_can_be_locked_it_is_said_and_built(tmp_path, corpus, make_encoder, monkeypatch, caplog):
    def no_locks(file, how):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(_lock.fcntl, "flock", no_locks)
    build_index(corpus, tmp_path / "a", make_encoder())
    monkeypatch.setattr(_lock, "fcntl", None)
    build_index(corpus, tmp_path / "b", make_encoder())
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "not implemented" in warnings[0]
    assert "no flock" in warnings[1]
    assert open_index(tmp_path / "a").size == open_index(tmp_path / "b").size == 50
