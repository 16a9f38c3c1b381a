"""The `paper` preset against the float64 oracle, pick by pick from the oracle's own prefix."""

import jax
import jax.numpy as jnp
import make_goldens
import numpy as np
import pytest
import reference

from georag_jax import SelectConfig, select
from georag_jax.kernels import cosine, cost, sinkhorn

TIE = 1e-5  # a margin below this is decided by rounding
BLOCK = {"real": 16, "small": 128, "large": 128}
PAPER = SelectConfig.preset("paper")


@jax.jit
def step_scores(candidates, p, chosen):
    """The score of every candidate after these picks, from the transport kernel."""
    gram = cosine(candidates, candidates)
    costs, t = cost(gram), chosen.shape[0]
    value = lambda columns: sinkhorn(columns, p, jnp.full(columns.shape[1], 1 / columns.shape[1])).value
    each = jax.vmap(lambda i: value(costs[:, jnp.append(chosen, i)]))(jnp.arange(len(p)))
    current = value(costs[:, chosen]) if t > 1 else p @ costs[:, chosen[0]]
    return (1 - gram[:, chosen].max(1)) * (current - each)


def agreed(pools, result, oracle):
    """Counts of steps, of tie steps and of ties decided the other way; fails at a disagreement that is no tie."""
    steps = ties = other = 0
    for b, (picks, want) in enumerate(zip(result.indices, oracle["picks"], strict=True)):
        margins, n = oracle["margins"][b], int((want >= 0).sum())
        assert (want[n:] == picks[n:]).all(), b
        steps, ties = steps + n, ties + int((margins[:n] < TIE).sum())
        common = int((np.cumprod(picks[:n] == want[:n])).sum())
        np.testing.assert_allclose(result.gains[b][:common], oracle["gains"][b][:common], atol=3e-5, err_msg=str(b))
        if common == n:
            continue
        assert margins[common] < TIE, (b, common, picks, want, margins)
        other += 1
        for t in range(common + 1, n):
            candidates = jnp.asarray(pools.candidates[b], jnp.float32)
            score = np.array(step_scores(candidates, jnp.asarray(result.demand[b]), jnp.asarray(want[:t], jnp.int32)))
            score[want[:t]] = -np.inf
            score[~pools.candidate_mask[b]] = -np.inf
            same = int(np.argmax(score)) == want[t]
            assert same or margins[t] < TIE, (b, t, picks, want, margins)
            other += not same
    return steps, ties, other


def run(pools, block):
    parts = [slice(start, start + block) for start in range(0, len(pools.query), block)]
    results = []
    for part in parts:
        candidates, query, subqueries, retrieved, valid, asked = (x[part] for x in pools)
        masks = {"candidate_mask": valid, "subquery_mask": asked}
        results.append(select(candidates, query, subqueries, retrieved=retrieved, config=PAPER, **masks))
    return type(results[0])(*(None if x[0] is None else np.concatenate(x) for x in zip(*results, strict=True)))


@pytest.mark.parametrize("name", ["real", "small", "large"])
def test_picks_are_the_oracles(name):
    real, data = make_goldens.stored()
    pools = real if name == "real" else make_goldens.generated(name)
    assert make_goldens.digest(pools) == str(data[f"{name}_digest"]), "the inputs are not those of the stored picks"
    assert len(pools.query) >= {"real": 200, "small": 880, "large": 120}[name]
    result = run(pools, BLOCK[name])
    oracle = {key: data[f"{name}_{key}"] for key in ("picks", "gains", "margins", "weights")}
    np.testing.assert_allclose(result.quality, oracle["weights"], atol=1e-6)
    steps, ties, other = agreed(pools, result, oracle)
    print(f"{name}: {len(pools.query)} pools, {steps} steps, {ties} ties, {other} of them decided the other way")
    assert other <= ties <= 0.05 * steps


def test_goldens_are_many():
    real, data = make_goldens.stored()
    assert len(data["real_picks"]) >= 200
    assert sum(len(data[f"{group}_picks"]) for group in make_goldens.GROUPS) >= 1000
    assert real.candidates.shape[1:] == (200, make_goldens.WIDTH)


def test_the_literal_oracle_made_them():
    """The fast trace is ``georag``, on generated pools of every kind and on one real pool, cut to 40 candidates."""
    real, data = make_goldens.stored()
    pools = make_goldens.generated("small")
    rows = [pools.row(b) for b in range(12)] + [tuple(x[:40] for x in real.row(0)[:1]) + real.row(0)[1:]]
    for candidates, query, sub, lists in rows:
        p, _ = reference.paper_demand(candidates, query, sub, lists, range(len(candidates)))
        E, q = reference.unit(candidates.astype(float)), reference.unit(query.astype(float))
        S, scores, margins = reference.georag_trace(E @ E.T, E @ q, p)
        literal, literal_scores = reference.georag(E @ E.T, E @ q, p)
        apart = next((t for t in range(len(S)) if S[t] != literal[t]), len(S))
        assert apart == len(S) or margins[apart] < 1e-9
        np.testing.assert_allclose(scores[:apart], literal_scores[:apart], atol=1e-9)


@pytest.mark.realdata
@pytest.mark.parametrize("name", make_goldens.SETS)
def test_real_pools_at_full_width(name, shared):
    pools = make_goldens.full_width(name, 12, shared)
    result = run(pools, 16)
    steps, ties, other = agreed(pools, result, make_goldens.oracle(pools))
    assert steps == 60
    assert other <= ties <= 3
