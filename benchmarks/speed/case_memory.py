"""Peak memory of many questions through one call of ``select``, each config in a process of its own."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed import questions
from benchmarks.speed.questions import Plan

COUNT = 10_000
CHILD = "benchmarks.speed.memory_child"
CONFIGS = ("default", "converged")


def run(plan: Plan) -> dict[str, Any]:
    """``peaks``: a row for each config."""
    arguments = questions.cut(questions.pools(plan.data))
    arguments["candidates"] = arguments["candidates"].astype(np.float16)
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "questions.npz"
        np.savez(stored, **arguments)
        return {"peaks": [_measured(stored, config, plan.choose(COUNT, 256)) for config in CONFIGS]}


def _measured(stored: Path, config: str, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", CHILD, str(stored), config, str(count)]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    row = json.loads(done.stdout.splitlines()[-1])
    print(f"  {config}: {row['peak_above_inputs_mib']} MiB above the inputs", file=sys.stderr)
    return row
