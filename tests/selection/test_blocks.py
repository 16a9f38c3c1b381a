"""The arrays as the program takes them: unit rows whatever the scale, zeros where a mask or a gap is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from georag_jax import SelectConfig
from georag_jax.selection import blocks, inputs, vectors
from georag_jax.selection.program import Problem, in_primary

B, K, M, D = 3, 6, 4, 5
VECTORS = "candidates", "query", "subqueries"
NAMES = "subqueries", "scores", "affinity", "retrieved", "primary", "weights", "candidate_mask", "subquery_mask"


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    mask = np.ones((B, K), bool), np.ones((B, M), bool)
    mask[0][1, 2] = mask[1][1, 3] = False
    return {
        "candidates": rng.normal(size=(B, K, D)),
        "query": rng.normal(size=(B, D)),
        "subqueries": rng.normal(size=(B, M, D)),
        "scores": rng.normal(size=(B, K)),
        "affinity": rng.random((B, M, K)),
        "retrieved": rng.integers(-1, K + 4, (B, M, 3)),
        "primary": rng.integers(-1, K + 4, (B, 4)),
        "weights": rng.random((B, M)),
        "candidate_mask": mask[0],
        "subquery_mask": mask[1],
    }


def read(arguments, center=None):
    optional = {name: arguments.get(name) for name in NAMES}
    return inputs.read(arguments["candidates"], arguments["query"], optional, SelectConfig(center=center))


def block(arguments, rows=slice(None), places=None, total=None, size=(K, M), center=None):
    chosen = np.arange(len(arguments["candidates"]))[rows]
    places = np.arange(len(chosen)) if places is None else np.array(places)
    layout = blocks.Layout(places, total or len(chosen), *size)
    return blocks.block(read(arguments, center), rows, layout, vectors.Rooms())


def unit(x):
    x = np.asarray(x, np.float64)
    x = x / np.abs(x).max(-1, keepdims=True)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


SCALES = {
    "tiny": (1e-20, np.float32),
    "huge": (1e20, np.float32),
    "subnormal": (1e-42, np.float32),
    "largest": (5e37, np.float32),
    "tiny double": (1e-200, np.float64),
    "huge double": (1e300, np.float64),
    "subnormal double": (1e-320, np.float64),
    "half": (1, np.float16),
    "huge half": (15000, np.float16),
    "subnormal half": (1e-6, np.float16),
    "bytes": (30, np.int8),
    "integers": (1e9, np.int64),
    "unsigned": (1e18, np.uint64),
}


@pytest.mark.parametrize("scale, dtype", SCALES.values(), ids=SCALES)
def test_rows_are_unit_whatever_the_scale(scale, dtype):
    arguments = drawn()
    for name in VECTORS:
        vectors = np.clip(arguments[name], -3, 3) * scale
        vectors[..., 0] = scale  # no zero vector once rounded
        arguments[name] = (np.abs(vectors) if dtype == np.uint64 else vectors).astype(dtype)
    got = block(arguments)
    for name, mask in {"candidates": "candidate_mask", "subqueries": "subquery_mask"}.items():
        assert got[name].dtype == np.float32
        np.testing.assert_allclose(got[name], unit(arguments[name]) * arguments[mask][..., None], atol=3e-7)
    np.testing.assert_allclose(got["query"], unit(arguments["query"]), atol=3e-7)


@given(st.integers(0, 10**6))
def test_scales_may_differ_from_row_to_row(seed):
    arguments, rng = drawn(seed), np.random.default_rng(seed)
    want = unit(arguments["candidates"]) * arguments["candidate_mask"][..., None]
    arguments["candidates"] = arguments["candidates"] * 10.0 ** rng.integers(-200, 200, (B, K, 1))
    np.testing.assert_allclose(block(arguments)["candidates"], want, atol=3e-7)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 1e300])
@pytest.mark.parametrize("center", [None, (0.1,) * D])
def test_what_a_mask_leaves_out_becomes_zero(value, center):
    arguments = drawn()
    want = {name: x.copy() for name, x in block(arguments, center=center).items()}
    arguments["candidates"][1, 2] = arguments["scores"][1, 2] = value
    arguments["subqueries"][1, 3] = arguments["weights"][1, 3] = value
    arguments["affinity"][1, 3] = arguments["affinity"][1, :, 2] = value
    got = block(arguments, center=center)
    assert got.keys() == want.keys()
    for name in got:
        np.testing.assert_array_equal(got[name], want[name], err_msg=name)
    assert not got["candidates"][1, 2].any()
    assert not got["subqueries"][1, 3].any()


def test_center_is_subtracted():
    arguments, center = drawn(), tuple(np.linspace(-1, 1, D))
    got, want = block(arguments, center=center), {name: unit(arguments[name] - center) for name in VECTORS}
    for name, mask in {"candidates": "candidate_mask", "subqueries": "subquery_mask"}.items():
        np.testing.assert_allclose(got[name], want[name] * arguments[mask][..., None], atol=3e-7)
    np.testing.assert_allclose(got["query"], want["query"], atol=3e-7)


def test_padding_is_zero_and_gaps_hold_no_candidate():
    arguments = drawn()
    got, plain = block(arguments, places=[0, 1, 4], total=6, size=(8, 7)), block(arguments)
    lengths = {"K": (K, 8), "m": (M, 7)}
    for name, x in got.items():
        axes = [lengths[axis] for axis in inputs.AXES.get(name, "mr") if axis in lengths]
        inside = x[[0, 1, 4]]
        np.testing.assert_array_equal(inside[(slice(None), *(slice(n) for n, _ in axes))], plain[name], err_msg=name)
        for axis, (n, padded) in enumerate(axes, 1):
            assert x.shape[axis] == padded
            beyond = np.take(inside, range(n, padded), axis)
            assert not (np.maximum(beyond, 0) if x.dtype.kind == "i" else beyond).any(), name
    lists = {"retrieved", "primary"}
    for name in got.keys() - {"candidates", *lists}:
        assert not got[name][[2, 3, 5]].any(), name
    assert all((got[name][[2, 3, 5]] == -1).all() for name in lists)


@pytest.mark.parametrize("rows", [slice(1, 3), np.array([0, 2])], ids=["slice", "numbers"])
def test_a_block_is_those_rows_of_the_whole(rows):
    arguments = drawn()
    got, whole = block(arguments, rows), block(arguments)
    for name in whole:
        np.testing.assert_array_equal(got[name], whole[name][rows], err_msg=name)


def test_a_shorter_block_is_the_first_columns():
    arguments = drawn()
    arguments["candidate_mask"][:, 4:] = arguments["subquery_mask"][:, 2:] = False
    got, whole = block(arguments, size=(4, 2)), block(arguments)
    for name in ("candidates", "scores", "candidate_mask"):
        np.testing.assert_array_equal(got[name], whole[name][:, :4], err_msg=name)
    np.testing.assert_array_equal(got["affinity"], whole["affinity"][:, :2, :4])
    np.testing.assert_array_equal(got["retrieved"], whole["retrieved"][:, :2])


@pytest.mark.parametrize("with_primary", [True, False])
def test_overlap_is_with_the_own_list_or_the_pool(with_primary):
    arguments = drawn()
    arguments = arguments if with_primary else {name: x for name, x in arguments.items() if name != "primary"}
    arrays = block(arguments, size=(8, M))
    for b in range(B):
        problem = Problem._make(None if (x := arrays.get(name)) is None else x[b] for name in Problem._fields)
        own = arguments["primary"][b] if with_primary else np.flatnonzero(arguments["candidate_mask"][b])
        lists = arguments["retrieved"][b]
        got = np.asarray(in_primary(problem, problem.retrieved)) & (problem.retrieved >= 0)
        np.testing.assert_array_equal(got[:, :3], np.isin(lists, own) & (lists >= 0))
        assert not got[:, 3:].any()  # lists are padded to few different lengths


def test_huge_weights_do_not_overflow():
    arguments = drawn()
    arguments["weights"][1] *= 3e38
    got = block(arguments)["weights"]
    assert np.isfinite(got.sum(1)).all()
    np.testing.assert_allclose(got.max(1), 1)


WRONG = {
    "candidates": ((2, 1, 0), np.nan),
    "query": ((2, 1), np.inf),
    "subqueries": ((2, 3, 2), np.nan),
    "scores": ((2, 0), np.nan),
    "affinity": ((2, 1, 5), 2),
    "weights": ((2, 0), -1),
    "candidate_mask": (2, False),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("rows", [slice(None), slice(2, 3), np.array([0, 2])], ids=["whole", "slice", "numbers"])
def test_the_check_says_what_the_block_says(name, rows):
    arguments = drawn()
    blocks.check(read(arguments), rows)
    where, value = WRONG[name]
    arguments[name][where] = value
    said = []
    for look in (lambda: blocks.check(read(arguments), rows), lambda: block(arguments, rows)):
        with pytest.raises(ValueError, match=rf"^{name}: expected .* of query 2$") as error:
            look()
        said.append(str(error.value))
    assert said[0] == said[1]
    blocks.check(read(arguments), slice(0, 2))


def test_the_caller_s_arrays_stay_as_they_are():
    arguments = drawn()
    before = {name: x.copy() for name, x in arguments.items()}
    block(arguments)
    blocks.check(read(arguments), slice(None))
    for name, x in before.items():
        np.testing.assert_array_equal(arguments[name], x, err_msg=name)
