"""Evidence coverage on real question sets: ``python -m benchmarks.quality --data DIR``.

DIR holds folders with corpus.jsonl, queries.jsonl, subqueries.jsonl and stored MiniLM vectors. Counts, for every
selector and pool, the questions with all gold passages among the first k picks; then chooses settings on one half of
the questions and reports the other, both ways round. Writes quality.json and, from it alone, QUALITY.md.
"""

import argparse
import itertools
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

import georag_jax as gr
from benchmarks import baselines
from benchmarks.data import POOLS, Pool, load, make_pool
from benchmarks.environment import environment
from georag_jax import metrics

K = 5
SHOWN = (2, 3, 5)
DEFAULT, PAPER = gr.SelectConfig.preset("default"), gr.SelectConfig.preset("paper")
MIXTURE = replace(DEFAULT, demand_points="candidates", quality="uniform", quality_saturation=None)
POINTS = replace(MIXTURE, demand_points="subqueries", similarity_power=4, ownership=0, consensus=0)

BASELINES = {
    "cosine top-k": baselines.cosine,
    "MMR, relevance weight .9": baselines.mmr,
    "DPP, greedy MAP": baselines.dpp,
    "SubQ-AvgCos, uniform weights": baselines.subquery_mean,
    "SubQ-MaxCos": baselines.subquery_max,
}
CONFIGS = {
    "preset paper (Sinkhorn, m = 10)": PAPER,
    "paper's demand, facility location": replace(PAPER, objective="facility_location"),
    "mixture .02, facility location on sim^4": replace(MIXTURE, likelihood_temperature=0.02, service_discount=0),
    "mixture .04, facility location on sim^4, discount .3": MIXTURE,
    "mixture .04, entropic facility location, eps .05": replace(
        DEFAULT, objective="entropic_facility_location", epsilon=0.05
    ),
    "mixture .04, Sinkhorn, first pick from the demand": replace(DEFAULT, objective="sinkhorn"),
    "sub-queries as points, power 4, discount 0": replace(POINTS, service_discount=0),
    "sub-queries as points, power 4, discount .3": POINTS,
    "sub-queries as points, power 4, discount .6": replace(POINTS, service_discount=0.6),
    "default without ownership": replace(DEFAULT, ownership=0),
    "default without consensus": replace(DEFAULT, consensus=0),
    "default without saturation": replace(DEFAULT, quality_saturation=None),
    "default with uniform weights": replace(DEFAULT, quality="uniform"),
    "preset default": DEFAULT,
}
GRID = {
    "similarity_power": (8, 10, 12),
    "ownership": (0.6, 0.7, 0.8),
    "service_discount": (0.2, 0.3, 0.4),
    "consensus": (0.0, 0.1),
}
PROTOTYPES = [POINTS, replace(POINTS, service_discount=0), replace(POINTS, service_discount=0.6), MIXTURE]


def choose(pool: Pool, config: gr.SelectConfig) -> np.ndarray:
    """[n, K] whether all gold passages are among the first picks under a config."""
    return pool.found(gr.select(**pool.arguments, config=replace(config, k=K)).indices)


def measure(folders: list[Path]) -> dict[str, Any]:
    """All rows for all sets and pools, and the two halves."""
    pools: dict[tuple[str, str], Pool] = {}
    for folder in folders:
        questions = load(folder)
        pools |= {(questions.name, kind): make_pool(questions, kind) for kind in POOLS}
    rows = []
    for (name, kind), pool in pools.items():
        found = {"ceiling of the pool": baselines.ceiling(pool, K)}
        found |= {label: pool.found(rule(pool, K)) for label, rule in BASELINES.items()}
        found |= {label: choose(pool, config) for label, config in CONFIGS.items()}
        for label, hits in found.items():
            intervals = {str(k): list(metrics.interval(hits[:, k - 1])) for k in SHOWN}
            counts = {str(k): int(hits[:, k - 1].sum()) for k in SHOWN}
            rows.append(
                {"set": name, "pool": kind, "selector": label, "questions": len(hits)}
                | {"counts": counts, "intervals": intervals}
            )
    return {
        "environment": environment(),
        "settings": {"candidates": 200, "k": K, "configs": {label: asdict(c) for label, c in CONFIGS.items()}},
        "rows": rows,
        "halves": halves({key: pool for key, pool in pools.items() if key[1] != "multi_query"}),
    }


