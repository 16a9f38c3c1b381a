"""The README's code runs, its commands exist, and it stays short."""

import re
import shlex
from pathlib import Path

import pytest

from georag_jax.cli import COMMANDS, parser

README = Path(__file__).parents[1] / "README.md"


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_python_blocks_run_in_order():
    pytest.importorskip("faiss")
    names = {}
    found = blocks("python")
    assert found
    for block in found:
        exec(compile(block, str(README), "exec"), names)
    assert names["selection"].indices.shape == (5,)
    assert {pick.document.id for pick in names["result"].picks} == {"a", "b"}


def test_commands_are_understood():
    commands = [
        line.split("#")[0].strip().removeprefix("pip install '.[local]' && ")
        for block in blocks("sh")
        for line in block.splitlines()
        if "georag " in line.split("#")[0]
    ]
    assert {shlex.split(command)[1] for command in commands} == set(COMMANDS)
    for command in commands:
        parser().parse_args(shlex.split(command)[1:])


def test_the_two_commands_stand_in_the_first_screen():
    top = "\n".join(README.read_text(encoding="utf-8").splitlines()[:12])
    assert "pip install '.[local]' && georag demo" in top
    assert "pip install '.[test]' && pytest" in top


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target


def test_length():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 120


def test_nothing_was_left_to_fill_in():
    root = README.parent
    for page in (README, root / "CHANGELOG.md", *root.glob("docs/*.md"), *root.glob("bench_results/*.md")):
        assert not re.findall(r"\b(?:TODO|TBD|[A-Z]+_(?:TABLE|VERDICT))\b", page.read_text(encoding="utf-8")), page
