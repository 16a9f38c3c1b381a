"""georag answer: formats, resuming, and its scores."""

import json

import pytest

from georag_jax.cli import answer as command
from georag_jax.cli import main
from georag_jax.models.answers import REFUSAL


def records(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def picks(folder, encoder, tmp_path_factory):
    out = tmp_path_factory.mktemp("picks") / "picks.jsonl"
    arguments = ["select", str(folder / "index"), "--queries", str(folder / "queries.jsonl"), "--encoder", encoder]
    assert main([*arguments, "--k", "3", "--out", str(out)]) == 0
    return out


@pytest.fixture
def answer(folder, picks, local, tmp_path):
    """Runs georag answer and returns its exit code; ``answer.out`` is what it writes."""

    def run(*extra):
        files = ["--picks", str(picks), "--queries", str(folder / "queries.jsonl"), "--out", str(run.out)]
        return main(["answer", str(folder / "index"), *files, "--llm", "tiny", *extra])

    run.out = tmp_path / "answers.jsonl"
    local.behave = lambda question, i, sampling: REFUSAL if "opera" in question.split("Question:")[1] else "X [3][4]"
    return run


def test_a_line_a_question_in_order(answer, picks, capsys):
    assert answer() == 0
    page = capsys.readouterr().out
    assert "6 questions; 2 refused for want of evidence, 0 answers without a citation, 4 citations of nothing" in page
    before, after = records(picks), records(answer.out)
    for old, new in zip(before, after, strict=True):
        assert {key: new[key] for key in old} == old
        assert new["context"] == old["picks"][::-1]
    told = [(row["answer"], row["refused"], row["invalid_citations"]) for row in after]
    assert sorted(set(told)) == [(REFUSAL, True, 0), ("X", False, 1)]
    assert all(row["citations"] == ([] if row["refused"] else row["picks"][:1]) for row in after)
    assert list(answer.out.parent.iterdir()) == [answer.out]


def test_fewer_picks_and_a_report_as_json(answer, local, capsys):
    assert answer("--k", "1", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {
        "answers": str(answer.out),
        "questions": 6,
        "refused": 2,
        "without_citation": 4,
        "invalid_citations": 8,
    }
    assert all("[2] " not in asked.split("Question:")[0] for call in local.calls for asked in call[0])


def test_the_budget_reaches_the_prompt(answer, local):
    local.count = lambda text: 30
    assert answer("--budget", "64") == 0
    assert all(len(row["context"]) == 2 for row in records(answer.out))


def test_interrupted_and_resumed(answer, local, monkeypatch, capsys):
    monkeypatch.setattr(command, "_BLOCK", 2)
    whole = local.behave

    def interrupted(question, i, sampling):
        if len(local.calls) == 2:
            raise KeyboardInterrupt
        return whole(question, i, sampling)

    local.behave = interrupted
    assert answer() == 130
    assert "the same command goes on where it stopped" in capsys.readouterr().err
    assert not answer.out.exists()
    local.calls.clear()
    local.behave = whole
    assert answer() == 0
    assert sum(len(asked) for asked, _, _ in local.calls) == 4
    assert len(records(answer.out)) == 6
    local.calls.clear()


@pytest.mark.parametrize(
    "extra, message",
    [
        (["--k", "0"], "--k: expected a number of picks >= 1"),
        (["--budget", "3"], "--budget: expected at least 64 tokens"),
        (["--model", "x"], "expected them with an http:// or https:// address as --llm"),
        (["--llm", "none"], "--llm: expected a path, an address, or one of smollm2"),
        (["--llm", "/"], "--llm: '/' is neither a file nor a known model"),
    ],
)
def test_wrong_arguments(answer, capsys, extra, message):
    assert answer(*extra) == 2
    assert message in capsys.readouterr().err
    assert list(answer.out.parent.iterdir()) == []


@pytest.mark.parametrize(
    "line, message",
    [
        ({"id": "z", "picks": []}, "line 1: expected an id of the questions, got 'z'"),
        ({"id": "q0"}, 'line 1: expected a list "picks"'),
        ({"id": "q0", "picks": ["p0", "elsewhere"]}, "got 1: elsewhere"),
    ],
)
def test_wrong_picks(answer, tmp_path, capsys, line, message):
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(json.dumps(line) + "\n")
    assert answer("--picks", str(wrong)) == 2
    assert message in capsys.readouterr().err


def test_an_out_that_is_a_directory(answer, tmp_path, capsys):
    assert answer("--out", str(tmp_path)) == 2
    assert "--out: expected a file, got the directory" in capsys.readouterr().err


def test_a_server_answers_as_well(answer, server, capsys):
    from fake_server import choices

    server.behave = lambda body, number: (403, {}, "quota")
    assert answer("--llm", server.url, "--model", "tiny") == 1
    assert "status 403: 'quota'; the same command goes on where it stopped" in capsys.readouterr().err
    server.bodies.clear()
    server.behave = lambda body, number: (200, {}, choices("X [1]"))
    assert answer("--llm", server.url, "--model", "tiny") == 0
    assert "response_format" not in server.bodies[0]
    assert all(row["answer"] == "X" for row in records(answer.out))
