"""Facility location from Gram matrix and weights, against a NumPy loop and apricot; and the whole from vectors."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import georag_jax as gr
from benchmarks.speed import questions, rival_sets
from benchmarks.speed.case_sinkhorn import DEMANDS, given, select
from benchmarks.speed.questions import PICKS, Arguments, Plan, batch_side, equal_picks
from benchmarks.speed.timing import Side, absent, measure
from georag_jax import kernels

BATCH = 1024
DISCOUNT, EPSILON = 0.3, 0.05
OBJECTIVES = {
    "exact": ("exact", partial(kernels.greedy_facility_location, k=PICKS)),
    "discounted": (
        f"service discount {DISCOUNT}",
        partial(kernels.greedy_facility_location, k=PICKS, discount=DISCOUNT),
    ),
    "entropic": (
        f"entropic, eps {EPSILON}",
        partial(kernels.greedy_entropic_facility_location, k=PICKS, epsilon=EPSILON),
    ),
}
# key: label, optimizer, whether compiled functions are kept, questions in a call (full, quick)
APRICOT = {
    "apricot": ("apricot, lazy (its default), compiled functions kept", "lazy", True, (64, 4)),
    "apricot_naive": ("apricot, naive on one thread, compiled functions kept", "naive", True, (64, 4)),
    "apricot_as_shipped": ("apricot, lazy, as shipped", "lazy", False, (1, 1)),
}


def run(plan: Plan) -> dict[str, Any]:
    """One group for each demand."""
    arguments = questions.repeat(questions.cut(questions.pools(plan.data)), plan.choose(BATCH, 8))
    return {"groups": [_group(plan, name, config, arguments) for name, config in DEMANDS.items()]}


def _group(plan: Plan, name: str, config: gr.SelectConfig, arguments: Arguments) -> dict[str, Any]:
    free = given(arguments, config)
    params = questions.sizes(arguments)
    sides = [_ours(key, label, kernel, free, params) for key, (label, kernel) in OBJECTIVES.items()]
    sides.append(_numpy(free, params))
    sides.append(batch_side("default", "preset default from the vectors", select(gr.SelectConfig(k=PICKS)), arguments))
    missing = []
    for key, (label, optimizer, keep, count) in APRICOT.items():
        try:
            choose = rival_sets.apricot_facility_location(optimizer, keep)
        except ImportError as error:
            missing.append(absent(key, label, error))
            continue
        sides.append(_apricot(key, label, choose, free, params, plan.choose(*count)))
    records = measure(sides, plan.rounds)
    ours = np.concatenate([np.asarray(share.indices) for share in sides[0].answer(0)])
    rivals = [side for side in sides if side.key in ("numpy", "apricot")]
    agreement = {f"exact, {each.name}": equal_picks(ours[: each.queries], each.answer(0)) for each in rivals}
    return {"group": name, "records": [*records, *missing], "agreement": agreement}


def _ours(key: str, label: str, kernel, free: Arguments, params: dict[str, Any]) -> Side:
    """The kernel question by question in as many threads as there are cores, as ``gr.select`` walks on a CPU."""
    walked = jax.jit(lambda *arrays: jax.lax.map(lambda each: kernel(*each), arrays))
    mask = jnp.ones(free["p"].shape, bool)
    parts = np.array_split(np.arange(len(mask)), min(os.cpu_count() or 1, len(mask)))
    shares = [tuple(array[part[0] : part[-1] + 1] for array in (free["G"], free["p"], mask)) for part in parts]

    def answer(_: int) -> list[Any]:
        with ThreadPoolExecutor(len(shares)) as threads:
            return list(threads.map(lambda share: jax.block_until_ready(walked(*share)), shares))

    return Side(key, label, answer, params, len(free["p"]))


def _numpy(free: Arguments, params: dict[str, Any]) -> Side:
    gram, weight = np.asarray(free["G"]), np.asarray(free["p"])
    loop = lambda _: [rival_sets.numpy_facility_location(g, w, PICKS) for g, w in zip(gram, weight, strict=True)]
    return Side("numpy", "NumPy loop", loop, params | {"batch": 1}, len(gram))


def _apricot(key: str, label: str, choose, free: Arguments, params: dict[str, Any], count: int) -> Side:
    gram, weight = np.asarray(free["G"][:count]), np.asarray(free["p"][:count])
    scaled = [rival_sets.apricot_similarity(g, w) for g, w in zip(gram, weight, strict=True)]
    loop = lambda _: [choose(similarity, PICKS) for similarity in scaled]
    return Side(key, label, loop, params | {"batch": 1, "dtype": "float64"}, count)
