"""Pools of unequal size in one batch, against the same questions bucket by bucket."""

from dataclasses import replace
from typing import Any

import numpy as np

import georag_jax as gr
from benchmarks.speed import questions
from benchmarks.speed.case_sinkhorn import PAPER
from benchmarks.speed.questions import PICKS, Plan
from benchmarks.speed.timing import Side, measure
from georag_jax.selection.batching import bucket

SMALLEST, LARGEST, BATCH = 20, 500, 512
CONFIGS = {"default": gr.SelectConfig(k=PICKS), "converged": replace(PAPER, solver="converged")}


def run(plan: Plan) -> dict[str, Any]:
    """One group for each configuration; pool sizes are uniform between the two ends."""
    pools = questions.cut(questions.pools(plan.data, size=LARGEST), LARGEST)
    whole = questions.repeat(pools, plan.choose(BATCH, 8))
    sizes = np.random.default_rng(0).integers(SMALLEST, LARGEST + 1, len(whole["query"]))
    return {"groups": [_group(plan, name, config, whole, sizes) for name, config in CONFIGS.items()]}


def _group(plan: Plan, name: str, config: gr.SelectConfig, whole: dict, sizes: np.ndarray) -> dict[str, Any]:
    def select(rows: np.ndarray) -> np.ndarray:
        pools = [whole["candidates"][i, : sizes[i]] for i in rows]
        return gr.select(pools, whole["query"][rows], whole["subqueries"][rows], config=config).indices

    every = np.arange(len(sizes))
    rounded = np.array([bucket(int(size), steps=4) for size in sizes])
    buckets = [np.flatnonzero(rounded == size) for size in np.unique(rounded)]
    params = questions.sizes(whole) | {"K": f"{SMALLEST} to {LARGEST}"}
    sides = [
        Side("whole", "one batch", lambda _: select(every), params, len(every)),
        Side(
            "buckets", f"its {len(buckets)} buckets", lambda _: [select(rows) for rows in buckets], params, len(every)
        ),
    ]
    return {"group": name, "records": measure(sides, plan.rounds)}
