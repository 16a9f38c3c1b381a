"""georag select: formats and resuming."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest


def records(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_writes_a_line_a_question_in_order(select, tmp_path, capsys):
    out = tmp_path / "picks.jsonl"
    assert select(out) == 0
    rows = records(out)
    assert [row["id"] for row in rows] == [f"q{i}" for i in range(6)]
    for row in rows:
        assert len(row["picks"]) == len(set(row["picks"])) == len(row["gains"]) == len(row["coverage"]) == 5
        assert set(row["picks"]) <= set(row["pool"])
        assert len(row["pool"]) == 20
        assert sum(weight for _, weight in row["subqueries"]) == pytest.approx(1, abs=1e-5)
    assert "6 questions" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [out]


def test_the_decomposer_serves_where_no_subqueries_are_given(select, tmp_path):
    assert select(tmp_path / "picks.jsonl", subqueries=None) == 0
    assert all(row["subqueries"] for row in records(tmp_path / "picks.jsonl"))


def test_presets_and_single_fields(select, tmp_path):
    assert select(tmp_path / "paper.jsonl", "--preset", "paper", "--k", "2", "--set", "iterations=20") == 0
    rows = records(tmp_path / "paper.jsonl")
    assert all(len(row["picks"]) == 2 and row["marginal_error"] > 0 for row in rows)
    assert select(tmp_path / "default.jsonl", "--set", "objective=sinkhorn", "--set", "iterations=20", "--k", "2") == 0


def test_missing_subqueries_stop_before_work_or_are_left_out(select, folder, tmp_path, capsys):
    rows = (folder / "subqueries.jsonl").read_text().splitlines(keepends=True)
    (folder / "some.jsonl").write_text("".join(rows[:4]))
    assert select(tmp_path / "picks.jsonl", subqueries="some.jsonl") == 2
    error = capsys.readouterr().err
    assert "q4" in error
    assert "q5" in error
    assert "--skip-missing" in error
    assert list(tmp_path.iterdir()) == []
    assert select(tmp_path / "picks.jsonl", "--skip-missing", subqueries="some.jsonl") == 0
    assert [row["id"] for row in records(tmp_path / "picks.jsonl")] == ["q0", "q1", "q2", "q3"]


def test_malformed_questions_are_reported_with_their_line(select, folder, tmp_path, capsys):
    (folder / "bad.jsonl").write_text('{"id": "q0", "question": "Why?"}\n{"id": "q1"}\n')
    assert select(tmp_path / "picks.jsonl", queries="bad.jsonl") == 2
    assert 'bad.jsonl, line 2: "question" is missing' in capsys.readouterr().err


SLOW = """
import sys, time
import georag_jax.pipeline as pipeline
from georag_jax.cli import main
pipeline.BLOCK = 2
stream = pipeline.GeoRAG.stream
def slow(self, questions):
    for block in stream(self, questions):
        yield block
        time.sleep(600)
pipeline.GeoRAG.stream = slow
sys.exit(main(sys.argv[1:]))
"""


def test_killed_and_resumed(select, folder, encoder, tmp_path, monkeypatch):
    whole, out = tmp_path / "whole.jsonl", tmp_path / "picks.jsonl"
    assert select(whole) == 0
    arguments = ["select", str(folder / "index"), "--queries", str(folder / "queries.jsonl")]
    arguments += ["--subqueries", str(folder / "subqueries.jsonl"), "--encoder", encoder, "--candidates", "20"]
    process = subprocess.Popen([sys.executable, "-c", SLOW, *arguments, "--out", str(out)])
    part = tmp_path / "picks.jsonl.part"
    deadline = time.monotonic() + 120
    while not part.exists() or part.read_bytes().count(b"\n") < 3:  # the settings and one block of two
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not out.exists()
    with open(part, "ab") as file:
        file.write(b'{"id": "q2", "pi')  # as a kill in the middle of a write leaves it

    import georag_jax.pipeline as pipeline

    asked = []
    stream = pipeline.GeoRAG.stream
    monkeypatch.setattr(pipeline.GeoRAG, "stream", lambda self, q: asked.extend(q) or stream(self, q))
    assert select(out) == 0
    assert [question.id for question in asked] == ["q2", "q3", "q4", "q5"]
    assert [row["picks"] for row in records(out)] == [row["picks"] for row in records(whole)]
    assert not part.exists()


@pytest.mark.parametrize(
    "content, message",
    [
        ('{"settings": {"k": 3}}\n{"id": "q0", "picks": ["made up"]}\n', "is of a run with other settings"),
        ("some notes of mine\n", "is damaged, or no file of a run"),
    ],
)
def test_a_part_of_something_else_is_begun_afresh(select, tmp_path, capsys, content, message):
    (tmp_path / "picks.jsonl.part").write_text(content)
    assert select(tmp_path / "picks.jsonl") == 0
    assert f"picks.jsonl.part {message}" in capsys.readouterr().err
    assert records(tmp_path / "picks.jsonl")[0]["picks"] != ["made up"]


def test_an_upgrade_does_not_mix_picks(select, tmp_path, capsys, monkeypatch):
    import georag_jax.cli.select as command

    def interrupted(*arguments):
        raise KeyboardInterrupt

    out = tmp_path / "picks.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(command, "_flagged", interrupted)
        assert select(out) == 130
    monkeypatch.setattr(command, "__version__", "99.0")
    assert select(out) == 0
    assert "is of a run with other settings: starting afresh" in capsys.readouterr().err
