"""How exactly the marginals are met: over all real steps, and against time."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np

import georag_jax as gr
from benchmarks.speed import questions
from benchmarks.speed.case_sinkhorn import DEMANDS, PAPER, select
from benchmarks.speed.questions import Arguments, Plan, sizes
from benchmarks.speed.timing import Side, measure, rounded

KINDS = ("dense", "hybrid_multi_query")
PICKS = 8  # 7 steps with transport
BATCH = 16
ITERATIONS = ((10, 30, 100, 300, 1000), (10, 30))


def run(plan: Plan) -> dict[str, Any]:
    """``steps``: a row for each pool and demand; and a group of timings whose records carry their errors."""
    rows = [row for kind in KINDS for row in _steps(plan, kind)]
    return {"steps": rows, "groups": [_against_time(plan)]}


def _steps(plan: Plan, kind: str) -> list[dict[str, Any]]:
    arguments = questions.cut(questions.pools(plan.data, kind), keep_affinity=True)
    arguments = questions.repeat(arguments, plan.choose(len(arguments["query"]), 4))
    rows = []
    for name, config in DEMANDS.items():
        found = gr.select(**arguments, config=replace(config, solver="converged", k=PICKS))
        steps = int((found.indices >= 0).sum() - len(found.indices))  # the first pick solves nothing
        rows.append({"pool": kind, "demand": name, "k": PICKS, "steps": steps} | _errors(found))
        print(f"  {kind}, {name}: worst {rows[-1]['worst']}", file=sys.stderr)
    return rows


def _errors(found: gr.Selection) -> dict[str, Any]:
    """The largest error over a question's steps and candidates: its median and worst over the questions."""
    error = np.asarray(found.marginal_error, np.float64)
    unfinished = (found.status & gr.Status.NOT_CONVERGED) != 0
    return {
        "questions": len(error),
        "median": rounded(float(np.median(error))),
        "worst": rounded(float(error.max())),
        "not_converged_share": round(float(unfinished.mean()), 4),
    }


def _against_time(plan: Plan) -> dict[str, Any]:
    arguments = questions.repeat(questions.cut(questions.pools(plan.data)), plan.choose(BATCH, 2))
    sweeps = lambda n: replace(PAPER, solver="algorithm2", iterations=n)
    configs = {f"algorithm2, {n:,} iterations": sweeps(n) for n in plan.choose(*ITERATIONS)}
    configs["converged"] = replace(PAPER, solver="converged")
    kept: dict[str, gr.Selection] = {}
    sides = [_side(name, config, arguments, kept) for name, config in configs.items()]
    records = measure(sides, plan.rounds)
    records = [record | {"marginal_error": _errors(kept[record["name"]])} for record in records]
    return {"group": "marginal error against time", "about": "Demand of the paper", "records": records}


def _side(name: str, config: gr.SelectConfig, arguments: Arguments, kept: dict[str, gr.Selection]) -> Side:
    call = select(config)

    def answer(_: int) -> gr.Selection:
        kept[name] = call(**arguments)
        return kept[name]

    params = sizes(arguments) | ({"iterations": config.iterations} if config.solver == "algorithm2" else {})
    return Side(config.solver, name, answer, params, len(arguments["query"]))
