"""The process whose memory is measured: ``python -m benchmarks.speed.memory_child QUESTIONS.npz CONFIG COUNT``.

Linux alone: the peak is read from /proc, where it can be set back. ``ru_maxrss`` cannot, and a child starts with that
of its parent.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import georag_jax as gr
from benchmarks.speed import questions

MIB = 2**20
CLEAR = Path("/proc/self/clear_refs")
CONFIGS = {
    "default": lambda: gr.SelectConfig(),
    "converged": lambda: replace(gr.SelectConfig.preset("paper"), solver="converged"),
}


def main(stored: str, config: str, count: str) -> None:
    """Makes the inputs, starts the backend, selects, and prints one line of JSON.

    Imports and backend are there before the measurement begins; compilation and results count.
    """
    with np.load(stored) as arrays:
        arguments = questions.repeat(dict(arrays), int(count))
    chosen, select = CONFIGS[config](), gr.select
    (jnp.ones((8, 8)) @ jnp.ones((8, 8))).block_until_ready()
    CLEAR.write_text("5", encoding="ascii")  # sets the peak back to what is resident
    before = resident("VmRSS")
    start = time.perf_counter()
    found = select(**arguments, config=chosen)
    seconds = time.perf_counter() - start
    peak = resident("VmHWM")
    row = questions.sizes(arguments) | {
        "config": config,
        "picks": list(found.indices.shape),
        "inputs_mib": round(sum(x.nbytes for x in arguments.values()) / MIB),
        "before_mib": round(before / MIB, 1),
        "peak_above_inputs_mib": round((peak - before) / MIB, 1),
        "seconds": round(seconds, 2),
    }
    print(json.dumps(row))


def resident(field: str) -> int:
    """Bytes, from the kernel's account of this process."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    main(*sys.argv[1:])
