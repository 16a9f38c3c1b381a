"""Every refusal names the argument, what was expected, and the query and row where there is one."""

import numpy as np
import pytest

from georag_jax import SelectConfig, reverse_validation, select

B, K, M, D = 2, 5, 3, 4
rng = np.random.default_rng(5)


def good(batched=True):
    arguments = {
        "candidates": rng.normal(size=(B, K, D)),
        "query": rng.normal(size=(B, D)),
        "subqueries": rng.normal(size=(B, M, D)),
        "scores": rng.normal(size=(B, K)),
        "affinity": rng.random((B, M, K)),
        "retrieved": rng.integers(-1, K + 4, (B, M, 6)),
        "primary": rng.integers(0, K, (B, 4)),
        "weights": rng.random((B, M)),
        "candidate_mask": np.ones((B, K), bool),
        "subquery_mask": np.ones((B, M), bool),
    }
    return arguments if batched else {name: value[0] for name, value in arguments.items()}


def put(value, *where):
    def change(array):
        array = np.array(array)
        array[where] = value
        return array

    return change


ANY = "candidates", "query", "subqueries", "scores", "affinity", "retrieved", "primary", "weights"
MASKS = "candidate_mask", "subquery_mask"
SHORTENED = {  # argument that is one row short in query 1: the argument that then does not fit
    **{name: name for name in (*ANY, *MASKS) if name != "primary"},
    "candidates": "scores",
    "subqueries": "affinity",
}


def short_row(x):
    return [[*x[0].tolist()[:-1], x[0, -1, :-1].tolist()], x[1].tolist()]


CASES = [  # argument, what is done to it, what the message says
    *[(name, short_row, "rectangular") for name in ("candidates", "subqueries", "affinity", "retrieved")],
    *[(name, lambda x: x.flat[0], "each query|shape") for name in (*ANY, *MASKS)],
    *[(name, lambda x: x.astype(str), "dtype") for name in ANY],
    *[(name, lambda x: x.astype(complex), "dtype") for name in ANY],
    *[(name, lambda x: x[..., :-1], "shape") for name in ("query", "subqueries", "scores", "affinity", "weights")],
    *[(name, lambda x: x[:1], "shape") for name in ANY[1:]],
    *[(name, lambda x: x[0], "shape|axes") for name in ANY[1:]],
    *[(name, lambda x: x[:, :-1], "shape") for name in MASKS],
    *[(name, lambda x: x.astype(int), "bool") for name in MASKS],
    *[(n, put(v, 1, 2), "NaN or infinity.* query 1") for n in ("candidates", "subqueries") for v in (np.nan, np.inf)],
    *[(name, put(np.nan, 1, 2), "NaN or infinity.*row 2 of query 1") for name in ("scores", "weights")],
    ("query", put(-np.inf, 1, 3), "NaN or infinity.* query 1"),
    ("affinity", put(np.nan, 1, 2, 4), "NaN or infinity.*row 2, 4 of query 1"),
    ("candidates", put(0, 1, 2), "row 2 of query 1"),
    ("subqueries", put(0, 0, 1), "row 1 of query 0"),
    ("query", put(0, 1), "direction.* query 1"),
    ("affinity", put(1.1, 1, 2, 4), "0..1.*query 1"),
    ("affinity", put(-0.1, 1, 2, 4), "0..1.*query 1"),
    ("weights", put(-0.1, 1, 2), ">= 0.*query 1"),
    ("scores", put(1e200, 1, 2), "row 2 of query 1"),
    ("candidate_mask", put(False, 1), "at least one candidate.*query 1"),
    ("candidates", lambda x: x[:, :0], "at least one candidate"),
    ("candidates", lambda x: x[:, :, :0], "at least one number"),
    ("candidates", lambda x: x[0, 0], "shape"),
    ("candidates", lambda x: x[None], "shape"),
    ("candidates", lambda x: None, "dtype"),
    ("retrieved", put(-2, 1, 0, 0), "-1"),
    ("retrieved", put(2**31, 1, 0, 0), "2\\^31"),
    ("retrieved", lambda x: x.astype(float), "integers"),
    ("primary", put(-3, 1, 0), "-1"),
    ("primary", lambda x: x[:, None], "shape"),
]


