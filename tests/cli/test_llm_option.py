"""georag select and ask with a language model behind a server on loopback."""

import json
import threading

import pytest
from fake_server import asked, choices

import georag_jax.pipeline as pipeline
from georag_jax.cli import main


@pytest.fixture
def llm(server, monkeypatch):
    """The options that name the server."""
    monkeypatch.setattr("georag_jax.models.subqueries._draft.SAME", 2)  # all texts are alike to the random encoder
    return ["--llm", server.url, "--model", "tiny"]


def answer(body, number):
    return 200, {}, choices(json.dumps({"subquestions": [f"about {asked(body)}", "its river"]}))


def sentences(body, number):
    """Sub-queries where a list is asked for, else an answer."""
    return answer(body, number) if "response_format" in body else (200, {}, choices("The Neva [1][5][9]"))


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
    assert f"asked {questions[5]!r}" in error
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
    counts = {"samples": 6, "generated": 20, "duplicates": 5, "surplus": 5, "kept": 10, "fallbacks": 1}
    assert {name: count for name, count in report.items() if count and name != "drifted"} == counts
    assert "Write 2 different" in server.bodies[0]["messages"][-1]["content"]
    out.unlink()
    (tmp_path / "picks.jsonl.subqueries.jsonl").unlink()
    assert select(out, *llm, "--llm-n", "2", subqueries=None) == 0
    page = capsys.readouterr().out
    assert "sub-queries by the model: 20, dropped 5 repeated, 5 surplus; kept 10, " in page
    assert "questions left without any: 1" in page


def test_ask_keeps_nothing(server, llm, folder, encoder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    server.behave = sentences
    arguments = ["ask", str(folder / "index"), "Which river?", "--encoder", encoder, *llm, "--llm-timeout", "30"]
    assert main(arguments) == 0
    page = capsys.readouterr().out
    assert "about Which river?" in page
    assert "sub-queries by the model: 2, dropped none" in page
    assert "answer: The Neva  (from 5, 1)" in page
    assert "1 of its citations name no pick" in page
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["llm"]["generated"] == 2
    assert report["answer"]["answer"] == "The Neva"
    assert report["answer"]["citations"] == [report["picks"][4], report["picks"][0]]
    assert report["answer"]["context"] == report["picks"][::-1]
    assert list(tmp_path.iterdir()) == []


def test_an_address_without_a_path_is_told_about_v1(server, folder, encoder, capsys):
    server.behave = lambda body, number: (404, {}, "nothing here")
    base = server.url.removesuffix("/v1")
    arguments = ["ask", str(folder / "index"), "Which river?", "--encoder", encoder, "--llm", base, "--model", "tiny"]
    assert main(arguments) == 1
    assert f"most servers answer under {base}/v1" in capsys.readouterr().err


def test_a_local_model_is_sampled_joined_and_answers(local, folder, encoder, capsys):
    local.behave = lambda question, i, sampling: "a [1]" if "Question:" in question else f"the river number {i}?"
    arguments = ["ask", str(folder / "index"), "Which river?", "--encoder", encoder, "--llm", "tiny", "--llm-n", "3"]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    texts = [text for text, _ in report["subqueries"]]
    assert texts == [*(f"the river number {i}?" for i in range(3)), "Which river?"]
    assert report["answer"]["answer"] == "a"
    assert report["llm"]["guarded"] == 0
    assert [(n, sampling.temperature) for _, n, sampling in local.calls] == [(3, 0.7), (1, 0.0)]


def test_what_a_lost_local_model_writes_is_left_out(local, folder, encoder, monkeypatch, capsys):
    monkeypatch.setattr("georag_jax.models.subqueries.joined.agreement", lambda questions, *_: [0.0] * len(questions))
    arguments = ["ask", str(folder / "index"), "Which river?", "--encoder", encoder, "--llm", "tiny"]
    assert main(arguments) == 0
    page = capsys.readouterr().out
    assert "about the river" not in page.split("answer:")[0]
    assert "the question's own stand alone: 1" in page


def test_two_rounds(local, folder, encoder, capsys):
    local.behave = lambda question, i, sampling: "the opera?" if "Passages:" in question else "the river?"
    arguments = ["ask", str(folder / "index"), "Which river?", "--encoder", encoder, "--llm", "tiny"]
    assert main([*arguments, "--llm-rounds", "2", "--json"]) == 0
    texts = [text for text, _ in json.loads(capsys.readouterr().out)["subqueries"]]
    assert texts == ["the river?", "the opera?", "Which river?"]


def test_other_models_and_settings_begin_a_part_afresh(select, local, tmp_path, monkeypatch, capsys):
    import georag_jax.cli.select as command

    def interrupted(*arguments):
        raise KeyboardInterrupt

    out = tmp_path / "picks.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(command, "_flagged", interrupted)
        assert select(out, "--llm", "tiny", "--llm-n", "1", subqueries=None) == 130
    for changed in ("fake:1", "fake:2"):
        local.fingerprint = changed
        local.calls.clear()
        assert select(out, "--llm", "tiny", "--llm-n", "2", subqueries=None) == 0
        assert bool(local.calls)
    assert capsys.readouterr().err.count("is of a run with other settings: starting afresh") == 1


@pytest.mark.usefixtures("local")
def test_a_model_that_cannot_be_loaded(folder, encoder, tmp_path, capsys):
    arguments = ["ask", str(folder / "index"), "Why?", "--encoder", encoder, "--llm", str(tmp_path)]
    assert main(arguments) == 2
    assert f"--llm: {str(tmp_path)!r} is neither" in capsys.readouterr().err
