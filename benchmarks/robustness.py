"""What sub-queries of another question, or fewer sub-queries, do to the picks."""

from typing import Any

import numpy as np

from benchmarks import baselines, published, twin
from benchmarks.data import Pool, QuestionSet, all_gold
from benchmarks.published import SETS
from benchmarks.rows import DEFAULT, K, counts
from georag_jax.retrieval import fuse

FOREIGN = 5
SUBSETS = (6, 8, 10)
DRIFT_DRAWS = 20
SUBSET_DRAWS = 10
WEIGHTS: dict[str, tuple] = {
    "uniform": ("uniform", None),
    "overlap": ("overlap", None),
    "overlap_novelty": ("overlap_novelty", None),
    "saturated": (DEFAULT.quality, DEFAULT.quality_saturation),
}
LABELS = {"uniform": "uniform", "overlap": "overlap", "overlap_novelty": "overlap x novelty"} | {
    "saturated": f"{DEFAULT.quality} saturated at {DEFAULT.quality_saturation:g}".replace("0.", ".")
}


def rank(affinity: np.ndarray, overlap: np.ndarray, novelty: np.ndarray) -> dict[str, np.ndarray]:
    """Picks [n, K] of the default's service under each kind of weights, of a prototype, and of SubQ-MaxCos."""
    out, serve = {published.MAX: baselines.top(affinity.max(1), K)}, DEFAULT.service
    for name, (quality, saturation) in WEIGHTS.items():
        weight = twin.weights(overlap, novelty, quality, saturation)
        worth = twin.service(twin.blend(affinity, weight, serve.consensus), serve.power, serve.ownership)
        label = f"default's service, {LABELS[name]} weights"
        out[label] = twin.facility_location(worth, weight, K, serve.discount)
    for name in ("uniform", "overlap"):
        weight = twin.weights(overlap, novelty, name)
        out[f"{published.POINTS[1]}, {name} weights"] = twin.facility_location(affinity**4, weight, K, 0.3)
    return out


def mixtures(pool: Pool, affinity: np.ndarray, overlap: np.ndarray, novelty: np.ndarray) -> dict[str, np.ndarray]:
    """Picks [n, K] of the mixture .02 with facility location (power 1), the prototype of the earlier measurement."""
    candidates, out = pool.arguments["candidates"], {}
    similarity = np.maximum(np.matmul(candidates, candidates.transpose(0, 2, 1)), 0)
    for name in ("uniform", "overlap", "overlap_novelty"):
        demand = twin.mixture(affinity, twin.weights(overlap, novelty, name), 0.02)
        out[f"mixture .02, f.l., {LABELS[name]} weights"] = twin.facility_location(similarity, demand, K, 0)
    return out


def drift(questions: QuestionSet, pool: Pool) -> list[dict[str, Any]]:
    """FOREIGN sub-queries of one other question join each question's own; dense pool, counts before and after."""
    rng, (n, m) = np.random.default_rng(0), pool.own.shape[:2]
    affinity = pool.arguments["affinity"]
    before = rank(affinity, *baselines.pool_factors(pool)) | mixtures(pool, affinity, *baselines.pool_factors(pool))
    after: dict[str, list] = {label: [] for label in before}
    for _ in range(DRIFT_DRAWS):
        other = (np.arange(n) + rng.integers(1, n, n)) % n
        chosen = np.stack([rng.choice(m, FOREIGN, replace=False) for _ in range(n)])
        vectors = questions.subqueries[other[:, None], chosen]
        theirs = np.clip(np.einsum("nfd,nKd->nfK", vectors, pool.arguments["candidates"]), 0, 1)
        mixed = np.concatenate([affinity, theirs], 1)
        own = np.concatenate([pool.own, pool.own[other[:, None], chosen]], 1)
        factors = _factors(own, pool.primary)
        for label, indices in (rank(mixed, *factors) | mixtures(pool, mixed, *factors)).items():
            after[label].append(counts(pool.found(indices)))
    return [
        {"set": questions.name, "selector": label, "before": counts(pool.found(before[label]))}
        | {"questions": n}
        | _over_draws(draws)
        | ({"published": published.DRIFT[label][SETS.index(questions.name)]} if label in published.DRIFT else {})
        for label, draws in after.items()
    ]


def subsets(questions: QuestionSet, pool: Pool, kind: str) -> list[dict[str, Any]]:
    """Random subsets of the sub-queries; a fused pool is fused from their lists alone."""
    rng, (n, m) = np.random.default_rng(0), pool.own.shape[:2]
    retriever = questions.hybrid if kind.startswith("hybrid") else questions.dense
    everything = [
        retriever.similarity(questions.subquery_texts[i], questions.subqueries[i], np.arange(questions.dense.size))
        for i in range(n)
    ]
    out = []
    for kept in SUBSETS:
        drawn: dict[str, list] = {}
        for _ in range(SUBSET_DRAWS):
            chosen = np.sort(np.stack([rng.choice(m, kept, replace=False) for _ in range(n)]), 1)
            numbers = _subset_pool(pool, chosen)
            affinity = np.stack([each[np.ix_(c, p)] for each, c, p in zip(everything, chosen, numbers, strict=True)])
            factors = _factors(np.take_along_axis(pool.own, chosen[:, :, None], 1), pool.primary)
            for label, indices in rank(affinity, *factors).items():
                picked = np.take_along_axis(numbers, indices, 1)
                drawn.setdefault(label, []).append(counts(all_gold(picked, questions.gold)))
        shown = {"set": questions.name, "pool": kind, "kept": kept}
        out += [shown | {"selector": label} | _over_draws(draws) for label, draws in drawn.items()]
    return out


def _subset_pool(pool: Pool, chosen: np.ndarray) -> np.ndarray:
    """[n, K] corpus numbers of the pool that the question and the chosen sub-queries make."""
    if pool.lists is None:
        return pool.numbers
    size = pool.numbers.shape[1]
    return np.stack([fuse(lists[[0, *(c + 1)]], size) for lists, c in zip(pool.lists, chosen, strict=True)])


def _factors(own: np.ndarray, primary: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    pairs = [twin.factors(list(lists), wanted) for lists, wanted in zip(own, primary, strict=True)]
    return np.stack([overlap for overlap, _ in pairs]), np.stack([novelty for _, novelty in pairs])


def _over_draws(draws: list[list[int]]) -> dict[str, Any]:
    values = np.array(draws)
    return {"mean": values.mean(0).round(2).tolist(), "low": values.min(0).tolist(), "high": values.max(0).tolist()}
