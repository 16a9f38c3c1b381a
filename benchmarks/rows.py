"""The tables: every selector on every pool, counted on all questions."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np

import georag_jax as gr
from benchmarks import baselines, published
from benchmarks.data import Pool
from benchmarks.published import SETS
from georag_jax import metrics

K = 5
SHOWN = (2, 3, 5)
DEFAULT, PAPER = gr.SelectConfig.preset("default"), gr.SelectConfig.preset("paper")
MIXTURE = replace(
    DEFAULT, demand_points="candidates", quality="uniform", quality_saturation=None, likelihood_temperature=0.02
)
POINTS = replace(MIXTURE, demand_points="subqueries", similarity_power=4, ownership=0, consensus=0)

Pools = dict[tuple[str, str], Pool]
BASELINES = {
    published.COSINE: baselines.cosine,
    published.ALONE: baselines.question_alone,
    published.MMR: baselines.mmr,
    published.DPP: baselines.dpp,
    "DPP, quality max(cos, 0)": baselines.dpp_cosine,
    published.MEAN: baselines.subquery_mean,
    published.MEAN_VALIDATED: baselines.subquery_mean_validated,
    published.MAX: baselines.subquery_max,
}
CONFIGS = {
    "preset paper (Sinkhorn, m = 10)": PAPER,
    "preset paper, objective facility location": replace(PAPER, objective="facility_location"),
    published.MIX02: replace(MIXTURE, service_discount=0),
    published.MIX02_3: MIXTURE,
    published.MIX04: replace(MIXTURE, service_discount=0, likelihood_temperature=0.04),
    published.MIX04_3: replace(MIXTURE, likelihood_temperature=0.04),
    "preset default, objective entropic f.l., eps .05": replace(
        DEFAULT, objective="entropic_facility_location", epsilon=0.05
    ),
    **{label: replace(POINTS, service_discount=d) for label, d in zip(published.POINTS, (0, 0.3, 0.6), strict=True)},
    "default with power 4": replace(DEFAULT, similarity_power=4),
    "default with ownership 0": replace(DEFAULT, ownership=0),
    "default with discount 0": replace(DEFAULT, service_discount=0),
    "default with consensus 0": replace(DEFAULT, consensus=0),
    "default without saturation": replace(DEFAULT, quality_saturation=None),
    "default with uniform weights": replace(DEFAULT, quality="uniform"),
    "default with overlap x novelty weights": replace(DEFAULT, quality="overlap_novelty"),
    "preset default": DEFAULT,
}
_SAMPLE_PAPER = replace(PAPER, objective="facility_location", subqueries_kept=None)
_SAMPLE_MIX = replace(MIXTURE, service_discount=0, similarity_power=1)
_OVERLAP = replace(_SAMPLE_MIX, quality="overlap")
SAMPLE = {
    "paper's P_Q, f.l.": _SAMPLE_PAPER,
    "paper's P_Q, f.l., first pick from the demand": replace(_SAMPLE_PAPER, first_pick="demand"),
    "mixture .02 uniform, f.l.": _SAMPLE_MIX,
    "mixture .02 overlap, f.l.": _OVERLAP,
    "mixture .02 overlap x novelty, f.l.": replace(_SAMPLE_MIX, quality="overlap_novelty"),
    "mixture .02 overlap, f.l. on sim^4": replace(_OVERLAP, similarity_power=4),
    "mixture .02 overlap, entropic f.l., eps .05": replace(
        _OVERLAP,
        objective="entropic_facility_location",
        epsilon=0.05,
        demand_points=None,
        service_discount=None,
        similarity_power=None,
    ),
}
SAMPLE_SINKHORN = {  # label: demand, whether the first pick is by cosine, paper's gate on losses, iterations
    "paper's P_Q, Sinkhorn, 100 iterations": (_SAMPLE_PAPER, True, True, 100),
    "mixture .02 overlap, Sinkhorn, 100 iterations, first pick by cosine": (_OVERLAP, True, True, 100),
    "mixture .02 overlap, Sinkhorn, converged, first pick by cosine": (_OVERLAP, True, True, None),
    "mixture .02 uniform, Sinkhorn, converged, first pick from the demand": (_SAMPLE_MIX, False, True, None),
}


def choose(pool: Pool, config: gr.SelectConfig, k: int = K) -> np.ndarray:
    """[n, k] pool positions under a config."""
    return gr.select(**pool.arguments, config=replace(config, k=k)).indices


def counts(hits: np.ndarray) -> list[int]:
    """Questions with all gold passages among the first 2, 3, 5 picks, from [n, K]."""
    return hits[:, [k - 1 for k in SHOWN]].sum(0).tolist()


def main_rows(pools: Pools) -> list[dict[str, Any]]:
    """One row for every set, pool and selector."""
    out = []
    for (name, kind), pool in pools.items():
        print(f"rows: {name}, {kind}", file=sys.stderr)
        found = {published.CEILING: baselines.ceiling(pool, K)}
        found |= {label: pool.found(rule(pool, K)) for label, rule in BASELINES.items()}
        found |= {label: pool.found(choose(pool, config)) for label, config in CONFIGS.items()}
        for label, hits in found.items():
            told = published.COUNTS.get((kind, label))
            out.append(
                {"set": name, "pool": kind, "selector": label, "questions": len(hits), "counts": counts(hits)}
                | {"intervals": [[round(x, 3) for x in metrics.interval(hits[:, k - 1])[1:]] for k in SHOWN]}
                | ({} if told is None else {"published": list(told[SETS.index(name)])})
            )
    return out


def settings(config: gr.SelectConfig) -> dict[str, Any]:
    """What a config does, with every default filled in and nothing that its objective does not read."""
    out: dict[str, Any] = {"objective": config.objective, "first_pick": config.first_pick, "quality": config.quality}
    out |= {"quality_saturation": config.quality_saturation, "subqueries_kept": config.subqueries_kept}
    if config.quality != "uniform":
        out["quality_threshold"] = config.quality_threshold
    if config.objective == "facility_location":
        out |= config.service._asdict()
    if config.objective != "facility_location" or config.service.demand_points == "candidates":
        out |= {"alpha": config.alpha, "beta": config.beta, "likelihood_temperature": config.likelihood_temperature}
        if config.alpha > 0:
            out["prior_temperature"] = config.prior_temperature
    if config.objective != "facility_location":
        out["epsilon"] = config.epsilon
    if config.objective == "sinkhorn":
        if config.solver == "algorithm2":
            out["iterations"] = config.iterations
        out |= {"solver": config.solver, "gate": config.gate, "gate_losses": config.gate_losses}
    return out


def sample_rows(pools: Pools, sinkhorn) -> dict[str, Any]:
    """The table that was measured on 60 of the 120 questions, on all of them; and what a random 60 would show.

    Args:
        pools: the dense ones are used.
        sinkhorn: ``benchmarks.sinkhorn.picks``.
    """
    rows = []
    for label, told in published.SHARES.items():
        row: dict[str, Any] = {"selector": label, "counts": {}, "of_60": {}, "published": {}}
        for name, shares in zip(SETS, told, strict=True):
            if (name, "dense") not in pools:
                continue
            hits = pools[name, "dense"].found(_sample_picks(pools[name, "dense"], label, sinkhorn))
            row["counts"][name], row["published"][name] = counts(hits), list(shares)
            row["of_60"][name] = [_of_60(count, len(hits)) for count in counts(hits)]
        rows.append(row)
    return {"rows": rows, "cosine_of_halves": _halves_by_cosine(pools)}


def _sample_picks(pool: Pool, label: str, sinkhorn) -> np.ndarray:
    if label in SAMPLE:
        return choose(pool, SAMPLE[label])
    if label in SAMPLE_SINKHORN:
        config, by_cosine, gate_losses, iterations = SAMPLE_SINKHORN[label]
        return sinkhorn(pool, config, 0.01, iterations, by_cosine, gate_losses)[0]
    return BASELINES[label](pool, K)


def _of_60(count: int, questions: int) -> list[float]:
    """Shares between which 95 % of random choices of 60 of the questions lie."""
    drawn = np.random.default_rng(0).hypergeometric(count, questions - count, min(60, questions), 20_000)
    return [round(float(x) / 60, 3) for x in np.quantile(drawn, [0.025, 0.975])]


def _halves_by_cosine(pools: Pools) -> dict[str, Any]:
    """The cosine row on the four plain choices of half the questions, as shares."""
    parts = {"first": slice(60), "last": slice(60, None), "even": slice(None, None, 2), "odd": slice(1, None, 2)}
    hits = {name: pool.found(baselines.cosine(pool, K)) for (name, kind), pool in pools.items() if kind == "dense"}
    share = lambda part: [round(float(x), 3) for x in part[:, [k - 1 for k in SHOWN]].mean(0)]
    return {label: {name: share(each[part]) for name, each in hits.items()} for label, part in parts.items()}
