"""The query axis over several devices: dealt out evenly, really split, and the same picks as on one."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from georag_jax import SelectConfig, select
from georag_jax.selection import devices

SHARDS = st.sampled_from([1, 2, 8])
FIELDS = "indices", "gains", "demand", "coverage", "quality", "marginal_error", "status", "scores", "stopped"
SETTINGS = {
    "default": {"k": 3},
    "converged": {"k": 2, "objective": "sinkhorn"},
    "algorithm2": {"k": 2, "objective": "sinkhorn", "solver": "algorithm2", "iterations": 20},
    "mmr": {"k": 3, "objective": "mmr", "relevance_weight": 0.5},
    "dpp": {"k": 3, "objective": "dpp", "relevance_weight": 0.5},
}
SCRIPT = """
import json, sys
import jax, numpy as np
from georag_jax import SelectConfig, select
from georag_jax.selection import devices

folder, settings, fields = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
drawn, splits, compiled = np.load(folder + "/drawn.npz"), [], devices.select_batch


def watched(problems, *rest):
    outcome = compiled(problems, *rest)
    for x in (problems.candidates, *outcome):
        shards = x.addressable_shards
        rows = [shard.data.shape[0] for shard in shards]
        splits.append((len({shard.device for shard in shards}), len(x), rows))
    return outcome


devices.select_batch = watched
for name, config in settings.items():
    for count in (37, 3) if name == "default" else (37,):
        got = select(*(drawn[x][:count] for x in ("pool", "query", "sub")), config=SelectConfig(**config))
        np.savez(f"{folder}/{name}{count}.npz", **{field: getattr(got, field) for field in fields})
ragged = [x[: 3 + b % 7] for b, x in enumerate(drawn["pool"])]
got = select(ragged, drawn["query"], config=SelectConfig(k=3, objective="mmr"))
np.savez(f"{folder}/ragged37.npz", **{field: getattr(got, field) for field in fields})
print(json.dumps([len(jax.devices()), splits]))
"""


def some(shards, is_cpu, memory=None):
    return devices.Devices(SimpleNamespace(size=shards), is_cpu, memory)


@given(st.integers(0, 128), SHARDS, st.booleans())
def test_queries_are_dealt_out_evenly(count, shards, is_cpu):
    at = devices.spread(count, some(shards, is_cpu))
    assert at.counts.shape == (shards,)
    assert at.counts.sum() == count
    assert at.counts.max() == -(-count // shards)
    assert at.counts.max() <= at.capacity
    assert at.capacity % at.together == 0


@given(st.integers(0, 128), SHARDS, st.booleans())
def test_the_queries_of_a_device_come_first_in_its_share(count, shards, is_cpu):
    at = devices.spread(count, some(shards, is_cpu))
    held = [shard * at.capacity + n for shard in range(shards) for n in range(at.counts[shard])]
    assert at.places.tolist() == held


@given(SHARDS, st.booleans(), st.integers(2**20, 2**40), st.sampled_from([None, 2**34, 2**37]))
def test_the_largest_block_fits(shards, is_cpu, each, memory):
    largest = devices.largest_block(some(shards, is_cpu, memory), each)
    at = devices.spread(largest, some(shards, is_cpu, memory))
    assert (at.counts == largest // shards).all()
    assert largest >= shards
    if not is_cpu:
        assert at.capacity == at.counts[0]  # no row of a full block is padding
        room = (memory or 2**33) / devices.ACCELERATOR_SHARE
        assert at.capacity * each <= room or at.capacity == 1


def test_devices_of_this_process():
    here = devices.local_devices()
    assert (here.mesh.size, here.mesh.axis_names) == (1, (devices.QUERIES,))
    assert here.is_cpu == (here.memory is None)


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    """What eight devices select from 37 queries, or the first 3 of them, and how the arrays were split."""
    folder, rng = tmp_path_factory.mktemp("eight"), np.random.default_rng(0)
    drawn = {
        "pool": rng.normal(size=(37, 10, 5)),
        "query": rng.normal(size=(37, 5)),
        "sub": rng.normal(size=(37, 3, 5)),
    }
    np.savez(folder / "drawn.npz", **drawn)
    given = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), json.dumps(SETTINGS), json.dumps(FIELDS)],
        capture_output=True,
        text=True,
        check=False,
        env=given,
    )
    assert done.returncode == 0, done.stderr
    return folder, drawn, json.loads(done.stdout.splitlines()[-1])


def agree(folder, name, want):
    got = np.load(folder / f"{name}.npz")
    for field in FIELDS:
        assert got[field].dtype == getattr(want, field).dtype
        check = np.testing.assert_array_equal if got[field].dtype.kind == "i" else np.testing.assert_allclose
        check(
            got[field], getattr(want, field), **({} if got[field].dtype.kind == "i" else {"atol": 2e-5}), err_msg=field
        )


@pytest.mark.parametrize("name", SETTINGS)
def test_eight_devices_pick_what_one_picks(eight, name):
    folder, drawn, _ = eight
    agree(folder, f"{name}37", select(*drawn.values(), config=SelectConfig(**SETTINGS[name])))


def test_fewer_queries_than_devices(eight):
    folder, drawn, _ = eight
    few = [x[:3] for x in drawn.values()]
    agree(folder, "default3", select(*few, config=SelectConfig(**SETTINGS["default"])))


def test_ragged_pools_on_eight_devices(eight):
    folder, drawn, _ = eight
    ragged = [x[: 3 + b % 7] for b, x in enumerate(drawn["pool"])]
    agree(folder, "ragged37", select(ragged, drawn["query"], config=SelectConfig(k=3, objective="mmr")))


def test_every_array_is_split_over_all_devices(eight):
    *_, (count, splits) = eight
    assert count == 8
    assert splits
    assert all(found == 8 and rows == [total // 8] * 8 for found, total, rows in splits)
