"""Settings chosen on some questions and counted on others.

The default's family is a wide grid from neutral to extreme values, every combination; its rivals are the prototypes
that came before. In each family the settings with the largest total over sets, pools and k on the choosing questions
are taken; ties go to the earliest in the grid, that is to the more neutral.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np

from benchmarks import baselines, twin
from benchmarks.data import Pool
from benchmarks.rows import DEFAULT, SHOWN, K, Pools

GRID: dict[str, tuple] = {
    "power": (1, 2, 4, 8, 10, 12, 16),
    "ownership": (0, 0.35, 0.7, 1),
    "discount": (0, 0.3, 0.6),
    "consensus": (0, 0.1, 0.3),
    "weights": ("uniform", "overlap", "overlap saturated at .05", "overlap saturated at .15"),
}
PROTOTYPES = {
    "points, power 4": {"discount": (0, 0.3, 0.6), "weights": ("uniform", "overlap")},
    "mixture, power 4": {"temperature": (0.02, 0.04), "discount": (0, 0.3), "weights": ("uniform", "overlap")},
}
SPLITS = 200
FOLDS = 10


class Setting(NamedTuple):
    """One combination; ``temperature`` None for sub-queries as demand points, else the mixture on the candidates."""

    power: float = 4
    ownership: float = 0
    discount: float = 0
    consensus: float = 0
    weights: str = "uniform"
    temperature: float | None = None


def families() -> dict[str, list[Setting]]:
    """The settings of each family, most neutral first."""
    every = lambda grid: [
        Setting(**dict(zip(grid, values, strict=True))) for values in itertools.product(*grid.values())
    ]
    return {
        "default's": every(GRID),
        "prototypes'": [setting for grid in PROTOTYPES.values() for setting in every(grid)],
        "preset default": [_preset()],
    }


def measure(pools: Pools) -> dict[str, Any]:
    """All the ways of choosing on some questions and counting on the others."""
    sizes = {len(pool.numbers) for pool in pools.values()}
    if len(sizes) != 1:
        raise ValueError(f"cross-fitting needs sets of one size, got {sorted(sizes)}")
    grids = families()
    hits = {label: np.stack([all_hits(pools, s) for s in grid]) for label, grid in grids.items()}
    n, columns = sizes.pop(), [" ".join(key) for key in pools]
    parity = np.arange(n) % 2
    return {
        "columns": columns,
        "grid": {name: list(values) for name, values in GRID.items()},
        "prototypes": {name: {k: list(v) for k, v in grid.items()} for name, grid in PROTOTYPES.items()},
        "settings": {label: len(grid) for label, grid in grids.items()},
        "halves": [_halves(label, grid, hits[label], parity) for label, grid in grids.items()],
        "folds": {label: _crossfit(each, np.arange(n) % FOLDS).tolist() for label, each in hits.items()},
        "sets": _sets(grids, hits, list(pools)),
        "random": _random_halves(hits, n),
        "in_sample_best": {
            label: {"total": int(each.sum((1, 2, 3)).max()), "setting": grids[label][_best(each)]._asdict()}
            for label, each in hits.items()
        },
    }


def all_hits(pools: Pools, setting: Setting) -> np.ndarray:
    """[columns, n, 3] whether all gold passages are among the first 2, 3, 5 picks."""
    return np.stack([pool.found(picks(pool, setting))[:, [k - 1 for k in SHOWN]] for pool in pools.values()])


def picks(pool: Pool, setting: Setting) -> np.ndarray:
    """[n, K] pool positions."""
    overlap, novelty = _factors(pool)
    quality, _, saturation = setting.weights.partition(" saturated at ")
    weight = twin.weights(overlap, novelty, quality, float(saturation) if saturation else None)
    affinity = pool.arguments["affinity"]
    if setting.temperature is not None:
        demand = twin.mixture(affinity, weight, setting.temperature)
        candidates = pool.arguments["candidates"]
        similarity = np.matmul(candidates, candidates.transpose(0, 2, 1))
        return twin.facility_location(twin.service(similarity, setting.power, 0), demand, K, setting.discount)
    blended = twin.blend(affinity, weight, setting.consensus)
    worth = twin.service(blended, setting.power, setting.ownership)
    return twin.facility_location(worth, weight, K, setting.discount)


def _preset() -> Setting:
    serve = DEFAULT.service
    weights = f"{DEFAULT.quality} saturated at {DEFAULT.quality_saturation:g}".replace("0.", ".")
    return Setting(serve.power, serve.ownership, serve.discount, serve.consensus, weights)


_known: dict[int, tuple[np.ndarray, np.ndarray]] = {}


def _factors(pool: Pool) -> tuple[np.ndarray, np.ndarray]:
    """Kept: the same for every setting."""
    if id(pool) not in _known:
        _known[id(pool)] = baselines.pool_factors(pool)
    return _known[id(pool)]


def _best(hits: np.ndarray) -> int:
    return int(hits.sum((1, 2, 3)).argmax())


def _crossfit(hits: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """[columns, 3] counts where each fold's questions are counted under what the other folds chose."""
    counted = [hits[_best(hits[:, :, fold != f]), :, fold == f].sum(0) for f in np.unique(fold)]
    return np.sum(counted, 0)


def _halves(label: str, grid: list[Setting], hits: np.ndarray, parity: np.ndarray) -> dict[str, Any]:
    out: dict[str, Any] = {"family": label}
    for name, side in (("even to odd", 0), ("odd to even", 1)):
        best = _best(hits[:, :, parity == side])
        counts = hits[best][:, parity != side].sum(1)
        out[name] = {"setting": grid[best]._asdict(), "counts": counts.tolist(), "total": int(counts.sum())}
    return out | {"sum": _crossfit(hits, parity).tolist()}


def _sets(grids, hits, columns) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(name for name, _ in columns))
    out = []
    for chosen, counted in itertools.permutations(names, 2):
        on, other = ([i for i, (name, _) in enumerate(columns) if name == each] for each in (chosen, counted))
        for label, grid in grids.items():
            best = _best(hits[label][:, on])
            counts = hits[label][best][other].sum(1)
            out.append(
                {"chosen_on": chosen, "counted_on": counted, "family": label, "setting": grid[best]._asdict()}
                | {"counts": counts.tolist(), "total": int(counts.sum())}
            )
    return out


def _random_halves(hits: dict[str, np.ndarray], n: int) -> dict[str, Any]:
    """Over random halves: the cross-fitted totals, their paired differences, and the mean counts of each column."""
    rng, sums = np.random.default_rng(0), {label: [] for label in hits}
    for _ in range(SPLITS):
        half = rng.permutation(n) % 2
        for label, each in hits.items():
            sums[label].append(_crossfit(each, half))
    totals = {label: np.sum(each, (1, 2)) for label, each in sums.items()}
    ours = totals["default's"]
    out: dict[str, Any] = {"splits": SPLITS, "means": {}, "totals": {}, "differences": {}}
    for label, each in sums.items():
        out["means"][label] = np.mean(each, 0).round(1).tolist()
        out["totals"][label] = _spread(totals[label])
        if label != "default's":
            out["differences"][label] = _spread(ours - totals[label]) | {
                "above_0": float((ours > totals[label]).mean())
            }
    return out


def _spread(values: np.ndarray) -> dict[str, float]:
    low, high = np.quantile(values, [0.025, 0.975])
    return {"mean": round(float(values.mean()), 1), "low": round(float(low), 1), "high": round(float(high), 1)}
