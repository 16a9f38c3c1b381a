"""A batch over several processes: every row falls to one of them, and all of them get the whole."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from georag_jax import SelectConfig, Selection, select
from georag_jax.selection import gather_selections, process_share

CONFIG = {"k": 3}
POOLS, ASKED, D = (8, 5, 9, 9, 3, 16, 7), (2, 3, 1, 0, 5, 2, 1), 4  # widest pool and sub-queries in either share
SCRIPT = """
import json, sys
import jax, numpy as np

folder, address, me = sys.argv[1], sys.argv[2], int(sys.argv[3])
jax.distributed.initialize(address, 2, me)
from georag_jax import SelectConfig, Selection, select
from georag_jax.selection import gather_selections, process_share

config = SelectConfig(**json.loads(sys.argv[4]))
drawn = np.load(folder + "/drawn.npz")
query = drawn["query"]
pools, subs = ([drawn[f"{name}{b}"] for b in range(len(query))] for name in ("pool", "sub"))
share = process_share(len(query))
got = gather_selections(select(pools[share], query[share], subs[share], config=config))
one, share = np.stack([pools[0]]), process_share(1)
lone = gather_selections(select(one[share], query[:1][share], np.stack(subs[:1])[share], config=config))
for name, found in {"whole": got, "lone": lone}.items():
    np.savez(f"{folder}/{name}{me}.npz", **{field: x for field, x in found._asdict().items() if x is not None})
print(json.dumps([jax.process_count(), len(jax.devices()), len(jax.local_devices())]))
"""


@given(st.integers(0, 1000), st.integers(1, 64))
def test_shares_are_the_batch_in_order(count, processes):
    shares = [process_share(count, index, processes) for index in range(processes)]
    assert [n for share in shares for n in range(count)[share]] == list(range(count))


@given(st.integers(0, 1000), st.integers(1, 64))
def test_shares_differ_by_one_at_most(count, processes):
    lengths = [len(range(count)[process_share(count, index, processes)]) for index in range(processes)]
    assert max(lengths) - min(lengths) <= 1


def test_one_process_has_the_whole():
    assert process_share(5) == slice(0, 5)
    whole = Selection(*[np.zeros((2, 3))] * 9)
    assert gather_selections(whole) is whole


@pytest.mark.parametrize("named, arguments", [("count", (-1, 0, 1)), ("index", (3, 2, 2)), ("index", (3, -1, 2))])
def test_no_such_share(named, arguments):
    with pytest.raises(ValueError, match=f"^{named}: expected"):
        process_share(*arguments)


def free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    query = rng.normal(size=(len(POOLS), D))
    return [rng.normal(size=(n, D)) for n in POOLS], query, [rng.normal(size=(n, D)) for n in ASKED]


@pytest.fixture(scope="module")
def two(tmp_path_factory, drawn):
    """Where two processes leave what each has gathered, and what each says of its devices."""
    folder, (pools, query, subs) = tmp_path_factory.mktemp("two"), drawn
    arrays = {f"pool{b}": x for b, x in enumerate(pools)} | {f"sub{b}": x for b, x in enumerate(subs)}
    np.savez(folder / "drawn.npz", query=query, **arrays)
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"} | {"JAX_PLATFORMS": "cpu"}
    address = f"localhost:{free_port()}"
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(folder), address, str(me), json.dumps(CONFIG)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for me in range(2)
    ]
    try:
        said = [process.communicate(timeout=300) for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], said
    return folder, [json.loads(out.splitlines()[-1]) for out, _ in said]


def test_two_processes_see_each_other(two):
    _, said = two
    assert said == [[2, 2, 1]] * 2


@pytest.mark.parametrize("me", [0, 1])
@pytest.mark.parametrize("name, rows", [("whole", slice(None)), ("lone", slice(0, 1))])
def test_both_processes_get_the_whole(two, drawn, name, rows, me):
    folder, _ = two
    want = select(*(x[rows] for x in drawn), config=SelectConfig(**CONFIG))
    got = np.load(folder / f"{name}{me}.npz")
    assert set(got) == set(Selection._fields[:-1])
    for field in got:
        x, w = got[field], getattr(want, field)
        assert (x.shape, x.dtype) == (w.shape, w.dtype), field
        np.testing.assert_allclose(x, w, rtol=0, atol=0 if x.dtype.kind == "i" else 2e-6, err_msg=field)
