"""Facility location and diversity as other libraries, and a plain NumPy loop, compute them: one question at a time."""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType

import numpy as np


def numpy_facility_location(gram: np.ndarray, weight: np.ndarray, k: int) -> list[int]:
    """Greedy picks, each step vectorised over the candidates."""
    best, picks = np.zeros(len(weight), gram.dtype), []
    for _ in range(k):
        gains = weight @ np.maximum(gram - best[:, None], 0)
        gains[picks] = -np.inf
        picks.append(int(gains.argmax()))
        best = np.maximum(best, gram[:, picks[-1]])
    return picks


def apricot_similarity(gram: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """What apricot is handed: it ignores weights, but a column that is scaled by its weight comes to the same."""
    return np.maximum(gram, 0).astype(np.float64) * weight.astype(np.float64)


def apricot_facility_location(optimizer: str, keep_compiled: bool) -> Callable[[np.ndarray, int], np.ndarray]:
    """A function of a similarity and k.

    apricot compiles its inner loop at every ``fit``; ``keep_compiled`` holds on to the compiled functions, which the
    library itself does not do.
    """
    import numba
    from apricot import FacilityLocationSelection

    numba.set_num_threads(1)  # measured: at 200 candidates a second thread makes "naive" a hundred times slower
    module, shipped = _compilers()
    compilers = {name: cache(compiler) for name, compiler in shipped.items()} if keep_compiled else shipped

    def select(similarity: np.ndarray, k: int) -> np.ndarray:
        for name, compiler in compilers.items():
            setattr(module, name, compiler)
        return FacilityLocationSelection(k, metric="precomputed", optimizer=optimizer).fit(similarity).ranking

    return select


@cache
def _compilers() -> tuple[ModuleType, dict[str, Callable]]:
    """The module of apricot and its functions that compile, read once, before any is exchanged."""
    module = import_module("apricot.functions.facilityLocation")
    return module, {name: getattr(module, name) for name in ("calculate_gains", "calculate_gains_sieve")}


def pyversity_picks(strategy: str) -> Callable[[np.ndarray, np.ndarray, int], np.ndarray]:
    """A function of candidates, query and k; the scores are the cosines to the query, the diversity is 0.5."""
    import pyversity

    select = {"mmr": pyversity.mmr, "dpp": pyversity.dpp}[strategy]
    return lambda candidates, query, k: select(candidates, candidates @ query, k, diversity=0.5).indices


def numpy_top(candidates: np.ndarray, query: np.ndarray, k: int) -> np.ndarray:
    """The k nearest to the query."""
    return np.argsort(-(candidates @ query), kind="stable")[:k]
