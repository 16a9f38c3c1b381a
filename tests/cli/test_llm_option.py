"""georag select and ask with a language model behind a server on loopback."""

import json
import threading

import pytest
from fake_server import asked, choices

import georag_jax.pipeline as pipeline
from georag_jax.cli import main


@pytest.fixture
def llm(server):
    """The options that name the server."""
    return ["--llm", server.url, "--model", "tiny"]


def answer(body, number):
    return 200, {}, choices(json.dumps({"subquestions": [f"about {asked(body)}", "its river"]}))


def questions_of(folder):
    return [json.loads(line)["question"] for line in (folder / "queries.jsonl").read_text().splitlines()]


def test_a_run_that_fails_goes_on_where_it_stopped(select, server, llm, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pipeline, "BLOCK", 4)
    questions, out = questions_of(folder), tmp_path / "picks.jsonl"

    neighbour_answered = threading.Event()

    def behave(body, number):
        if asked(body) == questions[5]:
            neighbour_answered.wait(30)
            return 403, {}, "quota"
        if asked(body) == questions[4]:
            neighbour_answered.set()
        return answer(body, number)

    server.behave = behave
    assert select(out, *llm, subqueries=None) == 1
    error = capsys.readouterr().err
    assert "question 'q5'" in error
    assert "status 403: 'quota'" in error
    assert f"the same command goes on where it stopped (what was answered is kept in {out}.subqueries.jsonl)" in error
    assert not out.exists()
    server.bodies.clear()
    server.behave = answer
    assert select(out, *llm, subqueries=None) == 0
    assert [asked(body) for body in server.bodies] == questions[5:]
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in rows] == [f"q{i}" for i in range(6)]
    assert all(row["subqueries"][0][0].startswith("about ") for row in rows)


def test_answers_are_kept_beside_the_picks_and_asked_for_once(select, server, llm, tmp_path, capsys):
    out, kept = tmp_path / "picks.jsonl", tmp_path / "picks.jsonl.subqueries.jsonl"
    server.behave = answer
    assert select(out, *llm, subqueries=None) == 0
    assert f"the model's answers are kept in {kept}" in capsys.readouterr().out
    assert set(tmp_path.iterdir()) == {out, kept}
    server.close()
    assert select(out, *llm, "--k", "2", subqueries=None) == 0
    assert len(kept.read_text().splitlines()) == 6


def test_the_report_counts_what_was_dropped(select, server, llm, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pipeline, "BLOCK", 2)
    first, out = questions_of(folder)[0], tmp_path / "picks.jsonl"

    def behave(body, number):
        return 200, {}, choices("" if asked(body) == first else '["the river", "The River!", "a b", "c d"]')

    server.behave = behave
    assert select(out, *llm, "--llm-n", "2", "--json", subqueries=None) == 0
    report = json.loads(capsys.readouterr().out)["llm"]
    assert report.pop("answers") == f"{out}.subqueries.jsonl"
    counts = {"generated": 20, "duplicates": 5, "malformed": 0, "surplus": 5, "topped_up": 0, "cached": 0}
    assert report == {**counts, "fallbacks": 1}
    assert "Write 2 different" in server.bodies[0]["messages"][-1]["content"]
    out.unlink()
    (tmp_path / "picks.jsonl.subqueries.jsonl").unlink()
    assert select(out, *llm, "--llm-n", "2", subqueries=None) == 0
    line = "sub-queries by the model: 20, dropped 5 repeated, 0 malformed, 5 surplus; questions left without any: 1"
    assert line in capsys.readouterr().out


def test_ask_keeps_nothing(server, llm, folder, encoder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    server.behave = answer
    arguments = ["ask", str(folder / "index"), "Which river?", "--encoder", encoder, *llm, "--llm-timeout", "30"]
    assert main(arguments) == 0
    page = capsys.readouterr().out
    assert "about Which river?" in page
    assert "sub-queries by the model: 2, dropped 0 repeated" in page
    assert main([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["llm"]["generated"] == 2
    assert list(tmp_path.iterdir()) == []


def test_an_address_without_a_path_is_told_about_v1(server, folder, encoder, capsys):
    server.behave = lambda body, number: (404, {}, "nothing here")
    base = server.url.removesuffix("/v1")
    arguments = ["ask", str(folder / "index"), "Which river?", "--encoder", encoder, "--llm", base, "--model", "tiny"]
    assert main(arguments) == 1
    assert f"most servers answer under {base}/v1" in capsys.readouterr().err
