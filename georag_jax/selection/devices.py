"""Batches of problems on the devices of this process: the query axis is split over them, and walked within each."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Int

from georag_jax.config import SelectConfig
from georag_jax.selection.batching import power_of_two
from georag_jax.selection.program import Outcome, Problem, select_one

QUERIES = "queries"
CPU_CAPACITIES = (1, 16, 128)  # queries that a program on the CPU is compiled for; it computes no more than there are
ACCELERATOR_SHARE = 16  # of a device's memory one block may fill


class Devices(NamedTuple):
    """The devices that blocks run on, and how they are best used.

    Attributes:
        mesh: over the devices of this process.
        is_cpu: whether they are CPUs: there a block is walked query by query, elsewhere it is computed at once.
        memory: bytes of one device; None where it does not say.
    """

    mesh: Mesh
    is_cpu: bool
    memory: int | None

    @property
    def is_single_cpu(self) -> bool:
        """Then the program reads arrays of the host where they are, and each thread may run one of its own."""
        return self.is_cpu and self.mesh.size == 1


def local_devices() -> Devices:
    """All devices of this process on the default backend."""
    devices = jax.local_devices()
    memory = None if devices[0].platform == "cpu" else (devices[0].memory_stats() or {}).get("bytes_limit")
    return Devices(Mesh(np.array(devices), (QUERIES,)), devices[0].platform == "cpu", memory)


def largest_block(devices: Devices, bytes_each: int) -> int:
    """Queries that one block may hold on all devices, given the working memory of one."""
    if devices.is_cpu:
        return CPU_CAPACITIES[-1] * devices.mesh.size
    fit = (devices.memory or 2**33) // ACCELERATOR_SHARE // max(bytes_each, 1)
    return max(1 << (fit.bit_length() - 1), 1) * devices.mesh.size if fit else devices.mesh.size


class Spread(NamedTuple):
    """How a block of queries lies on the devices.

    Attributes:
        places: [n] its rows of the padded block, in order; every device's own come first of its share.
        counts: [devices] queries of each.
        capacity: rows of each device.
        together: queries computed at once.
    """

    places: np.ndarray
    counts: np.ndarray
    capacity: int
    together: int


def spread(count: int, devices: Devices) -> Spread:
    """Queries dealt out evenly. The CPU walks through what there is one by one; others compute all at once."""
    shards = devices.mesh.size
    each = max(-(-count // shards), 1)
    if devices.is_cpu:
        capacity = next(size for size in CPU_CAPACITIES if size >= each)
        together = 1  # in cache, and no query waits for one whose transport takes more steps
    else:
        capacity = together = power_of_two(each)
    counts = np.clip(count - each * np.arange(shards), 0, each).astype(np.int32)
    numbers = np.arange(count)
    return Spread(numbers // each * capacity + numbers % each, counts, capacity, together)


def run(
    arrays: dict[str, np.ndarray], at: Spread, config: SelectConfig, devices: Devices, offset: int | None = None
) -> Outcome:
    """One block in its padded layout, split over the devices, computed, and back on the host at its own size."""
    problem = Problem._make(arrays.get(name) for name in Problem._fields)
    placed = jax.device_put((problem, at.counts), NamedSharding(devices.mesh, PartitionSpec(QUERIES)))
    outcome = jax.device_get(select_batch(*placed, config, at.together, devices.mesh, offset))
    return Outcome._make(field[at.places] for field in outcome)


@partial(jax.jit, static_argnames=("config", "together", "mesh", "offset"))
def select_batch(
    problems: Problem,
    counts: Int[Array, " shards"],
    config: SelectConfig,
    together: int,
    mesh: Mesh,
    offset: int | None = None,
) -> Outcome:
    """``select_one`` over the leading axis, split over the mesh; compiled once for each set of shapes and settings.

    Args:
        problems: [shards * capacity, ...]; with ``offset`` the candidates are [offset + capacity * K * d].
        counts: of each shard's problems those that are to be computed, from its first; the others come out as zeros.
        config: settings.
        together: problems computed at once, a divisor of the capacity.
        mesh: over the axis of queries.
        offset: numbers before those of the candidates; only for walking on a single device.
    """
    one_shard = partial(_walk, config=config, together=together, offset=offset)
    if mesh.size == 1:
        return one_shard(problems, counts)
    spec = PartitionSpec(QUERIES)
    return jax.shard_map(one_shard, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(problems, counts)


def _alone(one: Callable, problems: Problem) -> Outcome:
    """``vmap`` over a single problem, in which conditions stay conditions: one of their sides is computed, not both."""
    return jax.tree.map(lambda x: x[None], one(jax.tree.map(lambda x: x[0], problems)))


def _walk(
    problems: Problem, counts: Int[Array, " one"], config: SelectConfig, together: int, offset: int | None
) -> Outcome:
    """As many groups of problems as it takes; what is not needed is not computed."""
    one = partial(select_one, config=config)
    some = jax.vmap(one) if together > 1 else partial(_alone, one)
    group = partial(_group, problems, together=together, offset=offset)
    if problems.query.shape[0] == together:
        return some(group(0))
    shapes = jax.eval_shape(lambda: jax.vmap(one)(_group(problems, 0, problems.query.shape[0], offset)))

    def step(i, out: Outcome) -> Outcome:
        start = i * together
        write = lambda whole, part: jax.lax.dynamic_update_slice_in_dim(whole, part, start, 0)
        return jax.tree.map(write, out, some(group(start)))

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    return jax.lax.fori_loop(0, -(-counts[0] // together), step, zeros)


def _group(problems: Problem, start, together: int, offset: int | None) -> Problem:
    """The problems from ``start`` on, so many."""
    if offset is None:
        return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, start, together), problems)
    flat, pool = problems.candidates, (problems.candidate_mask.shape[1], problems.query.shape[1])
    numbers = jax.lax.dynamic_slice_in_dim(flat, offset + start * pool[0] * pool[1], together * pool[0] * pool[1])
    rest = _group(problems._replace(candidates=None), start, together, None)
    return rest._replace(candidates=numbers.reshape(together, *pool))