@pytest.mark.parametrize("name, change, says", CASES)
def test_wrong_argument_is_named(name, change, says):
    arguments = good()
    arguments[name] = change(arguments[name])
    with pytest.raises(ValueError, match=rf"(?s)^{name}: expected .*{says}"):
        select(**arguments)


@pytest.mark.parametrize("name, named", SHORTENED.items())
@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist])
def test_unequal_lists_that_do_not_fit_the_others_are_named(name, named, kind):
    arguments = good()
    first, second = arguments[name]
    arguments[name] = [kind(first), kind(second[:-1])]
    with pytest.raises(ValueError, match=f"^{named}: expected shape .* of query 1$"):
        select(**arguments)


def test_top_lists_of_the_queries_may_differ_in_length():
    arguments = good()
    want = select(**arguments)
    padded = np.concatenate([arguments["primary"], np.full((B, 1), -1)], 1)
    got = select(**arguments | {"primary": [padded[0], padded[1, :-1].tolist()]})
    np.testing.assert_array_equal(got.quality, want.quality)


@pytest.mark.parametrize("name", ["candidates", "subqueries", "affinity", "retrieved"])
def test_rows_of_one_query_have_one_length(name):
    arguments = good(batched=False)
    rows = arguments[name].tolist()
    with pytest.raises(ValueError, match=f"^({name}|candidates): expected"):
        select(**arguments | {name: [*rows[:-1], rows[-1][:-1]]})


@pytest.mark.parametrize("name, where", [("candidates", (2, 1)), ("subqueries", (1, 0)), ("scores", (2,))])
def test_one_query_has_no_query_number(name, where):
    arguments = good(batched=False)
    arguments[name] = put(np.nan, *where)(arguments[name])
    with pytest.raises(ValueError, match=f"^{name}: .* at row {where[0]}$"):
        select(**arguments)


def test_primary_needs_retrieved():
    with pytest.raises(ValueError, match="^primary: expected None"):
        select(**(good() | {"retrieved": None}))


def test_max_min_filter_needs_vectors():
    arguments = good() | {"subqueries": None}
    with pytest.raises(ValueError, match="^subqueries: expected vectors"):
        select(**arguments, config=SelectConfig(subqueries_kept=M - 1))
    assert select(**arguments, config=SelectConfig(subqueries_kept=M)).indices.shape == (B, 5)


def test_center():
    arguments = good()
    with pytest.raises(ValueError, match="^center: expected width 4"):
        select(**arguments, config=SelectConfig(center=(0.0, 1.0)))
    center = tuple(arguments["candidates"][1, 2].tolist())
    with pytest.raises(ValueError, match="^candidates: .*equal to the center at row 2 of query 1"):
        select(**arguments, config=SelectConfig(center=center))


def test_config_is_a_config():
    with pytest.raises(ValueError, match="^config: expected a SelectConfig, got str"):
        select(**good(), config="paper")


def test_what_a_mask_leaves_out_may_hold_anything():
    arguments = good()
    arguments["candidate_mask"][1, 2] = arguments["subquery_mask"][1, 1] = False
    want = select(**arguments)
    for value in (np.nan, np.inf, 0.0, 1e300):
        changed = dict(arguments)
        for name, where in {"candidates": (1, 2), "scores": (1, 2), "subqueries": (1, 1), "weights": (1, 1)}.items():
            changed[name] = put(value, *where)(changed[name])
        changed["affinity"] = put(value, 1, 1)(put(value, 1, slice(None), 2)(changed["affinity"]))
        got = select(**changed)
        for field in ("indices", "gains", "demand", "coverage", "quality", "status", "scores"):
            np.testing.assert_array_equal(getattr(got, field), getattr(want, field), err_msg=f"{field} {value}")
    assert 2 not in want.indices[1]
    assert want.quality[1, 1] == 0


@pytest.mark.parametrize("empty", [[], None, np.zeros((0, D))])
def test_no_subqueries_in_any_form(empty):
    arguments = good(batched=False)
    result = select(arguments["candidates"], arguments["query"], empty, weights=None if empty is None else [])
    assert result.quality.shape == (0,)
    assert sorted(result.indices) == list(range(K))


def test_reverse_validation_refuses():
    with pytest.raises(ValueError, match="^quality: expected one of"):
        reverse_validation([["a"]], ["a"], quality="best")
    with pytest.raises(ValueError, match="threshold: expected a number"):
        reverse_validation([["a"]], ["a"], threshold=1.5)
