"""A batch in blocks: the same result, in order, checked beforehand, in bounded memory, compiled once."""

import threading
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from georag_jax import SelectConfig, Selection, select
from georag_jax.selection import devices, stream, vectors
from georag_jax.selection.program import Problem, select_one

B, K, M, D = 11, 10, 3, 5
CONFIG, CHEAP = SelectConfig(k=3), SelectConfig(k=3, objective="cosine")


def batch(count=B, seed=0, d=D):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=(count, *shape)).astype(np.float32)
    return {"candidates": draw(K, d), "query": draw(d), "subqueries": draw(M, d)}


def as_ragged(arrays):
    return arrays | {"candidates": [x[: 3 + b % 7] for b, x in enumerate(arrays["candidates"])]}


shapes = pytest.mark.parametrize("shape", [dict, as_ragged], ids=["uniform", "ragged"])


@pytest.fixture
def small(monkeypatch):
    """Blocks of at most four queries, two at a time; a list that each block is noted in."""
    monkeypatch.setattr(devices, "CPU_CAPACITIES", (1, 2, 4))
    monkeypatch.setattr(stream, "_cores", lambda: 2)
    noted, run_block = [], stream.run_block

    def note(arrays, *rest):
        noted.append((threading.get_ident(), arrays["candidates"].ctypes.data, arrays["candidates"].shape))
        return run_block(arrays, *rest)

    monkeypatch.setattr(stream, "run_block", note)
    return noted


@shapes
def test_blocks_are_the_whole_in_order(shape, monkeypatch, small):
    arrays = shape(batch())
    got = select(**arrays, config=CONFIG)
    assert len(small) > 2
    monkeypatch.undo()
    monkeypatch.setattr(stream, "_cores", lambda: 1)
    want = select(**arrays, config=CONFIG)
    np.testing.assert_array_equal(got.indices, want.indices)
    for field in Selection._fields[:-1]:
        assert getattr(got, field).dtype == getattr(want, field).dtype
        np.testing.assert_allclose(getattr(got, field), getattr(want, field), atol=2e-6, err_msg=field)


@shapes
@pytest.mark.parametrize("count", [1, B])
def test_progress_grows_to_the_total(shape, count, small):
    calls = []
    select(**shape(batch(count)), config=CHEAP, progress=lambda *call: calls.append(call))
    done, totals = zip(*calls, strict=True)
    assert len(calls) == len(small)
    assert set(totals) == {count}
    assert done[-1] == count
    assert all(np.diff((0, *done)) > 0)


def test_one_query_has_its_progress():
    calls = []
    select(**{name: x[0] for name, x in batch(1).items()}, config=CHEAP, progress=lambda *call: calls.append(call))
    assert calls == [(1, 1)]


@shapes
@pytest.mark.parametrize("name", ["candidates", "query", "subqueries"])
def test_a_wrong_value_in_the_last_query_is_found_before_anything_is_computed(shape, name, small):
    arrays = shape(batch())
    arrays[name][-1][0] = np.nan
    with pytest.raises(ValueError, match=f"^{name}: expected finite numbers.* of query {B - 1}$"):
        select(**arrays, config=CHEAP)
    assert not small


def alive():
    return {thread.ident for thread in threading.enumerate()}


def test_an_error_in_a_block_ends_the_pool(monkeypatch, small):
    def fail(*_):
        raise RuntimeError("lost device")

    monkeypatch.setattr(stream, "run_block", fail)
    before, calls = alive(), []
    with pytest.raises(RuntimeError, match="lost device"):
        select(**batch(), config=CHEAP, progress=lambda *call: calls.append(call))
    assert alive() <= before
    assert not calls


