"""What a measurement has to say of the machine it ran on."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax


def environment() -> dict[str, Any]:
    """Versions, device, commit and time, ready for JSON."""
    git = lambda *words: subprocess.run(
        ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "commit": git("rev-parse", "--short", "HEAD") or "unknown",
        "uncommitted_changes": bool(git("status", "--porcelain", "--untracked-files=no")),
        "python": platform.python_version(),
        "jax": version("jax"),
        "numpy": version("numpy"),
        "device": jax.devices()[0].device_kind,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "utc": datetime.now(UTC).isoformat(timespec="seconds"),
    }
