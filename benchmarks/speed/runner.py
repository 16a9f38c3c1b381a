"""Runs cases and keeps what they measured: one JSON file, written anew after every case."""

import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.environment import environment
from benchmarks.speed import STORED
from benchmarks.speed.questions import Plan

PACKAGES = ("georag-jax", "jaxlib", "numpy", "scipy", "ott-jax", "POT", "apricot-select", "numba", "pyversity")
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")


def run_cases(names: Sequence[str], plan: Plan, out: Path) -> list[str]:
    """Measures each case and stores it in the place of what was there before; the names of those that failed."""
    out.mkdir(parents=True, exist_ok=True)
    stored, failed = out / STORED, []
    for name in names:
        print(f"{name} ...", file=sys.stderr)
        try:
            case = _measured(name, plan)
        except Exception:
            traceback.print_exc()
            failed.append(name)
            continue
        result = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() else {"cases": {}}
        result["cases"][name] = case
        write(stored, result)
        print(f"{name}: {case['seconds']} s", file=sys.stderr)
    return failed


def write(path: Path, result: dict[str, Any]) -> None:
    """The file is whole at any time."""
    part = path.with_suffix(".tmp")
    part.write_text(layout(result) + "\n", encoding="utf-8")
    part.replace(path)


def layout(value: Any, indent: int = 0, width: int = 400) -> str:
    """JSON in which whatever fits in a line of ``width`` has one.

    >>> layout({"a": [1, 2]})
    '{"a": [1, 2]}'
    """
    flat = json.dumps(value)
    if len(flat) <= width or not isinstance(value, dict | list):
        return flat
    inner = "\n" + " " * (indent + 1)
    if isinstance(value, list):
        parts, ends = [layout(each, indent + 1, width) for each in value], "[]"
    else:
        parts = [f"{json.dumps(name)}: {layout(each, indent + 1, width)}" for name, each in value.items()]
        ends = "{}"
    return ends[0] + inner + f",{inner}".join(parts) + "\n" + " " * indent + ends[1]


def _measured(name: str, plan: Plan) -> dict[str, Any]:
    case = {"environment": surroundings(), "quick": plan.quick, "rounds": plan.rounds}
    start = time.perf_counter()
    measured = import_module(f"benchmarks.speed.case_{name}").run(plan)
    case |= {"seconds": round(time.perf_counter() - start), "load_average_at_end": round(os.getloadavg()[0], 2)}
    return case | measured


def surroundings() -> dict[str, Any]:
    """Machine, load, commit and time, and the version of every library compared; None where one is not installed."""
    found = environment() | {"processor": _processor(), "load_average_at_start": round(os.getloadavg()[0], 2)}
    found["threads"] = {name: os.environ[name] for name in THREADS if name in os.environ}
    return found | {"packages": {name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """The name that Linux gives the processor, else the platform's."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.exists() else []
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
