"""Small problems from a seed, of few shapes, so that hypothesis draws a seed and nothing is compiled again."""

from typing import NamedTuple

import numpy as np
import reference


class Instance(NamedTuple):
    """Unit vectors, their Gram matrix and a demand; float32 values held in float64, so that both sides see the same."""

    candidates: np.ndarray
    query: np.ndarray
    subqueries: np.ndarray
    gram: np.ndarray
    p: np.ndarray


def instance(seed: int, K: int = 10, m: int = 4, d: int = 5, zeros: int = 1) -> Instance:
    """Two clusters and noise; ``zeros`` candidates without demand."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(2, d))
    E = centres[rng.integers(0, 2, K)] + 0.7 * rng.normal(size=(K, d))
    sub = centres[rng.integers(0, 2, m)] + 0.5 * rng.normal(size=(m, d))
    E, sub, q = (as32(reference.unit(x)) for x in (E, sub, centres.sum(0) + rng.normal(size=d)))
    p = rng.random(K) ** 3
    p[rng.permutation(K)[:zeros]] = 0
    return Instance(E, q, sub, as32(np.clip(E @ E.T, -1, 1)), as32(p / p.sum()))


def as32(x) -> np.ndarray:
    return np.asarray(x, np.float32).astype(np.float64)
