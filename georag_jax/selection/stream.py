"""A batch through the devices in blocks: some are read and checked on the host while others are computed."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed

import jax
import numpy as np

from georag_jax.config import SelectConfig
from georag_jax.selection import batching
from georag_jax.selection.blocks import Layout, Rooms, block, check
from georag_jax.selection.devices import largest_block, local_devices, spread
from georag_jax.selection.devices import run as run_block
from georag_jax.selection.inputs import Inputs
from georag_jax.selection.program import Outcome

_WHOLE = {"demand": "K", "quality": "m"}  # fields whose last axis is that of the batch, not of the block


def run(inputs: Inputs, config: SelectConfig, progress: Callable[[int, int], object] | None = None) -> Outcome:
    """All queries, in their order. A wrong value is found before anything is computed."""
    devices, count = local_devices(), len(inputs.pool)
    # the CPU computes one block a core; elsewhere one block is prepared while another is computed
    workers = _cores() if devices.is_cpu and devices.mesh.size == 1 else 2
    parts = batching.parts(inputs.used, largest_block(devices, _bytes_each(inputs, config)), workers)
    m, rooms = batching.bucket(int(inputs.asked.max(initial=0)), 4), Rooms()

    # whether JAX is to compute in float64: what a context manager has set holds in its own thread alone
    wide = bool(jax.dtypes.canonicalize_dtype(np.float64) == np.float64)

    def work(part: batching.Part) -> Outcome:
        at = spread(len(np.arange(count)[part.rows]), devices)
        layout = Layout(at.places, at.capacity * devices.mesh.size, part.size, m)
        with jax.enable_x64(wide):
            return run_block(_complete(block(inputs, part.rows, layout, rooms)), at, config, devices)

    if len(parts) == 1:
        outcome = work(parts[0])
        if progress is not None:
            progress(count, count)
        return _gather(inputs, [(parts[0], outcome)])
    with ThreadPoolExecutor(workers) as threads:
        list(threads.map(lambda part: check(inputs, part.rows), parts))
        jobs = {threads.submit(work, part): part for part in parts}
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


def _complete(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The program wants sub-queries or their affinity, be it of none."""
    if "subqueries" not in arrays and "affinity" not in arrays:
        (count, size, _), m = arrays["candidates"].shape, arrays["subquery_mask"].shape[1]
        arrays["affinity"] = np.zeros((count, m, size), arrays["candidates"].dtype)
    if "retrieved" in arrays:
        missing = batching.bucket(arrays["retrieved"].shape[2], 4) - arrays["retrieved"].shape[2]
        for name, fill in (("retrieved", -1), ("in_primary", False)):
            arrays[name] = np.pad(arrays[name], ((0, 0), (0, 0), (0, missing)), constant_values=fill)
    return arrays


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
