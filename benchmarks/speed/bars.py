"""What the figures have to reach, and whether those in the JSON do."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

Case = dict[str, Any]
STEPS_WANTED, QUESTIONS_WANTED = 5000, 10_000


class Bar(NamedTuple):
    """One figure with its bar and its stretch.

    Attributes:
        what: in words.
        case: the case it is computed from.
        values: of that case, the figure of each of its parts; empty where they were not measured.
        bar: to be reached by every part.
        stretch: likewise, or None.
        at_least: whether larger is better.
        unit: behind the numbers.
    """

    what: str
    case: str
    values: Callable[[Case], dict[str, float]]
    bar: float
    stretch: float | None = None
    at_least: bool = True
    unit: str = "x"


class Verdict(NamedTuple):
    """A bar with the worst of its figures; None, and neither met, where nothing was measured."""

    bar: Bar
    values: dict[str, float]
    worst: float | None
    met: bool
    stretch_met: bool

    @property
    def word(self) -> str:
        """As the table has it."""
        if self.worst is None:
            return "not measured"
        return ("met, stretch too" if self.stretch_met else "met") if self.met else "missed"


def judge(cases: dict[str, Case]) -> list[Verdict]:
    """Every bar against the cases that are there."""
    verdicts = []
    for bar in BARS:
        values = bar.values(cases[bar.case]) if bar.case in cases else {}
        reached = lambda wanted, bar=bar, values=values: (
            bool(values) and all(value >= wanted if bar.at_least else value <= wanted for value in values.values())
        )
        worst = (min if bar.at_least else max)(values.values()) if values else None
        met = reached(bar.bar)
        verdicts.append(Verdict(bar, values, worst, met, met and bar.stretch is not None and reached(bar.stretch)))
    return verdicts


def median(group: dict[str, Any], key: str, **params: Any) -> float | None:
    """Milliseconds a question of the record with this key and these params; None where it was not run."""
    for record in group["records"]:
        if record["key"] == key and "per_query_ms" in record and params.items() <= record["params"].items():
            return record["per_query_ms"]["median"]
    return None


def ratio(
    slow: str, fast: str, group: str | None = None, slow_at: dict | None = None, fast_at: dict | None = None
) -> Callable[[Case], dict[str, float]]:
    """Medians of two sides of one group over each other, for every group, or one, that has both."""

    def values(case: Case) -> dict[str, float]:
        found = {}
        for each in case.get("groups", []):
            above, below = median(each, slow, **(slow_at or {})), median(each, fast, **(fast_at or {}))
            if group in (None, each["group"]) and above is not None and below:
                found[each["group"]] = above / below
        return found

    return values


def _equal(pair: str) -> Callable[[Case], dict[str, float]]:
    return lambda case: {
        group["group"]: group["agreement"][pair]["equal_sets"]
        for group in case.get("groups", [])
        if pair in group.get("agreement", {})
    }


def _peaks(case: Case) -> dict[str, float]:
    """Nothing where there were too few questions to say."""
    rows = case.get("peaks", [])
    return {row["config"]: row["peak_above_inputs_mib"] for row in rows if row["batch"] >= QUESTIONS_WANTED}


def _worst_error(case: Case) -> dict[str, float]:
    """The worst of all pools and demands; nothing where the steps are too few to say."""
    rows = case.get("steps", [])
    if sum(row["steps"] for row in rows) < STEPS_WANTED:
        return {}
    number = lambda worst: math.inf if math.isnan(worst) else worst  # NaN must not pass
    return {f"{row['pool']}, {row['demand']}": number(row["worst"]) for row in rows}


_K500, _K200 = {"K": 500}, {"K": 200}
BARS = (
    Bar(
        "converged in a batch, against the straightforward program",
        "sinkhorn",
        ratio("straightforward", "converged_batch"),
        80,
        250,
    ),
    Bar(
        "converged one at a time, against the straightforward program",
        "sinkhorn",
        ratio("straightforward", "converged_one"),
        40,
        100,
    ),
    Bar(
        "algorithm2 in a batch, against the straightforward program",
        "sinkhorn",
        ratio("straightforward", "algorithm2_batch"),
        8,
        20,
    ),
    Bar(
        "algorithm2: share of questions with the straightforward program's picks",
        "sinkhorn",
        _equal("algorithm2, straightforward"),
        1,
        unit="",
    ),
    Bar("converged in a batch, against OTT-JAX", "sinkhorn", ratio("ott", "converged_batch"), 80, 200),
    Bar(
        "exact facility location in a batch, against the NumPy loop",
        "facility_location",
        ratio("numpy", "exact"),
        3,
        10,
    ),
    Bar("exact facility location in a batch, against apricot", "facility_location", ratio("apricot", "exact"), 20),
    Bar("MMR in a batch, against pyversity", "diversity", ratio("pyversity", "ours", "mmr"), 2, 10),
    Bar("DPP in a batch, against pyversity", "diversity", ratio("pyversity", "ours", "dpp"), 2, 10),
    Bar(
        "pools of 20 to 500 in one batch, against their buckets one by one",
        "ragged",
        ratio("whole", "buckets"),
        1.2,
        at_least=False,
    ),
    Bar(
        "converged at K = 500, against itself at K = 200",
        "scaling",
        ratio("converged", "converged", "K", _K500, _K200),
        6.25,
        2.6,
        at_least=False,
    ),
    Bar(
        "converged at K = 500, against the straightforward program there",
        "scaling",
        ratio("straightforward", "converged", "K", _K500, _K500),
        80,
    ),
    Bar(
        f"peak memory of {QUESTIONS_WANTED:,} questions above the inputs",
        "memory",
        _peaks,
        1024,
        300,
        at_least=False,
        unit=" MiB",
    ),
    Bar(
        f"worst marginal error over {STEPS_WANTED:,} real steps or more",
        "error",
        _worst_error,
        3e-6,
        1e-6,
        at_least=False,
        unit="",
    ),
)
