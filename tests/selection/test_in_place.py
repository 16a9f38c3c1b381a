"""Candidates that the program reads where the caller has them: nothing is copied, and nothing else is different."""

import weakref

import jax
import numpy as np
import pytest

from georag_jax import SelectConfig, Selection, select
from georag_jax.selection import devices, stream, vectors

B, K, M, D = 9, 16, 3, 8  # a pool is a multiple of 64 bytes
CONFIG = SelectConfig(k=4, objective="facility_location")


def lying(values, start):
    """The same numbers, so many numbers beyond a boundary, with NaN before and after them."""
    values = np.asarray(values)
    room = np.full(values.size + 64, np.nan, values.dtype)
    first = (-room.ctypes.data % vectors.BOUNDARY) // values.itemsize + 16 + start
    out = room[first : first + values.size].reshape(values.shape)
    out[...] = values
    return out


def batch(count=B, seed=0, start=4, dtype=np.float32):
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=(count, *shape)).astype(dtype)
    return {"candidates": lying(draw(K, D), start), "query": draw(D), "subqueries": draw(M, D)}


@pytest.fixture
def noted(monkeypatch):
    """Blocks of four queries; a list of where the candidates of each came to the program from."""
    monkeypatch.setattr(devices, "CPU_CAPACITIES", (1, 4))
    monkeypatch.setattr(stream, "_cores", lambda: 1)
    places, run_block = [], stream.run_block

    def note(arrays, *rest):
        places.append((arrays["candidates"].ctypes.data, rest[-1]))
        return run_block(arrays, *rest)

    monkeypatch.setattr(stream, "run_block", note)
    return places


def same(got, want):
    for field in Selection._fields[:-1]:
        np.testing.assert_allclose(getattr(got, field), getattr(want, field), atol=1e-6, err_msg=field)


def copied(arrays, **more):
    """What comes of pools in a list, each of which is copied."""
    return select(**arrays | {"candidates": list(arrays["candidates"])}, config=CONFIG, **more)


@pytest.mark.parametrize("start", [0, 1, 4, 15])
@pytest.mark.parametrize("count", [1, 4, 8, 9, 10])
def test_full_blocks_are_not_copied(start, count, noted):
    arrays = batch(count, start=start)
    got = select(**arrays, config=CONFIG)
    begins = arrays["candidates"].ctypes.data - 4 * start
    inside = [(place, offset) for place, offset in noted if 0 <= place - begins < arrays["candidates"].nbytes]
    first = range(0, count // 4 * 4 + (count % 4 == 1), 4)  # a block of one query is full as well
    assert inside == [(begins + i * K * D * 4, start) for i in first]
    assert len(noted) - len(inside) == (count % 4 > 1)
    assert all(place % vectors.BOUNDARY == 0 for place, _ in noted)
    same(got, copied(arrays))


def test_the_program_gets_the_memory_itself():
    values = lying(np.ones((2, K, D), np.float32), 4)
    flat = vectors.in_place(values, 4)
    assert flat.shape == (4 + values.size,)
    assert np.shares_memory(flat, values)
    assert jax.device_put(flat).unsafe_buffer_pointer() == flat.ctypes.data


def test_the_memory_lives_as_long_as_the_view():
    class Pools(np.ndarray):  # a plain array takes no weak reference
        pass

    values = lying(np.ones((2, K, D), np.float32), 4).view(Pools)
    alive = weakref.ref(values)
    flat = vectors.in_place(values, 4)
    del values
    assert alive() is not None
    del flat
    assert alive() is None


def test_rows_of_any_length_and_masked_nan(noted):
    arrays = batch(8)
    rng = np.random.default_rng(1)
    mask = rng.random((8, K)) < 0.7
    mask[:, -1] = True
    arrays["candidates"] *= 10.0 ** rng.integers(-9, 9, (8, K, 1))
    arrays["candidates"][~mask] = np.nan
    got = select(**arrays, candidate_mask=mask, config=CONFIG)
    assert [offset for _, offset in noted] == [4, 4]
    assert mask[np.arange(8)[:, None], got.indices].all()
    same(got, copied(arrays, candidate_mask=mask))


def test_a_row_out_of_the_ordinary_has_its_block_copied(noted):
    arrays = batch(8)
    arrays["candidates"][5, 3] *= 1e-25
    got = select(**arrays, config=CONFIG)
    begins, size = arrays["candidates"].ctypes.data - 16, arrays["candidates"].nbytes
    assert [0 <= place - begins < size for place, _ in noted] == [True, False]
    same(got, copied(arrays))


@pytest.mark.parametrize("wrong, what", [(np.nan, "finite numbers"), (0.0, "vectors with a direction")])
@pytest.mark.parametrize("count", [4, 8])
def test_wrong_values_are_found_before_anything_is_computed(wrong, what, count, noted):
    arrays = batch(count)
    arrays["candidates"][count - 1, 2] = wrong
    with pytest.raises(ValueError, match=f"^candidates: expected {what}.* at row 2 of query {count - 1}$"):
        select(**arrays, config=CONFIG)
    assert not noted


def test_the_arguments_stay_as_they_are(noted):
    arrays = batch(8)
    arrays["candidates"] *= 3
    before = arrays["candidates"].copy()
    arrays["candidates"].flags.writeable = False
    select(**arrays, config=CONFIG)
    np.testing.assert_array_equal(arrays["candidates"], before)
    assert [offset for _, offset in noted] == [4, 4]


COPIED = {
    "other type": lambda x: x.astype(np.float64),
    "other order": lambda x: np.asfortranarray(x),
    "every second": lambda x: np.repeat(x, 2, 0)[::2],
    "list": list,
    "width": lambda x: x[..., :7],
}


@pytest.mark.parametrize("change", COPIED.values(), ids=COPIED)
def test_what_does_not_lie_so_is_copied(change, noted):
    arrays = batch(8)
    arrays["candidates"] = change(arrays["candidates"])
    if arrays["candidates"][0].shape[1] == 7:
        arrays |= {name: arrays[name][..., :7] for name in ("query", "subqueries")}
    same(select(**arrays, config=CONFIG), copied(arrays))
    assert {offset for _, offset in noted} == {0}


def test_double_precision(noted):
    arrays = batch(8, dtype=np.float64, start=2)
    with jax.enable_x64(True):
        got = select(**arrays, config=CONFIG)
        assert [offset for _, offset in noted] == [2, 2]
        same(got, copied(arrays))
    assert got.gains.dtype == np.float64
