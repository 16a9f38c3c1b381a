"""The commands of the README in a shell, one after the other."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = """
georag index corpus.jsonl --out index --encoder {encoder} &&
georag select index --queries queries.jsonl --subqueries subqueries.jsonl --encoder {encoder} --out picks.jsonl &&
georag evaluate picks.jsonl --queries queries.jsonl --strict &&
georag ask index "Which river and which bridge?" --encoder {encoder}
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_index_select_evaluate_and_ask(folder, encoder, tmp_path):
    for name in ("corpus.jsonl", "queries.jsonl", "subqueries.jsonl"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    script = COMMANDS.strip().format(encoder=shlex.quote(encoder))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "GEORAG_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for shown in (
        "index: 40 passages",
        "picks.jsonl: 6 questions",
        "picks.jsonl: 6 of 6 questions; 0 have no picks, 0 no gold passages",
        "1. Entry",
        "5. Entry",
    ):
        assert shown in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "picks.jsonl").read_text().splitlines()]
    assert [len(row["picks"]) for row in rows] == [5] * 6
    names = {entry.name for entry in tmp_path.iterdir()} - {"cache"}
    assert names == {"corpus.jsonl", "queries.jsonl", "subqueries.jsonl", "index", "picks.jsonl"}
