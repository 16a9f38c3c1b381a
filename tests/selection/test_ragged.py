"""Lists of unequal pools and sub-queries: the loop of single calls, and the padded arrays with masks."""

import jax.numpy as jnp
import numpy as np
import pytest

from georag_jax import SelectConfig, Selection, Status, select
from georag_jax.selection import stream

POOLS, ASKED, D = (7, 10, 3, 5), (3, 0, 4, 1), 5
B, K, M = len(POOLS), max(POOLS), max(ASKED)
CONFIG = SelectConfig(k=4)
AXES = {
    "scores": "K",
    "affinity": "mK",
    "retrieved": "mr",
    "primary": "P",
    "weights": "m",
    "candidate_mask": "K",
    "subquery_mask": "m",
}
VECTORS = {"candidates": "Kd", "query": "d", "subqueries": "md"}
PLAIN = ("candidates", "query", "subqueries")
LISTS = (*PLAIN, "scores", "affinity", "retrieved", "primary", "candidate_mask", "subquery_mask")
WEIGHED = (*PLAIN, "scores", "weights", "candidate_mask")
given_sets = pytest.mark.parametrize("names", [PLAIN, LISTS, WEIGHED], ids=["plain", "lists", "weighed"])


def ragged(names, seed=0):
    """Each argument as a list of B arrays; the last axes r and P differ as well."""
    rng = np.random.default_rng(seed)
    lists = {name: [] for name in (*VECTORS, *AXES)}
    for b, (pool, asked) in enumerate(zip(POOLS, ASKED, strict=True)):
        length = {"K": pool, "m": asked, "d": D, "r": 3 + b, "P": 6 - b}
        for name, axes in (VECTORS | AXES).items():
            shape = [length[axis] for axis in axes]
            if name in ("retrieved", "primary"):
                value = rng.integers(-1, pool + 3, shape)
            elif name.endswith("mask"):
                value = rng.random(shape) < 0.8
                value[-1:] = True  # no pool shrinks
            else:
                value = rng.random(shape) if name in ("affinity", "weights") else rng.normal(size=shape)
            lists[name].append(value)
    return {name: lists[name] for name in names}


def padded(lists):
    """Rectangular arrays and masks, with what must not be read as padding."""
    length = {"K": K, "m": M, "d": D, "r": 3 + B, "P": 7}
    arrays = {}
    for name, axes in (VECTORS | AXES).items():
        if name.endswith("mask"):
            rows = lists.get(name) or [np.ones(n, bool) for n in (POOLS if axes == "K" else ASKED)]
            fill, kind = False, bool
        else:
            rows, (fill, kind) = lists.get(name), (-1, int) if name in ("retrieved", "primary") else (np.nan, float)
        if rows is not None:
            arrays[name] = np.full((B, *[length[axis] for axis in axes]), fill, kind)
            for out, row in zip(arrays[name], rows, strict=True):
                out[tuple(slice(n) for n in row.shape)] = row
    return arrays


def same_query(got, want, b, beyond=True):
    """Row b of a batch is the selection of a query alone; 0 beyond its own K and m."""
    for field in Selection._fields[:-1]:
        a, w = getattr(got, field)[b], getattr(want, field)
        if beyond and field in ("demand", "quality"):
            assert not a[len(w) :].any()
            a = a[: len(w)]
        check = np.testing.assert_array_equal if field == "indices" else np.testing.assert_allclose
        check(a, w, **({} if field == "indices" else {"atol": 2e-5}), err_msg=f"{field} of query {b}")


@given_sets
def test_a_ragged_batch_is_the_loop(names):
    lists = ragged(names)
    got = select(**lists, config=CONFIG)
    assert (got.demand.shape, got.quality.shape, got.indices.shape) == ((B, K), (B, M), (B, 4))
    assert got.status[1] & Status.NO_SUBQUERIES
    assert got.status[2] & Status.POOL_EXHAUSTED
    for b in range(B):
        same_query(got, select(**{name: rows[b] for name, rows in lists.items()}, config=CONFIG), b)


@given_sets
def test_a_ragged_batch_is_the_padded_one(names):
    lists = ragged(names, seed=1)
    got, want = select(**lists, config=CONFIG), select(**padded(lists), config=CONFIG)
    assert got.demand.shape == want.demand.shape
    for b in range(B):
        same_query(got, Selection._make([*(x[b] for x in want[:-1]), None]), b, beyond=False)


@pytest.mark.parametrize("name", ["candidates", "subqueries"])
def test_one_argument_alone_may_be_ragged(name):
    lists = ragged(PLAIN)
    same = {"candidates": [x[:3] for x in lists["candidates"]], "subqueries": [np.ones((2, D))] * B}
    lists = {n: lists[n] if n in (name, "query") else same[n] for n in PLAIN}
    got = select(**lists, config=CONFIG)
    arrays = {n: np.stack(x) if n != name else x for n, x in lists.items()}
    for a, b in zip(got[:-1], select(**arrays, config=CONFIG)[:-1], strict=True):
        np.testing.assert_array_equal(a, b)


def test_order_of_the_queries_is_kept():
    lists, order = ragged(PLAIN), [2, 0, 3, 1]
    kept = select(**lists, config=CONFIG)
    moved = select(**{name: [rows[b] for b in order] for name, rows in lists.items()}, config=CONFIG)
    for field in ("indices", "status", "stopped"):
        np.testing.assert_array_equal(getattr(moved, field), getattr(kept, field)[order])
    np.testing.assert_allclose(moved.demand, kept.demand[order], atol=2e-5)


