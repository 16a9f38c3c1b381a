"""Diversity from the vectors, a batch at once, against pyversity's loop; the cosine against NumPy's."""

from typing import Any

import georag_jax as gr
from benchmarks.speed import questions, rival_sets
from benchmarks.speed.case_sinkhorn import select
from benchmarks.speed.questions import PICKS, Arguments, Plan, batch_side, equal_picks
from benchmarks.speed.timing import Side, absent, measure

BATCH = 1024
CONFIGS: dict[str, dict[str, Any]] = {
    "mmr": {"objective": "mmr", "relevance_weight": 0.5},
    "dpp": {"objective": "dpp", "relevance_weight": 0.5},
    "cosine": {"objective": "cosine"},
}


def run(plan: Plan) -> dict[str, Any]:
    """One group for each objective."""
    every = questions.repeat(questions.cut(questions.pools(plan.data)), plan.choose(BATCH, 16))
    arguments = {name: every[name] for name in ("candidates", "query")}
    return {"groups": [_group(plan, objective, arguments) for objective in CONFIGS]}


def _group(plan: Plan, objective: str, arguments: Arguments) -> dict[str, Any]:
    ours = batch_side("ours", "georag_jax", select(gr.SelectConfig(k=PICKS, **CONFIGS[objective])), arguments)
    key, name = ("numpy", "NumPy loop") if objective == "cosine" else ("pyversity", "pyversity loop")
    try:
        choose = rival_sets.numpy_top if objective == "cosine" else rival_sets.pyversity_picks(objective)
    except ImportError as error:
        return {"group": objective, "records": [*measure([ours], plan.rounds), absent(key, name, error)]}
    pairs = list(zip(arguments["candidates"], arguments["query"], strict=True))
    loop = lambda _: [choose(candidates, query, PICKS) for candidates, query in pairs]
    rival = Side(key, name, loop, ours.params | {"batch": 1}, len(pairs))
    records = measure([ours, rival], plan.rounds)
    agreement = {f"georag_jax, {name}": equal_picks(ours.answer(0).indices, loop(0))}
    return {"group": objective, "records": records, "agreement": agreement}
