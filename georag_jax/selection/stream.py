"""A batch through the devices in blocks: some are read and checked on the host while others are computed."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed

import jax
import numpy as np

from georag_jax.config import SelectConfig
from georag_jax.selection import batching
from georag_jax.selection.blocks import Layout, block, check, factors
from georag_jax.selection.devices import Devices, Spread, largest_block, local_devices, spread
from georag_jax.selection.devices import run as run_block
from georag_jax.selection.inputs import Inputs
from georag_jax.selection.program import Outcome
from georag_jax.selection.vectors import Rooms, offset

_WHOLE = {"demand": "K", "quality": "m"}  # fields whose last axis is that of the batch, not of the block


def run(inputs: Inputs, config: SelectConfig, progress: Callable[[int, int], object] | None = None) -> Outcome:
    """All queries, in their order. A wrong value is found before anything is computed."""
    devices, count = local_devices(), len(inputs.pool)
    # the CPU computes one block a core; elsewhere one block is prepared while another is computed
    workers = _cores() if devices.is_single_cpu else 2
    parts = batching.parts(inputs.used, largest_block(devices, _bytes_each(inputs, config)), workers)
    work = _Work(inputs, config, devices)
    if len(parts) == 1:
        outcome = work.compute(parts[0], work.in_place(parts[0]))
        if progress is not None:
            progress(count, count)
        return _gather(inputs, [(parts[0], outcome)])
    with ThreadPoolExecutor(workers) as threads:
        scales = list(threads.map(work.look, parts))
        jobs = {threads.submit(work.compute, *each): each[0] for each in zip(parts, scales, strict=True)}
        done, results = 0, []
        try:
            for job in as_completed(jobs):
                results.append((jobs[job], job.result()))
                done += len(np.arange(count)[jobs[job].rows])
                if progress is not None:
                    progress(done, count)
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
    return _gather(inputs, results)


class _Work:
    """What is done with each part of one batch, in any thread."""

    def __init__(self, inputs: Inputs, config: SelectConfig, devices: Devices):
        self._inputs, self._config, self._devices = inputs, config, devices
        self._m, self._rooms = batching.bucket(int(inputs.asked.max(initial=0)), 4), Rooms()
        # whether JAX is to compute in float64: what a context manager has set holds in its own thread alone
        self._wide = bool(jax.dtypes.canonicalize_dtype(np.float64) == np.float64)
        self._aligned = offset(inputs) if devices.is_single_cpu else None

    def in_place(self, part: batching.Part) -> np.ndarray | None:
        """What makes the part's candidates unit vectors, if the program can read them where they are."""
        whole = isinstance(part.rows, slice) and part.size == self._inputs.pool[part.rows].max(initial=0)
        if self._aligned is None or not whole or self._spread(part).capacity != len(self._inputs.pool[part.rows]):
            return None
        return factors(self._inputs, part.rows)

    def look(self, part: batching.Part) -> np.ndarray | None:
        """Checks every value of the part; returns what ``in_place`` does."""
        scale = self.in_place(part)
        check(self._inputs, part.rows, candidates=scale is None)
        return scale

    def compute(self, part: batching.Part, scale: np.ndarray | None) -> Outcome:
        """The part's outcome; ``scale`` as ``in_place`` gave it."""
        at, devices = self._spread(part), self._devices
        start = (self._aligned or 0) if devices.is_single_cpu else None
        layout = Layout(at.places, at.capacity * devices.mesh.size, part.size, self._m, start)
        with jax.enable_x64(self._wide):
            arrays = block(self._inputs, part.rows, layout, self._rooms, scale)
            return run_block(arrays, at, self._config, devices, start)

    def _spread(self, part: batching.Part) -> Spread:
        return spread(len(self._inputs.pool[part.rows]), self._devices)


def _gather(inputs: Inputs, results: list[tuple[batching.Part, Outcome]]) -> Outcome:
    """The blocks' outcomes in the order of the batch, without the blocks' padding."""
    count, whole = len(inputs.pool), {"K": _longest(inputs, "K"), "m": _longest(inputs, "m")}
    joined = []
    for name in Outcome._fields:
        first = getattr(results[0][1], name)
        tail = (whole[_WHOLE[name]],) if name in _WHOLE else first.shape[1:]
        field = np.zeros((count, *tail), first.dtype)
        for part, outcome in results:
            values = getattr(outcome, name)
            if name in _WHOLE:
                field[part.rows, : values.shape[1]] = values[:, : field.shape[1]]
            else:
                field[part.rows] = values
        joined.append(field)
    return Outcome._make(joined)


def _longest(inputs: Inputs, axis: str) -> int:
    """The longest such axis of any query, of the arrays' own shape where there is no query."""
    if len(inputs.pool):
        return int((inputs.pool if axis == "K" else inputs.asked).max())
    columns = inputs.columns
    column = columns["candidates"] if axis == "K" else columns.get("subqueries", columns.get("affinity"))
    return column.shape[1] if isinstance(column, np.ndarray) else 0


def _bytes_each(inputs: Inputs, config: SelectConfig) -> int:
    """Working memory of one query on a device: its vectors and a handful of arrays of the size of its Gram matrix."""
    size, d = int(inputs.used.max(initial=1)), inputs.columns["candidates"][0].shape[-1] if len(inputs.pool) else 1
    return 4 * size * (2 * d + 8 * size)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
