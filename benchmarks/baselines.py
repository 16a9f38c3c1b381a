"""Reference rankings to compare with, each in its published form: pool positions [n, k] for every question."""

import numpy as np

from benchmarks import twin
from benchmarks.data import Pool


def top(scores: np.ndarray, k: int) -> np.ndarray:
    """The k largest of each row, ties to the lowest position."""
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def cosine(pool: Pool, k: int) -> np.ndarray:
    """Closeness to the query alone."""
    return top(to_query(pool), k)


def question_alone(pool: Pool, k: int) -> np.ndarray:
    """The pool's own similarity (cosine or hybrid) to the query alone."""
    return top(pool.question_affinity, k)


def subquery_max(pool: Pool, k: int) -> np.ndarray:
    """SubQ-MaxCos: the largest similarity to any sub-query."""
    return top(pool.arguments["affinity"].max(1), k)


def subquery_mean(pool: Pool, k: int) -> np.ndarray:
    """SubQ-AvgCos with uniform weights: the mean similarity to the sub-queries."""
    return top(pool.arguments["affinity"].mean(1), k)


def subquery_mean_validated(pool: Pool, k: int) -> np.ndarray:
    """SubQ-AvgCos with overlap x novelty weights: it ranks by the likelihood L_i of Eq. 10 alone."""
    weight = twin.weights(*pool_factors(pool), "overlap_novelty")
    return top(np.einsum("nm,nmK->nK", weight, pool.arguments["affinity"]), k)


def mmr(pool: Pool, k: int, relevance_weight: float = 0.9) -> np.ndarray:
    """Maximal marginal relevance (Carbonell and Goldstein 1998)."""
    relevance, candidates = to_query(pool), pool.arguments["candidates"]
    rows, nearest, picks = np.arange(len(relevance)), np.zeros_like(relevance), []
    score = relevance.copy()
    for _ in range(k):
        picks.append(score.argmax(1))
        similar = np.einsum("nKd,nd->nK", candidates, candidates[rows, picks[-1]])
        nearest = similar if len(picks) == 1 else np.maximum(nearest, similar)
        score = relevance_weight * relevance - (1 - relevance_weight) * nearest
        score[rows[:, None], np.stack(picks, 1)] = -np.inf
    return np.stack(picks, 1)


def dpp(pool: Pool, k: int, sharpness: float | None = 5) -> np.ndarray:
    """Greedy MAP of the kernel Diag(r) G Diag(r) (Chen, Zhang and Zhou 2018).

    r = exp(sharpness * cosine to the query), or the clipped cosine itself for None.
    """
    relevance = to_query(pool)
    scale = np.maximum(relevance, 0) if sharpness is None else np.exp(sharpness * relevance)
    items = pool.arguments["candidates"].astype(np.float64) * scale[:, :, None]
    rows, left, factors, picks = np.arange(len(items)), (items**2).sum(-1), [], []
    for _ in range(k):
        pick = left.argmax(1)
        picks.append(pick)
        row = np.einsum("nKd,nd->nK", items, items[rows, pick])
        for factor in factors:
            row = row - factor[rows, pick][:, None] * factor
        factors.append(row / np.sqrt(np.maximum(left[rows, pick], 1e-12))[:, None])
        left = left - factors[-1] ** 2
        left[rows[:, None], np.stack(picks, 1)] = -np.inf
    return np.stack(picks, 1)


def dpp_cosine(pool: Pool, k: int) -> np.ndarray:
    """``dpp`` with the clipped cosine as quality."""
    return dpp(pool, k, None)


def ceiling(pool: Pool, k: int) -> np.ndarray:
    """What the best choice from the pool would reach: [n, k] whether all gold passages can be had."""
    within = [gold <= set(row) for gold, row in zip(pool.gold, pool.numbers.tolist(), strict=True)]
    return np.array(within)[:, None] & (np.array([len(gold) for gold in pool.gold])[:, None] <= np.arange(1, k + 1))


def to_query(pool: Pool) -> np.ndarray:
    """[n, K] cosines to the query."""
    return np.einsum("nKd,nd->nK", pool.arguments["candidates"], pool.arguments["query"])


def pool_factors(pool: Pool) -> tuple[np.ndarray, np.ndarray]:
    """Overlap and novelty [n, m] of every question's sub-queries."""
    pairs = [twin.factors(list(own), primary) for own, primary in zip(pool.own, pool.primary, strict=True)]
    return np.stack([overlap for overlap, _ in pairs]), np.stack([novelty for _, novelty in pairs])
