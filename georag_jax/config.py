"""The selector's settings: one frozen, hashable dataclass and two presets."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from georag_jax._errors import require

Objective = Literal["sinkhorn", "facility_location", "entropic_facility_location", "mmr", "dpp", "cosine"]
Solver = Literal["converged", "algorithm2"]
Backend = Literal["xla", "pallas"]
FirstPick = Literal["query", "demand"]
Fusion = Literal["product", "linear"]
Quality = Literal["overlap_novelty", "overlap", "uniform"]
DemandPoints = Literal["candidates", "subqueries"]
Fallback = Literal["prior", "query"]


class Service(NamedTuple):
    """How facility location counts service, with every default filled in."""

    demand_points: DemandPoints
    discount: float
    power: float
    ownership: float
    consensus: float


@dataclass(frozen=True)
class SelectConfig:
    """Settings of one selection; the defaults are the "default" preset. ``dataclasses.replace`` changes a field.

    Attributes:
        k: number of picks, >= 1.
        objective: what a pick gains. "sinkhorn" (Eq. 12, 13), "facility_location" (Eq. 4 with repeated service and
            similarity power) or "entropic_facility_location"; or a rival that knows no demand: "mmr" (maximal marginal
            relevance), "dpp" (determinantal point process, greedy MAP) or "cosine" (the largest scores).
        solver: "converged" (every transport problem that can matter, to a marginal error of 3e-6) or "algorithm2" (the
            paper's iterations, for every candidate). Read by "sinkhorn".
        epsilon: entropic regulariser > 0. Read by "sinkhorn" and "entropic_facility_location".
        iterations: of "algorithm2", >= 1.
        backend: "xla", or "pallas" for a GPU kernel of our own in the part of "converged" that grows with K^2 (not yet
            timed on one; interpreted, and slow, elsewhere).
        relevance_weight: in 0..1; 1 ranks by score alone, 0 by diversity alone. Read by "mmr" and "dpp".
        gate: multiply Delta W by 1 - the largest similarity to a pick (Eq. 12). Read by "sinkhorn".
        gate_losses: let the gate act where Delta W is negative as well. The paper's rule does, and so rewards
            redundancy when every candidate's Delta W is negative; False leaves a loss ungated.
        first_pick: "query", the candidate nearest the query (the paper's cold start), or "demand", the best gain.
        alpha, beta: exponents (or, for linear fusion, shares) of prior and likelihood, >= 0, not both 0.
        fusion: "product" (Eq. 11) or "linear", alpha r + beta L / sum(L).
        prior_temperature: > 0; of the softmax over the retriever's scores (Eq. 9).
        likelihood_temperature: None for Eq. 10; else > 0: each sub-query spreads its weight by a softmax over the pool.
        subqueries_kept: how many the max-min filter (Eq. 6) keeps, >= 1; None keeps all.
        quality: which factors of reverse validation (Eq. 7) make the weights.
        quality_threshold: in 0..1; a sub-query of lower quality is dropped (tau_RV).
        quality_saturation: None for weights in proportion to quality (Eq. 8); s > 0 for quality / (quality + s).
        without_subqueries: where there are none, the demand is the "prior" alone, r^alpha (paper), or the "query"
            serves as the only sub-query.
        demand_points: what is to be served, "candidates" (paper) or "subqueries" weighted by quality.
        service_discount: in 0..1; what a second, third, ... pick that serves the same point is worth, as a power.
        similarity_power: > 0 and <= 32; exponent of the similarities.
        ownership: in 0..1; how far a demand point's credit is shared out over the pool: each similarity is divided by
            the point's sum over the pool to this power.
        consensus: in 0..1; share of the mean over all sub-queries, by weight, in each one's similarity. Needs
            "subqueries" as demand points.
        center: None, or a mean [d] (the corpus', say) that is subtracted from every vector before cosines.

    ``demand_points``, ``service_discount``, ``similarity_power``, ``ownership`` and ``consensus`` belong to
    "facility_location". None stands for the tuned value there and for the neutral one elsewhere (``service`` has them
    filled in), so that a change of ``objective`` alone is valid; any other value with another objective is refused.

    Raises:
        ValueError: a field outside its range, or an option that the objective does not have.

    >>> SelectConfig.preset("paper").epsilon
    0.01
    """

    k: int = 5
    objective: Objective = "facility_location"
    solver: Solver = "converged"
    epsilon: float = 0.01
    iterations: int = 100
    backend: Backend = "xla"
    relevance_weight: float = 0.9
    gate: bool = True
    gate_losses: bool = False
    first_pick: FirstPick = "demand"
    alpha: float = 0.0
    beta: float = 1.0
    fusion: Fusion = "product"
    prior_temperature: float = 1.0
    likelihood_temperature: float | None = 0.04
    subqueries_kept: int | None = None
    quality: Quality = "overlap"
    quality_threshold: float = 0.05
    quality_saturation: float | None = 0.15
    without_subqueries: Fallback = "query"
    demand_points: DemandPoints | None = None
    service_discount: float | None = None
    similarity_power: float | None = None
    ownership: float | None = None
    consensus: float | None = None
    center: tuple[float, ...] | None = None

    def __post_init__(self):
        """Checks every field and makes ``center`` hashable."""
        if self.center is not None:
            object.__setattr__(self, "center", _as_tuple(self.center))
        self._check_choices()
        self._check_numbers()
        self._check_objective_has()

    @classmethod
    def preset(cls, name: Literal["default", "paper"]) -> "SelectConfig":
        """The named settings: "default" (measured best) or "paper" (Algorithm 1 to the letter).

        >>> SelectConfig.preset("default") == SelectConfig()
        True
        """
        require(name in _PRESETS, "preset", f"one of {sorted(_PRESETS)}", repr(name))
        return cls(**_PRESETS[name])

    @property
    def service(self) -> Service:
        """Demand points, discount, power, ownership and consensus as the objective uses them."""
        base = _NEUTRAL
        if self.objective == "facility_location":
            base = _TUNED[self.demand_points or "subqueries"]
        given = [getattr(self, field) for field in _SERVICE_FIELDS]
        return Service._make(b if g is None else g for b, g in zip(base, given, strict=True))

    def _check_choices(self) -> None:
        for field, kind in (
            ("objective", Objective),
            ("solver", Solver),
            ("backend", Backend),
            ("first_pick", FirstPick),
            ("fusion", Fusion),
            ("quality", Quality),
            ("without_subqueries", Fallback),
        ):
            value = getattr(self, field)
            require(value in get_args(kind), field, f"one of {list(get_args(kind))}", repr(value))
        require(
            self.demand_points in (None, *get_args(DemandPoints)),
            "demand_points",
            f"one of {list(get_args(DemandPoints))}",
            repr(self.demand_points),
        )
        for field in ("gate", "gate_losses"):
            require(isinstance(getattr(self, field), bool), field, "True or False", repr(getattr(self, field)))

    def _check_numbers(self) -> None:
        for field in ("k", "iterations", "subqueries_kept"):
            self._replace_checked(field, _whole_number)
        for field, *limits in _RANGES:
            self._replace_checked(field, partial(_number, *limits))
        require(self.alpha + self.beta > 0, "alpha, beta", "at least one above 0", f"{self.alpha}, {self.beta}")

    def _replace_checked(self, field: str, check: Callable[[str, Any], int | float]) -> None:
        """Makes a NumPy number a plain one; None stays where the field's type allows it."""
        value = getattr(self, field)
        if value is not None or type(None) not in get_args(SelectConfig.__annotations__[field]):
            object.__setattr__(self, field, check(field, value))

    def _check_objective_has(self) -> None:
        refused, reason = _SERVICE_FIELDS, f"objective {self.objective!r}"
        if self.objective == "facility_location":
            refused, reason = (), ""
            if self.demand_points == "candidates":
                refused, reason = ("consensus",), "demand_points 'candidates'"
        for field in refused:
            value, neutral = getattr(self, field), _NEUTRAL[_SERVICE_FIELDS.index(field)]
            require(
                value in (None, neutral), field, f"None or {neutral!r}, as {reason} has no such option", repr(value)
            )


def _whole_number(field: str, value: Any) -> int:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    require(whole and value >= 1, field, "an integer >= 1", repr(value))
    return int(value)


def _number(low: float, low_allowed: bool, high: float, field: str, value: Any) -> float:
    expected = f"a number {'>=' if low_allowed else '>'} {low}" + ("" if high == math.inf else f" and <= {high}")
    number = isinstance(value, int | float | np.floating | np.integer) and not isinstance(value, bool)
    require(number and math.isfinite(value), field, expected, repr(value))
    require((value >= low if low_allowed else value > low) and value <= high, field, expected, repr(value))
    return float(value)


def _as_tuple(center: Sequence[float] | np.ndarray) -> tuple[float, ...]:
    values = np.asarray(center, dtype=np.float64)
    require(values.ndim == 1, "center", "one vector [d]", f"shape {values.shape}")
    require(bool(np.isfinite(values).all()), "center", "finite numbers", "NaN or infinity")
    return tuple(values.tolist())


_RANGES = (  # field, lower end, whether that end belongs to it, upper end
    ("epsilon", 0, False, math.inf),
    ("prior_temperature", 0, False, math.inf),
    ("likelihood_temperature", 0, False, math.inf),
    ("alpha", 0, True, math.inf),
    ("beta", 0, True, math.inf),
    ("relevance_weight", 0, True, 1),
    ("quality_threshold", 0, True, 1),
    ("quality_saturation", 0, False, math.inf),
    ("service_discount", 0, True, 1),
    ("similarity_power", 0, False, 32),
    ("ownership", 0, True, 1),
    ("consensus", 0, True, 1),
)
_SERVICE_FIELDS = ("demand_points", "service_discount", "similarity_power", "ownership", "consensus")
_NEUTRAL = Service("candidates", discount=0.0, power=1.0, ownership=0.0, consensus=0.0)
_TUNED = {
    "subqueries": Service("subqueries", discount=0.3, power=10.0, ownership=0.7, consensus=0.1),
    "candidates": Service("candidates", discount=0.3, power=4.0, ownership=0.0, consensus=0.0),
}
_PRESETS: dict[str, dict] = {
    "default": {},
    "paper": {
        "objective": "sinkhorn",
        "solver": "algorithm2",
        "gate_losses": True,
        "first_pick": "query",
        "alpha": 1.0,
        "likelihood_temperature": None,
        "subqueries_kept": 10,
        "quality": "overlap_novelty",
        "quality_saturation": None,
        "without_subqueries": "prior",
        "demand_points": "candidates",
        "service_discount": 0.0,
        "similarity_power": 1.0,
        "ownership": 0.0,
        "consensus": 0.0,
    },
}