@pytest.mark.parametrize("batched", [True, False])
def test_a_trailing_mask_makes_the_pool_small(batched, monkeypatch):
    rng, sizes, run_block = np.random.default_rng(3), [], stream.run_block
    size = lambda arrays: sizes.append(arrays["candidate_mask"].shape[1])
    monkeypatch.setattr(stream, "run_block", lambda arrays, *a: (size(arrays), run_block(arrays, *a))[1])
    pool, query, sub = rng.normal(size=(2, 40, D)), rng.normal(size=(2, D)), rng.normal(size=(2, 3, D))
    mask = np.ones((2, 40), bool)
    mask[0, 10:] = False
    pool[0, 10:] = np.nan
    if batched:
        got = select(pool, query, sub, candidate_mask=mask, config=CONFIG)
        assert sorted(sizes) == [16, 40]
    else:
        got = select(pool[0], query[0], sub[0], candidate_mask=mask[0], config=CONFIG)
        assert sizes == [16]
        got = Selection._make([*(x[None] for x in got[:-1]), None])
    assert got.demand.shape[1] == 40
    same_query(got, select(pool[0, :10], query[0], sub[0], config=CONFIG), 0)


KINDS = {
    "nested": lambda x: x.tolist(),
    "rows": list,
    "jax": jnp.float32,
    "float16": lambda x: x.astype(np.float16),
    "float64": lambda x: x,
    "bfloat16": jnp.bfloat16,
    "int": lambda x: x.astype(np.int8),
    "noncontiguous": lambda x: np.repeat(x, 2, -1)[..., ::2],
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_lists(kind):
    lists = {name: [np.rint(x * 40) for x in rows] for name, rows in ragged(PLAIN).items()}  # exact in every kind
    want = select(**{name: [x.astype(np.float32) for x in rows] for name, rows in lists.items()}, config=CONFIG)
    got = select(**{name: [KINDS[kind](x) for x in rows] for name, rows in lists.items()}, config=CONFIG)
    assert got.demand.dtype == np.float32
    for b in range(B):
        same_query(got, Selection._make([*(x[b] for x in want[:-1]), None]), b, beyond=False)


@given_sets
def test_nested_lists_with_a_query_that_asks_nothing(names):
    lists = ragged(names)
    got = select(**{name: [x.tolist() for x in rows] for name, rows in lists.items()}, config=CONFIG)
    want = select(**lists, config=CONFIG)
    for b in range(B):
        same_query(got, Selection._make([*(x[b] for x in want[:-1]), None]), b, beyond=False)


BAD = 3
WRONG = [  # argument, where in query 3, the value, what the message ends with
    ("candidates", (4, 1), np.nan, "row 4 of query 3"),
    ("candidates", (4,), 0, "row 4 of query 3"),
    ("query", (0,), np.inf, "query 3"),
    ("subqueries", (0, 2), np.nan, "row 0 of query 3"),
    ("scores", (2,), np.nan, "row 2 of query 3"),
    ("affinity", (0, 4), 1.5, "row 0, 4 of query 3"),
    ("weights", (0,), -1, "row 0 of query 3"),
    ("candidate_mask", (slice(None),), False, "query 3"),
    ("retrieved", (0, 1), -2, "-2"),
]


@pytest.mark.parametrize("name, where, value, says", WRONG)
def test_one_wrong_value_is_named(name, where, value, says):
    lists = ragged((*PLAIN, name) if name not in PLAIN else PLAIN)
    lists[name][BAD][where] = value
    with pytest.raises(ValueError, match=f"^{name}: expected .*{says}$"):
        select(**lists, config=CONFIG)


@pytest.mark.parametrize("name", [*VECTORS, *AXES])
def test_a_list_of_another_length_is_named(name):
    lists = ragged((*VECTORS, *AXES))
    lists[name] = lists[name][:-1]
    with pytest.raises(ValueError, match=f"^{'query' if name == 'candidates' else name}: expected . queries.*, got .$"):
        select(**lists, config=CONFIG)


@pytest.mark.parametrize("name", [*VECTORS, *(name for name in AXES if name != "primary")])
@pytest.mark.parametrize("axis", [0, -1])
def test_an_array_of_another_length_is_named(name, axis):
    """A pool or sub-queries of another number are valid; what then does not fit is another argument."""
    lists = ragged((*VECTORS, *AXES))
    x = lists[name][2]
    lists[name][2] = np.concatenate([x, np.take(x, [0], axis)], axis)
    if (name, axis) == ("retrieved", -1):
        assert select(**lists, config=CONFIG).indices.shape == (B, 4)
        return
    named = {("candidates", 0): "scores", ("subqueries", 0): "affinity"}.get((name, axis), name)
    with pytest.raises(ValueError, match=f"^{named}: expected (shape|width) .* of query 2$"):
        select(**lists, config=CONFIG)


def test_a_missing_axis_is_named():
    for name in VECTORS:
        lists = ragged(PLAIN)
        lists[name][2] = lists[name][2].ravel()[0]
        with pytest.raises(ValueError, match=f"^{name}: expected shape .* of query 2$"):
            select(**lists, config=CONFIG)


def test_an_empty_pool_is_named():
    lists = ragged(PLAIN)
    lists["candidates"][2] = np.zeros((0, D))
    with pytest.raises(ValueError, match="^candidates: expected at least one candidate, got .* of query 2$"):
        select(**lists, config=CONFIG)
