"""The paper's rule: ours against the straightforward program, OTT and POT, under two demands."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np

import georag_jax as gr
from benchmarks.speed import questions, rival_transport
from benchmarks.speed.questions import PICKS, Arguments, Plan, batch_side, equal_picks, single_side
from benchmarks.speed.straightforward import select as straightforward
from benchmarks.speed.timing import Side, absent, measure

PAPER = gr.SelectConfig.preset("paper")
DEMANDS = {
    "demand of the paper": PAPER,
    "demand of the default's mixture": replace(
        PAPER, alpha=0.0, likelihood_temperature=gr.SelectConfig().likelihood_temperature
    ),
}
BATCH, SWEEPS_BATCH = 256, 64
POT_CANDIDATES = 25  # of every step


def run(plan: Plan) -> dict[str, Any]:
    """One group for each demand."""
    arguments = questions.cut(questions.pools(plan.data))
    return {"groups": [_group(plan, name, config, arguments) for name, config in DEMANDS.items()]}


def select(config: gr.SelectConfig) -> Callable[..., gr.Selection]:
    """``gr.select`` under a config, as NumPy arrays in and out."""
    return lambda **arguments: gr.select(**arguments, config=config)


def given(arguments: Arguments, config: gr.SelectConfig) -> Arguments:
    """What the other programs get for free: Gram matrix, cosines to the query and the demand, on the device."""
    demand = gr.select(**arguments, config=replace(config, objective="facility_location", k=1)).demand
    nearness = np.einsum("nKd,nd->nK", arguments["candidates"], arguments["query"])
    free = {"G": questions.grams(arguments["candidates"]), "query_sim": nearness, "p": demand}
    return {name: jnp.asarray(x) for name, x in free.items()}


def given_side(key: str, name: str, call, free: Arguments, params: dict[str, Any], calls: int) -> Side:
    """``call`` on Gram, cosines and demand of one question after the other."""
    rows = [{part: x[i] for part, x in free.items()} for i in range(len(free["p"]))]
    return Side(key, name, lambda i: call(**rows[i % len(rows)]), params, calls=calls)


def _group(plan: Plan, name: str, config: gr.SelectConfig, arguments: Arguments) -> dict[str, Any]:
    converged = select(replace(config, solver="converged"))
    sweeps = select(replace(config, solver="algorithm2"))
    checked = questions.repeat(arguments, plan.choose(96, 4))
    free = given(checked, config)
    params = questions.sizes(checked) | {"batch": 1}
    many, some = plan.choose(BATCH, 4), plan.choose(SWEEPS_BATCH, 2)
    sides = [
        batch_side("converged_batch", f"converged, {many} at once", converged, questions.repeat(arguments, many)),
        single_side("converged_one", "converged, one at a time", converged, arguments, plan.choose(16, 2)),
        batch_side("algorithm2_batch", f"algorithm2, {some} at once", sweeps, questions.repeat(arguments, some)),
        given_side("straightforward", "straightforward program", straightforward, free, params, plan.choose(2, 1)),
    ]
    more, missing = _rivals(plan, free, params)
    records = measure([*sides, *more], plan.rounds)
    print(f"  {name}: timed", file=sys.stderr)
    wanted = np.stack([straightforward(*question) for question in zip(*free.values(), strict=True)])
    found = {"algorithm2": sweeps(**checked).indices, "converged": converged(**checked).indices}
    found |= {side.name: [side.answer(i) for i in range(min(12, len(wanted)))] for side in more if side.key != "pot"}
    agreement = {f"{side}, straightforward": equal_picks(picks, wanted[: len(picks)]) for side, picks in found.items()}
    return {"group": name, "records": [*records, *missing], "agreement": agreement}


def _rivals(plan: Plan, free: Arguments, params: dict[str, Any]) -> tuple[list[Side], list[dict[str, Any]]]:
    """OTT and POT, or records of their absence."""
    sides, missing = [], []
    makers = {
        ("ott", "OTT-JAX, transposed problem"): lambda key, name: given_side(
            key, name, rival_transport.ott_select(True), free, params, plan.choose(2, 1)
        ),
        ("ott_untransposed", "OTT-JAX, [K, t] problem"): lambda key, name: given_side(
            key, name, rival_transport.ott_select(False), free, params, 1
        ),
        ("pot", "POT, Python loop"): lambda key, name: _pot(key, name, plan, free, params),
    }
    for (key, name), make in makers.items():
        try:
            sides.append(make(key, name))
        except ImportError as error:
            missing.append(absent(key, name, error))
    return sides, missing


def _pot(key: str, name: str, plan: Plan, free: Arguments, params: dict[str, Any]) -> Side:
    solve, candidates = rival_transport.pot_problems(), plan.choose(POT_CANDIDATES, 1)

    @cache  # made at the first call, which is timed apart
    def problems() -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Gram matrix, demand and picks, the straightforward program's."""
        some = [[x[i] for x in free.values()] for i in range(min(plan.rounds + 1, len(free["p"])))]
        return [(np.asarray(G), np.asarray(p), np.asarray(straightforward(G, near, p))) for G, near, p in some]

    answer = lambda i: solve(*problems()[i % len(problems())], candidates)
    steps = range(1, PICKS)
    share = candidates * len(steps) / sum(params["K"] - t for t in steps)
    note = f"{candidates} candidates of every step timed and scaled up; the picks are given to it"
    return Side(key, name, answer, params, share=share, note=note)
