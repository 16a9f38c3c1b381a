"""Which room may import which, and what importing the package must not do."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import georag_jax

ROOT = Path(georag_jax.__file__).parent
GROUND = {"_types", "_errors", "config", "documents"}
ALLOWED = {  # room: the rooms that it may import besides itself; a new room has to be entered here
    "__init__": {"_errors", "_types", "config", "documents", "selection", "pipeline"},
    "_errors": set(),
    "documents": set(),
    "config": {"_errors"},
    "_types": {"documents"},
    "_jsonl": GROUND,
    "kernels": GROUND,
    "selection": GROUND | {"kernels"},
    "retrieval": GROUND | {"_jsonl"},
    "models": GROUND | {"_jsonl"},
    "metrics": GROUND,
    "demo": GROUND,
    "pipeline": GROUND | {"_jsonl", "kernels", "selection", "retrieval", "models"},
    "cli": GROUND | {"_jsonl", "kernels", "selection", "retrieval", "models", "pipeline", "metrics", "demo"},
}
OUTSIDE = {"kernels": {"jax", "numpy", "jaxtyping"}, "metrics": {"numpy"}, "documents": {"numpy"}, "demo": set()}


def room(file):
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(file):
    """Full names of what a file imports, wherever in it; a name from the package itself counts as its own module."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            inside = node.module == "georag_jax"
            yield from (f"{node.module}.{alias.name}" for alias in node.names) if inside else [node.module]


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(ROOT)) for file in FILES])
def test_imports_go_one_way(file):
    here = room(file)
    assert here in ALLOWED, f"enter the new room {here!r} in ALLOWED, with the rooms that it may import"
    names = [name.split(".") for name in imported(file)]
    rooms = {name[1] for name in names if name[0] == "georag_jax" and len(name) > 1} - {"__version__"}
    wrong = rooms - ALLOWED[here] - {here}
    assert not wrong, f"{here} must not import {sorted(wrong)}"
    if here in OUTSIDE:
        outside = {name[0] for name in names} - {"georag_jax"} - set(sys.stdlib_module_names)
        assert outside <= OUTSIDE[here], f"{here} must not import {sorted(outside - OUTSIDE[here])}"


def test_the_table_has_no_cycle():
    done = set()
    while len(done) < len(ALLOWED):
        ready = {name for name, below in ALLOWED.items() if name not in done and below & set(ALLOWED) - {name} <= done}
        assert ready, f"a cycle among {sorted(set(ALLOWED) - done)}"
        done |= ready


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=dict(os.environ)
    )


def test_import_brings_no_heavy_module():
    done = run(
        "import sys, georag_jax; dir(georag_jax)\n"
        "from georag_jax import SelectConfig, describe, Document; SelectConfig()\n"
        "heavy = {'jax', 'flax', 'faiss', 'bm25s', 'transformers', 'tokenizers', 'torch', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    assert done.returncode == 0, done.stderr


def test_import_of_everything_starts_no_backend():
    done = run(
        "import georag_jax\n"
        "[getattr(georag_jax, name) for name in georag_jax.__all__]\n"
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge.backends_are_initialized()"
    )
    assert done.returncode == 0, done.stderr


def test_import_reads_no_environment():
    """Every look at os.environ is traced to the innermost frame of the package, if there is one."""
    done = run(
        "import os, sys\n"
        "import jax, numpy\n"
        "readers = []\n"
        "class Watched(type(os.environ)):\n"
        "    def __getitem__(self, key):\n"
        "        readers.append((key, sys._getframe(1).f_code.co_filename, sys._getframe(2).f_code.co_filename))\n"
        "        return super().__getitem__(key)\n"
        "os.environ.__class__ = Watched\n"
        "os.environ.get('PATH')\n"
        "assert readers.pop()[0] == 'PATH' and not readers\n"
        "import georag_jax\n"
        "[getattr(georag_jax, name) for name in georag_jax.__all__]\n"
        "ours = [entry for entry in readers if any('georag_jax' in place for place in entry[1:])]\n"
        "assert not ours, ours"
    )
    assert done.returncode == 0, done.stderr


def test_public_names_resolve():
    assert len(set(georag_jax.__all__)) == len(georag_jax.__all__)
    for name in georag_jax.__all__:
        assert getattr(georag_jax, name) is not None
    assert set(dir(georag_jax)) == set(georag_jax.__all__)