def halves(pools: dict[tuple[str, str], Pool]) -> list[dict[str, Any]]:
    """Settings chosen on the even-numbered questions and counted on the odd-numbered ones, and the other way round.

    The criterion is the total over sets, pools and k; the rivals' settings are chosen in the same way.
    """
    ours = [replace(DEFAULT, **dict(zip(GRID, values, strict=True))) for values in itertools.product(*GRID.values())]
    families = {"default's family": ours, "prototypes' family": PROTOTYPES, "preset default": [DEFAULT]}
    hits = {label: np.stack([_all_hits(pools, c) for c in family]) for label, family in families.items()}
    out = []
    for chosen_on, counted_on in ((0, 1), (1, 0)):
        for label, family in families.items():
            totals = hits[label][:, :, chosen_on::2].sum((1, 2, 3))
            best = int(totals.argmax())
            counts = hits[label][best, :, counted_on::2].sum(1)
            out.append(
                {
                    "chosen_on": "even" if chosen_on == 0 else "odd",
                    "family": label,
                    "chosen": _changes(family[best]),
                    "counts": {" ".join(key): row.tolist() for key, row in zip(pools, counts, strict=True)},
                    "total": int(counts.sum()),
                }
            )
    return out


def _all_hits(pools: dict[tuple[str, str], Pool], config: gr.SelectConfig) -> np.ndarray:
    """[pools, n, len(SHOWN)]; the sets have to have as many questions as each other."""
    return np.stack([choose(pool, config)[:, [k - 1 for k in SHOWN]] for pool in pools.values()])


def _changes(config: gr.SelectConfig) -> dict[str, Any]:
    return {"demand_points": config.service.demand_points} | {f: getattr(config, f) for f in GRID}


def report(result: dict[str, Any]) -> str:
    """The tables, from the JSON alone."""
    lines = ["# Evidence coverage", "", _preamble(result), ""]
    for kind in POOLS:
        rows = [row for row in result["rows"] if row["pool"] == kind]
        sets = list(dict.fromkeys(row["set"] for row in rows))
        lines += [f"## Pool: {kind.replace('_', ' ')}", ""]
        lines += [
            "| selector | " + " | ".join(f"{s} @2 / @3 / @5" for s in sets) + " |",
            "|---" * (len(sets) + 1) + "|",
        ]
        for label in dict.fromkeys(row["selector"] for row in rows):
            cells = [_cell(next(r for r in rows if r["selector"] == label and r["set"] == s)) for s in sets]
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += ["## Settings chosen on one half, counted on the other", "", _halves_preamble(), ""]
    keys = list(result["halves"][0]["counts"])
    lines += ["| chosen on | family | chosen | " + " | ".join(keys) + " | total |", "|---" * (len(keys) + 4) + "|"]
    for row in result["halves"]:
        counts = " | ".join(" / ".join(map(str, row["counts"][key])) for key in keys)
        chosen = ", ".join(f"{name} {value}" for name, value in row["chosen"].items() if value is not None)
        lines.append(f"| {row['chosen_on']} | {row['family']} | {chosen} | {counts} | {row['total']} |")
    return "\n".join(lines) + "\n"


def _preamble(result: dict[str, Any]) -> str:
    env = result["environment"]
    return (
        "Questions with all gold passages among the first k picks, with 95 % bootstrap intervals of the share. "
        "all-MiniLM-L6-v2, 200 candidates, 12 sub-queries a question written by a large language model from the "
        "question alone; overlap is measured against the question's own dense top-200, whatever the pool. The multi-"
        "query pools fuse the lists of the question and its sub-queries by reciprocal rank; hybrid: (cosine + 0.3 BM25 "
        "/ the best BM25) / 1.3. Sinkhorn rows: 100 iterations at eps .01, as in the paper. "
        f"Made by `python -m benchmarks.quality` at commit {env['commit']}, JAX {env['jax']}."
    )


def _halves_preamble() -> str:
    grid = "; ".join(f"{name} {list(values)}" for name, values in GRID.items())
    return (
        f"The default's family is the grid {grid}; the prototypes' family is sub-queries as demand points at power 4 "
        "with discount 0, .3, .6, and the mixture on the candidates. The even- or the odd-numbered questions choose "
        "(largest total over the columns), the others are counted."
    )


def _cell(row: dict[str, Any]) -> str:
    counts = " / ".join(str(row["counts"][str(k)]) for k in SHOWN)
    shares = ", ".join("{:.2f}-{:.2f}".format(*row["intervals"][str(k)][1:]) for k in SHOWN)
    return f"{counts} ({shares})"


def main() -> None:
    """Measures and writes both files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the question sets")
    parser.add_argument("--sets", nargs="+", default=["hotpotqa", "musique"])
    parser.add_argument("--out", type=Path, default=Path("bench_results"))
    options = parser.parse_args()
    result = measure([options.data / name for name in options.sets])
    options.out.mkdir(exist_ok=True)
    (options.out / "quality.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    (options.out / "QUALITY.md").write_text(report(result), encoding="utf-8")


if __name__ == "__main__":
    main()
