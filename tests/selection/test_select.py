"""``select`` against the stages of the oracle put together, argument by argument."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from instances import instance

import georag_jax
from georag_jax import SelectConfig, Selection, Status, StopReason, select
from georag_jax.selection.devices import select_batch

K, M, D, PICKS = 10, 4, 5, 4
SEEDS = st.integers(0, 10**6)
DEFAULT = SelectConfig(  # spelt out: the tuned values of the preset may move
    k=PICKS,
    likelihood_temperature=0.04,
    quality_saturation=None,
    demand_points="candidates",
    service_discount=0.3,
    similarity_power=4.0,
    ownership=0.0,
    consensus=0.0,
)
PAPER = replace(SelectConfig.preset("paper"), k=PICKS)
PLAIN = replace(DEFAULT, service_discount=0.0, similarity_power=1.0)
ENTROPIC = SelectConfig(k=PICKS, objective="entropic_facility_location", epsilon=0.05)
SIDES = replace(DEFAULT, demand_points="subqueries")
PRESET = SelectConfig(k=PICKS)
CONFIGS = {"preset": PRESET, "default": DEFAULT, "paper": PAPER, "plain": PLAIN, "entropic": ENTROPIC, "sides": SIDES}
every = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


def draw(seed, **change):
    case = instance(seed, K, M, D)
    return {"candidates": case.candidates, "query": case.query, "subqueries": case.subqueries} | change


def expected_demand(case, config, scores=None, weight=None, affinity=None):
    weight = np.full(M, 1 / M) if weight is None else weight
    prior = reference.retrieval_prior(
        case.candidates @ case.query if scores is None else scores, config.prior_temperature
    )
    if affinity is None:
        like = reference.likelihood(case.candidates, case.subqueries, weight, config.likelihood_temperature)
    else:
        like = reference.likelihood(np.eye(K), affinity, weight, config.likelihood_temperature)
    return reference.demand(prior, like, config.alpha, config.beta)


def same(got, want, fields=Selection._fields[:-1], atol=2e-6):
    for field in fields:
        a, b = getattr(got, field), getattr(want, field)
        if np.asarray(a).dtype.kind == "i":
            np.testing.assert_array_equal(a, b, err_msg=field)
        else:
            np.testing.assert_allclose(a, b, atol=2e-5 if field in ("gains", "marginal_error") else atol, err_msg=field)


@given(SEEDS)
def test_default_is_the_oracles(close, seed):
    case = instance(seed, K, M, D)
    got = select(**draw(seed), config=DEFAULT)
    p = expected_demand(case, DEFAULT)
    close(got.demand, p)
    F = lambda S: reference.discounted_facility_location(case.gram, p, S, 0.3, 4)
    S = got.indices.tolist()
    close(got.gains, [F(S[: t + 1]) - F(S[:t]) for t in range(PICKS)])
    for t in range(PICKS):
        assert got.gains[t] >= max(F([*S[:t], i]) - F(S[:t]) for i in range(K) if i not in S[:t]) - 3e-6
    close(got.coverage, [reference.facility_location(case.gram, p, S[: t + 1]) for t in range(PICKS)])
    close(got.quality, np.full(M, 1 / M))
    close(got.scores, (case.candidates @ case.query)[S])
    assert got.status == Status.OVERLAP_ASSUMED
    assert got.stopped == StopReason.K_REACHED


@every
@given(seed=SEEDS)
def test_what_holds_for_every_objective(close, config, seed):
    case = instance(seed, K, M, D)
    got = select(**draw(seed), config=config)
    S = got.indices.tolist()
    assert sorted(set(S)) == sorted(S)
    assert set(S) <= set(range(K))
    close(got.demand.sum(), 1)
    close(got.quality.sum(), 1)
    close(got.coverage, [reference.facility_location(case.gram, got.demand, S[: t + 1]) for t in range(PICKS)])
    if config.objective != "sinkhorn":
        close(np.sum(got.gains), np.sort(got.gains).sum())
        assert (np.diff(got.gains) <= 2e-6).all()
        assert got.marginal_error == 0
    assert [type(x) for x in got[:4]] == [np.ndarray] * 4
    assert (got.indices.dtype, got.status.dtype, got.tokens) == (np.int32, np.int32, None)


def test_sides_serve_the_subqueries(close):
    case = instance(3, K, M, D)
    weights = np.array([0.5, 0.3, 0.2, 0])
    got = select(**draw(3), weights=weights, config=SIDES)
    F = lambda S: reference.discounted_facility_location(case.subqueries @ case.candidates.T, weights, S, 0.3, 4)
    assert got.indices.tolist() == reference.greedy(F, K, PICKS)
    close(got.gains.sum(), F(got.indices.tolist()))


def test_scores_and_prior_temperature(close):
    case, scores = instance(1, K, M, D), np.linspace(-3, 9, K)
    config = replace(PAPER, prior_temperature=2.0, k=2)
    got = select(**draw(1), scores=scores, weights=np.ones(M), config=config)
    close(got.demand, expected_demand(case, config, scores))
    close(got.scores, scores[got.indices])


def test_affinity_takes_the_place_of_the_cosine(close):
    case, affinity = instance(1, K, M, D), np.random.default_rng(1).random((M, K))
    got = select(case.candidates, case.query, affinity=affinity, config=DEFAULT)
    close(got.demand, expected_demand(case, DEFAULT, affinity=affinity))
    same(select(**draw(1), affinity=affinity, config=DEFAULT), got)


def test_weights_take_the_place_of_reverse_validation(close):
    case, weights = instance(1, K, M, D), np.array([3.0, 0, 1, 0])
    got = select(**draw(1), weights=weights, config=DEFAULT)
    close(got.quality, weights / 4)
    close(got.demand, expected_demand(case, DEFAULT, weight=weights / 4))
    assert got.status == 0
    flat = select(**draw(1), weights=np.zeros(M), config=DEFAULT)
    close(flat.quality, np.full(M, 1 / M))
    assert flat.status == Status.UNIFORM_QUALITY


@pytest.mark.parametrize("quality", ["overlap", "overlap_novelty", "uniform"])
def test_reverse_validation(close, quality):
    retrieved = [[0, 1, 2, 11], [1, 12, 13, 14], [15, 16, -1, -1], [3, 4, 5, 6]]
    sets = [{i for i in row if i >= 0} for row in retrieved]
    config = replace(DEFAULT, quality=quality)
    for primary in (None, [0, 1, 11, 12, -1]):
        got = select(**draw(1), retrieved=retrieved, primary=primary, config=config)
        own = range(K) if primary is None else primary[:-1]
        close(got.quality, reference.reverse_validation(sets, own, quality=quality))
        assert got.status == 0


def test_all_qualities_under_the_threshold(close):
    got = select(**draw(1), retrieved=np.full((M, 3), 50), config=DEFAULT)
    close(got.quality, np.full(M, 1 / M))
    assert got.status == Status.UNIFORM_QUALITY


def test_max_min_filter(close):
    case = instance(2, K, M, D)
    got = select(**draw(2), config=replace(DEFAULT, subqueries_kept=2))
    kept = reference.max_min_filter(case.subqueries, case.query, 2)
    close(got.quality, np.isin(np.arange(M), kept) / 2)


@pytest.mark.parametrize("m", [9, 10])
def test_nothing_to_filter_needs_no_vectors(m):
    got = select(**draw(1, subqueries=None), affinity=np.full((m, K), 0.5), config=replace(PAPER, k=2))
    assert got.quality.shape == (m,)


def test_without_subqueries(close):
    case = instance(1, K, M, D)
    paper = select(case.candidates, case.query, config=PAPER)
    close(paper.demand, reference.retrieval_prior(case.candidates @ case.query))
    assert paper.status & ~Status.NOT_CONVERGED == Status.NO_SUBQUERIES
    alone = select(case.candidates, case.query, config=DEFAULT)
    asked = select(case.candidates, case.query, case.query[None], config=replace(DEFAULT, quality="uniform"))
    same(alone, asked, ("indices", "gains", "demand", "coverage", "scores"))
    assert alone.status == Status.NO_SUBQUERIES
    masked = select(**draw(1), subquery_mask=np.zeros(M, bool), config=DEFAULT)
    same(masked, alone, ("indices", "gains", "demand", "coverage", "scores", "status"))


def test_no_likelihood_leaves_the_prior(close):
    rng = np.random.default_rng(0)
    pool, sub = rng.random((K, D)) + 0.1, -rng.random((M, D)) - 0.1
    got = select(pool, pool.sum(0), sub, config=PAPER)
    toward = reference.unit(pool) @ reference.unit(pool.sum(0))
    close(got.demand, reference.retrieval_prior(toward))
    assert got.status & Status.NO_LIKELIHOOD


def test_linear_fusion(close):
    case = instance(1, K, M, D)
    got = select(**draw(1), config=replace(DEFAULT, fusion="linear", alpha=0.3, beta=0.7))
    like = reference.likelihood(case.candidates, case.subqueries, np.full(M, 1 / M), 0.04)
    close(got.demand, 0.3 * reference.retrieval_prior(case.candidates @ case.query) + 0.7 * like / like.sum())


@every
def test_first_pick(config):
    case = instance(5, K, M, D)
    got = select(**draw(5), config=replace(config, first_pick="query"))
    assert got.indices[0] == np.argmax(case.candidates @ case.query)


def test_not_converged_is_said():
    case = draw(1)
    rough = select(**case, config=replace(PAPER, k=2, iterations=1))
    assert rough.status & Status.NOT_CONVERGED
    assert rough.marginal_error > 1e-3
    smooth = select(**case, config=replace(PAPER, k=2, epsilon=1.0, iterations=300))
    assert not smooth.status & Status.NOT_CONVERGED
    assert smooth.marginal_error < 1e-3


@every
def test_more_slots_than_candidates(config):
    few = PICKS - 2
    got = select(**draw(1, candidates=draw(1)["candidates"][:few]), config=config)
    assert sorted(got.indices[:few]) == list(range(few))
    assert (got.indices[few:] == -1).all()
    for field in ("gains", "scores"):
        assert (getattr(got, field)[few:] == 0).all()
    np.testing.assert_allclose(got.coverage[few:], got.coverage[few - 1], rtol=1e-6)
    assert got.status & Status.POOL_EXHAUSTED
    assert got.stopped == StopReason.POOL_EXHAUSTED


@every
def test_a_prefix_is_the_selection_for_fewer_slots(config):
    long, short = (select(**draw(2), config=replace(config, k=k)) for k in (PICKS, 2))
    np.testing.assert_array_equal(long.indices[:2], short.indices)


def test_center(close):
    case, mean = instance(1, K, M, D), np.arange(D) / 10
    moved = {"candidates": case.candidates + mean, "query": case.query + mean, "subqueries": case.subqueries + mean}
    same(select(**moved, config=replace(DEFAULT, center=mean)), select(**draw(1), config=DEFAULT), atol=2e-5)


@pytest.mark.parametrize("kind", ["float16", "float64", "list", "jax", "bfloat16", "int", "noncontiguous"])
def test_kinds_of_input(kind):
    arrays = {name: np.rint(x * 40) for name, x in draw(1).items()}  # exact in every kind
    want = select(**{name: x.astype(np.float32) for name, x in arrays.items()}, config=DEFAULT)
    turn = {
        "float16": lambda x: x.astype(np.float16),
        "float64": lambda x: x,
        "list": lambda x: x.tolist(),
        "jax": jnp.float32,
        "bfloat16": jnp.bfloat16,
        "int": lambda x: x.astype(np.int8),
        "noncontiguous": lambda x: np.repeat(x, 2, -1)[..., ::2],
    }[kind]
    got = select(**{name: turn(x) for name, x in arrays.items()}, config=DEFAULT)
    same(got, want)
    assert got.demand.dtype == np.float32


@every
@pytest.mark.parametrize(
    "length, dtype", [(1e-30, "float32"), (1e30, "float32"), (1e200, "float64"), (1e-200, "float64")]
)
def test_length_of_vectors_does_not_matter(config, length, dtype):
    scaled = {name: (x.astype(dtype) * np.asarray(length, dtype)) for name, x in draw(1).items()}
    same(select(**scaled, config=config), select(**draw(1), config=config), atol=1e-5)


def test_float64_where_jax_has_it():
    config = replace(PAPER, k=2, iterations=2)
    with jax.enable_x64(True):
        got = select(**draw(1), config=config)
        assert {x.dtype.name for x in got if x is not None} == {"float64", "int32"}
        arrays = {name: x.astype(np.float32) for name, x in draw(1).items()}
        for given_lists in ({}, {"retrieved": np.arange(M)[:, None]}):
            single = select(**arrays, **given_lists, config=config)
            assert {x.dtype.name for x in single if x is not None} == {"float32", "int32"}


def test_a_second_call_compiles_nothing():
    select(**draw(1), config=DEFAULT)
    before = select_batch._cache_size()
    select(**draw(2), config=replace(DEFAULT, center=tuple(np.ones(D) / 7)))
    fewer = {name: x[:-1] if name != "query" else x for name, x in draw(3).items()}
    select(**fewer, config=replace(DEFAULT))
    assert select_batch._cache_size() == before
    select(**draw(1), config=replace(DEFAULT, k=PICKS - 1))
    assert select_batch._cache_size() == before + 1


@every
@given(seed=SEEDS)
def test_two_peaks(config, seed):
    """Proposition 1: whatever only grows with the cosine to the query misses the far peak; coverage does not."""
    rng, far = np.random.default_rng(seed), np.arange(K) >= K // 2
    pool = np.where(far[:, None], [0, 1, 0, 0, 0], [1, 0, 0, 0, 0]) + rng.uniform(-0.05, 0.05, (K, D))
    query, sides = np.array([1, 0.3, 0, 0, 0]), np.array([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0.0]])
    toward = reference.unit(pool) @ reference.unit(query)
    assert not far[np.argsort(-toward)[: K // 2]].any()
    picks = select(pool, query, sides, weights=[0.5, 0.5], config=replace(config, k=2)).indices
    assert sorted(far[picks]) == [False, True]


def test_public_names():
    assert {"select", "reverse_validation", "SelectConfig", "Selection"} <= set(georag_jax.__all__)
    assert all(hasattr(georag_jax, name) for name in georag_jax.__all__)
