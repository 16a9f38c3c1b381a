"""georag index, evaluate, ask and the parser itself."""

import json
import subprocess
import sys

import pytest

from georag_jax.cli import COMMANDS, main, parser


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    page = capsys.readouterr().out
    assert all(command in page for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0


def test_the_parser_imports_nothing_heavy():
    program = (
        "import sys; from georag_jax.cli import parser; parser();"
        "print([n for n in ('jax', 'flax', 'faiss', 'bm25s', 'tokenizers') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_commands_are_usage_errors(capsys):
    with pytest.raises(SystemExit) as stopped:
        parser().parse_args(["choose"])
    assert stopped.value.code == 2


def test_index_reports_and_finds_finished_work(folder, encoder, capsys):
    arguments = ["index", str(folder / "corpus.jsonl"), "--out", str(folder / "index"), "--encoder", encoder, "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["passages"] == 40


def test_index_names_the_malformed_line(tmp_path, encoder, capsys):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n')
    assert main(["index", str(corpus), "--out", str(tmp_path / "index"), "--encoder", encoder]) == 2
    assert "line 2: id 'a' was used on line 1" in capsys.readouterr().err
    assert not (tmp_path / "index").exists()


def test_ask_shows_the_picks(folder, encoder, capsys):
    assert main(["ask", str(folder / "index"), "Which river and which bridge?", "--encoder", encoder, "--k", "3"]) == 0
    page = capsys.readouterr().out
    assert "1. Entry" in page
    assert "3. Entry" in page
    assert "sub-queries" in page


def test_ask_as_json(folder, encoder, capsys):
    assert main(["ask", str(folder / "index"), "Which river?", "--encoder", encoder, "--k", "2", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["picks"]) == 2


@pytest.fixture
def picks(tmp_path):
    """Two hand-made files for three questions of two gold passages each."""
    queries = [{"id": q, "question": "?", "gold_ids": [f"{q}1", f"{q}2"]} for q in "abc"]
    good = [{"id": q, "picks": [f"{q}1", f"{q}2", "x"], "pool": [f"{q}1", f"{q}2", "x", "y"]} for q in "abc"]
    bad = [{"id": q, "picks": ["x", f"{q}1", "y"]} for q in "ab"]
    for name, rows in (("queries", queries), ("good", good), ("bad", bad)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_evaluate_counts_by_hand(picks, capsys):
    assert main(["evaluate", str(picks / "good.jsonl"), "--queries", str(picks / "queries.jsonl"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["files"][0]
    assert report["questions"] == 3
    assert [row["recall"][0] for row in report["prefixes"]] == [0.5, 1, 1]
    assert [row["all_gold_count"] for row in report["prefixes"]] == [0, 3, 3]
    assert [row["ceiling_all_gold"][0] for row in report["prefixes"]] == [0, 1, 1]
    assert report["prefixes"][0]["redundancy"] is None


def test_evaluate_compares_two_files_on_their_common_questions(picks, capsys):
    files = [str(picks / "good.jsonl"), str(picks / "bad.jsonl")]
    assert main(["evaluate", *files, "--queries", str(picks / "queries.jsonl"), "--json"]) == 0
    difference = json.loads(capsys.readouterr().out)["difference"]
    assert difference["questions"] == 2
    assert [row["recall"][0] for row in difference["prefixes"]] == [0.5, 0.5, 0.5]
    assert [(row["won"], row["lost"]) for row in difference["prefixes"]] == [(0, 0), (2, 0), (2, 0)]
    assert main(["evaluate", *files, "--queries", str(picks / "queries.jsonl")]) == 0
    assert "paired bootstrap" in capsys.readouterr().out


@pytest.mark.parametrize(
    "row, message",
    [
        ({"id": "z", "picks": []}, "expected an id of the questions, got 'z'"),
        ({"id": "a"}, 'expected a list "picks"'),
        ({"id": "a", "picks": [1]}, '"picks": expected a list of strings'),
    ],
)
def test_evaluate_names_the_wrong_line(picks, row, message, capsys):
    (picks / "wrong.jsonl").write_text(json.dumps(row) + "\n")
    assert main(["evaluate", str(picks / "wrong.jsonl"), "--queries", str(picks / "queries.jsonl")]) == 2
    error = capsys.readouterr().err
    assert "wrong.jsonl, line 1" in error
    assert message in error


def test_evaluate_takes_two_files_at_most(picks, capsys):
    files = [str(picks / "good.jsonl")] * 3
    assert main(["evaluate", *files, "--queries", str(picks / "queries.jsonl")]) == 2
    assert "one file, or two" in capsys.readouterr().err
