"""The selectors once more in NumPy, in batches: no compilation, so that hundreds of settings can be tried.

``tests/test_benchmarks.py`` holds them to ``georag_jax.select`` pick by pick.
"""

import numpy as np


def factors(own: list[np.ndarray], primary: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Overlap and novelty [m] (Eq. 7) of one question's m lists, as corpus numbers."""
    lists, wanted = [set(numbers.tolist()) for numbers in own], set(primary.tolist())
    others = [set().union(*(other for i, other in enumerate(lists) if i != j)) for j in range(len(lists))]
    overlap = [len(each & wanted) / len(each) for each in lists]
    novelty = [len(each - taken) / len(each) for each, taken in zip(lists, others, strict=True)]
    return np.array(overlap), np.array(novelty)


def weights(
    overlap: np.ndarray, novelty: np.ndarray, quality: str, saturation: float | None = None, threshold: float = 0.05
) -> np.ndarray:
    """Sub-query weights [..., m] that sum to 1 (Eq. 8); uniform where all are under the threshold."""
    score = {"uniform": np.ones_like(overlap), "overlap": overlap, "overlap_novelty": overlap * novelty}[quality]
    score = np.where(score >= threshold, score, 0)
    score = score if saturation is None else score / (score + saturation)
    total = score.sum(-1, keepdims=True)
    return np.where(total > 0, score / np.where(total > 0, total, 1), 1 / score.shape[-1])


def blend(affinity: np.ndarray, weight: np.ndarray, consensus: float) -> np.ndarray:
    """Each sub-query's similarities [n, m, K] mixed with their weighted mean."""
    if consensus == 0:
        return affinity
    mean = np.einsum("nm,nmK->nK", weight.astype(affinity.dtype), affinity)
    return (1 - consensus) * affinity + consensus * mean[:, None]


def service(similarity: np.ndarray, power: float, ownership: float) -> np.ndarray:
    """What each candidate is worth to each demand point: [n, points, K]."""
    worth = np.maximum(similarity, 0) ** power
    if ownership == 0:
        return worth
    total = worth.sum(-1, keepdims=True)
    return np.where(total > 0, worth / np.where(total > 0, total, 1) ** ownership, 0)


def mixture(affinity: np.ndarray, weight: np.ndarray, temperature: float) -> np.ndarray:
    """The demand [n, K] with alpha 0: each sub-query spreads its weight by a softmax over the pool."""
    spread = np.exp((affinity - affinity.max(-1, keepdims=True)) / temperature)
    return np.einsum("nm,nmK->nK", weight, spread / spread.sum(-1, keepdims=True))


def facility_location(worth: np.ndarray, weight: np.ndarray, k: int, discount: float) -> np.ndarray:
    """Greedy picks [n, k] for F(S) = sum_j w_j sum_r discount^(r-1) s_(r)(j, S); worth [n, points, K]."""
    rows, ranks = np.arange(len(worth)), float(discount) ** np.arange(k + 1)
    weighted = worth * weight.astype(worth.dtype)[:, :, None]
    alone, used = weighted.sum(1), np.zeros((len(worth), worth.shape[2]), bool)
    served, picks = np.zeros((*worth.shape[:2], 0), worth.dtype), []
    for step in range(k):
        gain = ranks[step] * alone
        for rank in range(step):
            share = ranks[rank] - ranks[rank + 1]
            if share > 0:
                gain = gain + share * np.maximum(weighted - served[:, :, rank, None], 0).sum(1)
        picks.append(np.where(used, -np.inf, gain).argmax(1))
        used[rows, picks[-1]] = True
        served = -np.sort(-np.concatenate([served, weighted[rows, :, picks[-1]][:, :, None]], 2), axis=2)
    return np.stack(picks, 1)
