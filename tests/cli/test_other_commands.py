"""georag index, ask and the parser itself."""

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
