"""Metrics of ranked picks against gold passages and of answers, with bootstrap intervals. NumPy alone."""

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 10_000


class Interval(NamedTuple):
    """A mean and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float


def recall(picks: Sequence[str], gold: Sequence[str], k: int) -> np.ndarray:
    """Share of the gold passages among the first 1, ..., k picks: [k], NaN without gold.

    >>> recall(["a", "x", "b"], ["a", "b"], 3).tolist()
    [0.5, 0.5, 1.0]
    """
    wanted = set(gold)
    found = [len(wanted.intersection(picks[: j + 1])) for j in range(k)]
    return np.asarray(found) / len(wanted) if wanted else np.full(k, np.nan)


def recall_ceiling(pool: Sequence[str], gold: Sequence[str], k: int) -> np.ndarray:
    """The best recall that any choice from the pool can have with 1, ..., k picks: [k], NaN without gold.

    >>> recall_ceiling(["a", "b", "x"], ["a", "b", "c"], 2).round(3).tolist()
    [0.333, 0.667]
    """
    wanted = set(gold)
    within = len(wanted.intersection(pool))
    return np.minimum(within, np.arange(1, k + 1)) / len(wanted) if wanted else np.full(k, np.nan)


def all_gold(recalls: np.ndarray) -> np.ndarray:
    """1 where the recall is complete, else 0; NaN stays NaN (Definition 4's coverage of all peaks)."""
    return np.where(np.isnan(recalls), np.nan, recalls >= 1)


def exact_match(answer: str, accepted: Sequence[str]) -> float:
    """1 where the answer equals an accepted one by HotpotQA's rules, else 0; NaN where none is accepted.

    Case, punctuation, the articles and spacing do not count.

    >>> exact_match("The  Elbe.", ["the river Elbe", "Elbe"])
    1.0
    """
    if not accepted:
        return np.nan
    return float(_normal(answer) in {_normal(text) for text in accepted})


def f1(answer: str, accepted: Sequence[str]) -> float:
    """The best F1 of the answer's words against an accepted one, by HotpotQA's rules; NaN where none is accepted.

    A yes or a no on either side earns nothing but for the same word on the other.

    >>> round(f1("the river Elbe", ["Elbe"]), 3)
    0.667
    """
    return max((_f1(_normal(answer), _normal(text)) for text in accepted), default=np.nan)


def _f1(ours: str, theirs: str) -> float:
    if ours != theirs and {ours, theirs} & {"yes", "no", "noanswer"}:
        return 0.0
    a, b = Counter(ours.split()), Counter(theirs.split())
    same = (a & b).total()
    return 2 * same / (a.total() + b.total()) if same else 0.0


def _normal(text: str) -> str:
    """Without case, punctuation, articles and superfluous spaces."""
    bare = "".join(c for c in text.lower() if c not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def interval(values: np.ndarray, seed: int = 0) -> Interval:
    """Mean over questions and its percentile bootstrap interval; NaN for no question.

    Args:
        values: [n], NaN entries are left out.
        seed: of the resampling.
    """
    values = np.asarray(values, np.float64)
    values = values[~np.isnan(values)]
    if not len(values):
        return Interval(np.nan, np.nan, np.nan)
    means = np.sort(_resampled_means(values, np.random.default_rng(seed)))
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(values.mean()), float(low), float(high))


def _resampled_means(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Means of RESAMPLES resamples, drawn as counts a block at a time: bounded memory for any n."""
    means, n = [], len(values)
    block = max(1, 2_000_000 // n)
    for start in range(0, RESAMPLES, block):
        rows = min(block, RESAMPLES - start)
        means.append(values[rng.integers(n, size=(rows, n))].mean(1))
    return np.concatenate(means)
