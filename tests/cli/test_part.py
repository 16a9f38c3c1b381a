"""The file that a run keeps its records in: taken up, cut, damaged, foreign, in use."""

import os
import subprocess
import sys

import pytest

from georag_jax.cli._part import Part

SETTINGS = {"k": 3, "sizes": (1, 2)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "out.part"


@pytest.fixture
def begun(path):
    """A part with the records a and b."""
    with Part(path, SETTINGS) as part:
        part.add([{"id": "a", "text": "ä"}, {"id": "b"}])
    return path


def kept(path, settings=SETTINGS):
    with Part(path, settings) as part:
        return [identifier for identifier in "abc" if identifier in part]


def test_records_are_taken_up_and_given_in_any_order(begun):
    with Part(begun, SETTINGS) as part:
        part.add([{"id": "c"}])
        lines = [b'{"id": "c"}\n', '{"id": "a", "text": "ä"}\n'.encode(), b'{"id": "b"}\n']
        assert list(part.lines(["c", "a", "b"])) == lines
    assert kept(begun) == ["a", "b", "c"]


@pytest.mark.parametrize("cut", [1, 8, 11])
def test_a_cut_last_line_is_dropped(begun, cut):
    begun.write_bytes(begun.read_bytes()[:-cut])
    with Part(begun, SETTINGS) as part:
        assert "a" in part
        assert "b" not in part
        part.add([{"id": "b"}])
    assert kept(begun) == ["a", "b"]


def test_a_file_cut_in_its_first_line_is_an_empty_one(begun, capsys):
    begun.write_bytes(begun.read_bytes()[:5])
    assert kept(begun) == []
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("damage", [b"\0" * 40 + b"\n", b"{}\n", b'{"id": 3}\n', b"\xff\n", b"[1]\n", b"\n"])
def test_a_damaged_record_begins_it_afresh(begun, damage, capsys):
    begun.write_bytes(begun.read_bytes() + damage + b'{"id": "c"}\n')
    assert kept(begun) == []
    error = capsys.readouterr().err
    assert "out.part is damaged, or no file of a run (line 4" in error
    assert "starting afresh" in error


@pytest.mark.parametrize("content", [b"notes\n", b"\0\n", b'"text"\n', b"[" * 10_000 + b"\n"])
def test_a_foreign_file_is_begun_afresh(path, content, capsys):
    path.parent.mkdir()
    path.write_bytes(content)
    with Part(path, SETTINGS) as part:
        part.add([{"id": "a"}])
    assert "is damaged, or no file of a run (line 1" in capsys.readouterr().err
    assert kept(path) == ["a"]


def test_other_settings_begin_it_afresh(begun, capsys):
    assert kept(begun, {"k": 4}) == []
    assert "is of a run with other settings: starting afresh" in capsys.readouterr().err
    assert kept(begun, {"k": 4}) == []
    assert capsys.readouterr().err == ""


def test_remove(begun):
    with Part(begun, SETTINGS) as part:
        part.remove()
    assert not begun.exists()


needs_locks = pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")


@needs_locks
def test_one_run_at_a_time(begun):
    before = begun.read_bytes()
    with Part(begun, SETTINGS), pytest.raises(RuntimeError, match=r"out.part: another run is writing it"):
        Part(begun, {"k": 9})
    assert begun.read_bytes() == before
    assert kept(begun) == ["a", "b"]


@needs_locks
def test_select_says_that_another_run_is_at_work(select, tmp_path, capsys):
    out = tmp_path / "picks.jsonl"
    hold = "import sys; from pathlib import Path; from georag_jax.cli._part import Part\n"
    hold += "part = Part(Path(sys.argv[1]), {}); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold, f"{out}.part"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        assert select(out) == 1
        other.stdin.close()
    assert "picks.jsonl.part: another run is writing it" in capsys.readouterr().err
    assert select(out) == 0


@needs_locks
def test_a_file_removed_before_the_lock_is_not_used(begun, monkeypatch):
    import georag_jax.cli._part as module

    lock, calls = module._lock, []

    def finished_meanwhile(file, path):
        calls.append(path)
        if len(calls) == 1:
            os.unlink(path)
        lock(file, path)

    monkeypatch.setattr(module, "_lock", finished_meanwhile)
    with Part(begun, SETTINGS) as part:
        part.add([{"id": "c"}])
    assert len(calls) == 2
    assert kept(begun) == ["c"]
