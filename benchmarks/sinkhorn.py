"""Sinkhorn on the demand of the mixture, and on the default's own demand, against the targets."""

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import georag_jax as gr
from benchmarks import baselines, published, twin
from benchmarks.data import Pool
from benchmarks.published import SETS, TARGETS
from benchmarks.rows import DEFAULT, MIXTURE, K, Pools, counts
from benchmarks.transport import greedy_transport

WORKERS = 2
POWER = "candidates with cost 1 - G^4 (not offered)"


class Case(NamedTuple):
    """One row with the candidates as demand points; ``iterations`` None for converged."""

    temperature: float
    quality: str
    epsilon: float
    iterations: int | None = None
    gate: bool = True
    power: float = 1

    @property
    def label(self) -> str:
        """As the tables have it."""
        words = f", mixture {self.temperature:.2g}, {self.quality}, eps {self.epsilon:.2g}".replace("0.", ".")
        words += ", converged" if self.iterations is None else f", {self.iterations} iterations"
        return ("candidates" if self.power == 1 else POWER) + words + ("" if self.gate else ", no gate")


ON_CANDIDATES = {
    case.label: case
    for case in (
        Case(0.02, "uniform", 0.01, 100),
        Case(0.04, "saturated", 0.01, 100),
        Case(0.02, "uniform", 0.01),
        Case(0.04, "uniform", 0.01),
        Case(0.04, "saturated", 0.01),
        Case(0.02, "saturated", 0.05),
        Case(0.04, "saturated", 0.05),
        Case(0.02, "uniform", 0.01, gate=False),
        Case(0.04, "uniform", 0.01, gate=False),
        Case(0.04, "uniform", 0.25, power=4),
    )
}
ON_SUBQUERIES = {f"sub-queries, the default's service, eps {eps:.2g}".replace("0.", "."): eps for eps in (0.05, 1.4)}


def picks(
    pool: Pool,
    config: gr.SelectConfig,
    epsilon: float,
    iterations: int | None,
    by_cosine: bool = False,
    gate_losses: bool = False,
    gate: bool = True,
    power: float = 1,
) -> tuple[np.ndarray, list[float]]:
    """Picks [n, K] and marginal errors under the demand of a config, transport from the candidates.

    ``iterations`` None solves every transport problem to convergence.
    """
    demand = gr.select(**pool.arguments, config=replace(config, k=1)).demand
    nearest = baselines.to_query(pool).argmax(1)

    def one(i: int) -> tuple[list[int], float]:
        vectors = pool.arguments["candidates"][i].astype(np.float64)
        gram = vectors @ vectors.T
        first = int(nearest[i]) if by_cosine else None
        costs = 1 - gram if power == 1 else 1 - np.maximum(gram, 0) ** power
        return greedy_transport(costs, demand[i], K, epsilon, iterations, gram if gate else None, first, gate_losses)

    return _each(one, len(demand))


def picks_on_subqueries(pool: Pool, epsilon: float) -> tuple[np.ndarray, list[float]]:
    """The same with the default's sub-queries as demand points; not offered by the package.

    Mass w_j max_i s_ji, cost 1 - s_ji / max_i s_ji, no gate; w and s as the default preset has them.
    """
    overlap, novelty = baselines.pool_factors(pool)
    weight = twin.weights(overlap, novelty, DEFAULT.quality, DEFAULT.quality_saturation)
    serve = DEFAULT.service
    blended = twin.blend(pool.arguments["affinity"], weight, serve.consensus)
    worth = twin.service(blended.astype(np.float64), serve.power, serve.ownership)
    best = worth.max(2)
    one = lambda i: greedy_transport(1 - worth[i] / best[i][:, None], weight[i] * best[i], K, epsilon, None)
    return _each(one, len(worth))


def rows(pools: Pools) -> list[dict[str, Any]]:
    """Counts on the columns that have targets, with the marginal errors and what is missing to the targets."""
    rules = {
        label: partial(
            picks,
            config=_demand(case.temperature, case.quality),
            epsilon=case.epsilon,
            iterations=case.iterations,
            gate=case.gate,
            power=case.power,
        )
        for label, case in ON_CANDIDATES.items()
    }
    rules |= {label: partial(picks_on_subqueries, epsilon=eps) for label, eps in ON_SUBQUERIES.items()}
    out = []
    for label, rule in rules.items():
        print(f"Sinkhorn: {label}", file=sys.stderr)
        row: dict[str, Any] = {"selector": label, "counts": {}, "errors": {}, "missing": 0}
        for (name, kind), pool in pools.items():
            if kind not in TARGETS or name not in SETS:
                continue
            chosen, errors = rule(pool)
            found = counts(pool.found(chosen))
            row["counts"][f"{name} {kind}"] = found
            row["errors"][f"{name} {kind}"] = [float(f"{x:.2g}") for x in (np.median(errors), max(errors))]
            row["missing"] += sum(max(t - c, 0) for t, c in zip(TARGETS[kind][name], found, strict=True))
        out.append(row | _published(label))
    return out


def _demand(temperature: float, quality: str) -> gr.SelectConfig:
    changes: dict[str, Any] = {"likelihood_temperature": temperature}
    if quality == "saturated":
        changes |= {"quality": DEFAULT.quality, "quality_saturation": DEFAULT.quality_saturation}
    return replace(MIXTURE, **changes)


def _published(label: str) -> dict[str, Any]:
    case = ON_CANDIDATES.get(label)
    if case is None or case != Case(case.temperature, "uniform", 0.01):
        return {}
    told = published.SINKHORN[case.temperature]
    return {"published": {f"{name} hybrid_multi_query": list(c) for name, c in zip(SETS, told, strict=True)}}


def _each(one, n: int) -> tuple[np.ndarray, list[float]]:
    with ThreadPoolExecutor(WORKERS) as threads:
        results = list(threads.map(one, range(n)))
    return np.array([chosen for chosen, _ in results]), [error for _, error in results]
