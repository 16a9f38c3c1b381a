"""Time a question against pool size, picks, width, sub-queries and batch size, one axis at a time."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import georag_jax as gr
from benchmarks.speed import questions
from benchmarks.speed.case_sinkhorn import PAPER, given, given_side, select
from benchmarks.speed.questions import PICKS, SIZE, SUBQUERIES, Arguments, Plan, batch_side
from benchmarks.speed.straightforward import select as straightforward
from benchmarks.speed.timing import Side, measure

LARGEST = 500
# axis: values (full, quick)
AXES = {
    "K": ((20, 50, 100, 200, 350, 500), (20, 50)),
    "k": ((2, 5, 8, 10, 20), (2, 5)),
    "d": ((64, 384, 1024), (64, 1024)),
    "m": ((1, 5, 10, 12), (1, 12)),
    "batch": ((1, 8, 64, 256, 1024), (1, 4)),
}
NOTES = {
    "d": "384: the stored vectors; 64: a random projection of them; 1,024: an isometry of them into the wider space",
    "m": "The paper's filter keeps 10 of 12",
}
BATCH = 128
RIVAL_AT = (200, 500)


def run(plan: Plan) -> dict[str, Any]:
    """One group an axis."""
    pools = questions.pools(plan.data, size=LARGEST)
    return {"groups": [_group(plan, axis, pools) for axis in AXES]}


def _group(plan: Plan, axis: str, pools: Arguments) -> dict[str, Any]:
    sides = [side for value in plan.choose(*AXES[axis]) for side in _sides(plan, pools, axis, value)]
    group = {"group": axis, "records": measure(sides, plan.rounds)}
    return group | ({"about": NOTES[axis]} if axis in NOTES else {})


def _sides(plan: Plan, pools: Arguments, axis: str, value: int) -> Iterator[Side]:
    base = {"K": SIZE, "k": PICKS, "d": pools["query"].shape[-1], "m": SUBQUERIES, "batch": plan.choose(BATCH, 4)}
    at = base | {axis: value}
    arguments = questions.repeat(questions.cut(pools, at["K"], at["m"]), at["batch"])
    arguments = questions.widened(arguments, at["d"])
    configs = {"converged": replace(PAPER, solver="converged", k=at["k"]), "default": gr.SelectConfig(k=at["k"])}
    for key, config in configs.items():
        side = batch_side(key, f"{key}, {axis} = {value:,}", select(config), arguments, at["k"])
        yield side._replace(calls=8 if at["batch"] == 1 else 1)
    if axis == "K" and value in plan.choose(RIVAL_AT, ()):
        few = questions.repeat(arguments, 8)
        params = questions.sizes(few) | {"batch": 1}
        free = given(few, PAPER)
        yield given_side("straightforward", f"straightforward, {axis} = {value:,}", straightforward, free, params, 1)