def test_an_error_in_progress_ends_the_pool(small):
    before = alive()
    with pytest.raises(ZeroDivisionError):
        select(**batch(), config=CHEAP, progress=lambda done, total: 1 // 0)
    assert alive() <= before


def test_no_query(small):
    arrays = {name: x[:0] for name, x in batch().items()}
    got = select(**arrays, config=CHEAP)
    assert (got.indices.shape, got.demand.shape, got.quality.shape) == ((0, 3), (0, K), (0, M))
    alone = select(arrays["candidates"], arrays["query"], affinity=np.zeros((0, M, K)), config=CHEAP)
    assert alone.quality.shape == (0, M)


def test_double_precision_reaches_every_block(small):
    arrays = {name: x.astype(np.float64) for name, x in batch().items()}
    with jax.enable_x64(True):
        got = select(**arrays, config=CHEAP)
        loop = [select(**{name: x[b] for name, x in arrays.items()}, config=CHEAP) for b in range(B)]
    assert {x.dtype.name for x in got[:-1]} == {"float64", "int32"}
    for b in range(B):
        np.testing.assert_allclose(got.scores[b], loop[b].scores, rtol=1e-13)
        np.testing.assert_allclose(got.demand[b], loop[b].demand, rtol=1e-12)


def test_one_aligned_buffer_for_each_thread(small):
    select(**batch(23), config=CHEAP)
    assert len(small) == 6
    places = {thread: {place for t, place, _ in small if t == thread} for thread, *_ in small}
    assert all(len(each) == 1 for each in places.values())
    assert len(set.union(*places.values())) == len(places) <= 2
    assert all(place % 64 == 0 for _, place, _ in small)


def test_a_room_is_reused_and_aligned():
    rooms, elsewhere = vectors.Rooms(), []
    for dtype in (np.float32, np.float64):
        large = rooms.room(105, dtype)
        assert (large.shape, large.dtype) == ((105,), dtype)
        small = rooms.room(30, dtype)
        assert small.ctypes.data == large.ctypes.data
        assert small.ctypes.data % 64 == 0
    thread = threading.Thread(target=lambda: elsewhere.append(rooms.room(30, np.float64)))
    thread.start()
    thread.join()
    assert not np.shares_memory(elsewhere[0], small)


@shapes
def test_another_length_compiles_nothing(shape, small):
    select(**shape(batch(14)), config=CHEAP)
    before = devices.select_batch._cache_size()
    select(**shape(batch(28, seed=1)), config=CHEAP)
    assert devices.select_batch._cache_size() == before


def test_one_capacity_serves_fewer_queries(small, monkeypatch):
    monkeypatch.setattr(stream, "_cores", lambda: 1)
    select(**batch(4), config=CHEAP)
    before = devices.select_batch._cache_size()
    select(**batch(3), config=CHEAP)
    assert devices.select_batch._cache_size() == before
    select(**batch(2), config=CHEAP)
    assert devices.select_batch._cache_size() <= before + 1


def problems(count, seed=0):
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
    vectors = {name: unit(x) for name, x in batch(count, seed).items()}
    masks = {"candidate_mask": np.ones((count, K), bool), "subquery_mask": np.ones((count, M), bool)}
    given = vectors | masks
    return Problem._make(given.get(name) for name in Problem._fields)


@pytest.mark.parametrize("together", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_only_groups_that_hold_a_query_are_computed(count, together):
    mesh, every = devices.local_devices().mesh, problems(4)
    got = devices.select_batch(every, np.array([count], np.int32), CHEAP, together, mesh)
    whole = devices.select_batch(every, np.array([4], np.int32), CHEAP, together, mesh)
    computed = -(-count // together) * together
    for name, a, b in zip(got._fields, got, whole, strict=True):
        np.testing.assert_array_equal(a[:computed], b[:computed], err_msg=name)
        assert not np.asarray(a[computed:]).any(), name
    assert np.asarray(whole.scores).all()


@pytest.mark.parametrize("config", [CONFIG, SelectConfig(k=3, objective="dpp")], ids=["default", "dpp"])
def test_compiled_is_eager(config):
    problem = Problem._make(None if x is None else jnp.asarray(x[0]) for x in problems(1))
    eager = select_one(problem, config)
    compiled = jax.jit(partial(select_one, config=config))(problem)
    np.testing.assert_array_equal(compiled.indices, eager.indices)
    for name, a, b in zip(eager._fields, compiled, eager, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, atol=2e-6, err_msg=name)
