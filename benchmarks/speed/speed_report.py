"""REPORT.md and its plots from speed.json alone: every number and every conclusion is computed from it."""

from typing import Any

from benchmarks.markdown import table
from benchmarks.speed import CASES
from benchmarks.speed.bars import STEPS_WANTED, Verdict, judge

TITLES = {
    "sinkhorn": "Sinkhorn",
    "facility_location": "Facility location",
    "diversity": "Diversity",
    "scaling": "Scaling",
    "error": "Marginal error",
    "memory": "Memory",
    "ragged": "Pools of unequal size",
}
ABOUT = {
    "sinkhorn": "Ours start from the vectors and give NumPy arrays; the others are given Gram matrix, cosines to the "
    "query and demand for free. The straightforward program is Algorithm 1 as one would first write it in JAX "
    "(`benchmarks/speed/straightforward.py`): 100 iterations, one jit. OTT-JAX and POT run the same greedy loop with "
    "their own solver at a fixed 100 iterations. Those do not converge at epsilon .01, so that converged picks may "
    "differ. The bar for OTT-JAX is held against the transposed problem, its faster form.",
    "facility_location": "Gram matrix and weights are given to every side, on the device or as NumPy arrays; only the "
    "preset default starts from the vectors. apricot compiles its inner loop at every fit: the bar is held against its "
    "default with the compiled functions kept, which the library itself does not do. It ignores weights: its "
    "similarities are scaled by them beforehand, in float64.",
    "diversity": "From the vectors; ours check and normalise them, the loops compute the cosines to the query and go "
    "question by question. pyversity's MMR takes negative cosines for 0 and its DPP weighs relevance by z-scores: its "
    "picks may differ.",
    "scaling": "One axis at a time, the others at K 200, k 5, d 384, m 10. Converged is the paper's preset.",
    "error": "L1 error of a transport marginal, the largest over all steps and candidates of a question.",
    "memory": "One call of `select`, each config in a process of its own; resident memory above what inputs, imports "
    "and backend take. Compilation and results count.",
    "ragged": "Pools of 20 to 500 candidates as one list, against one call for each bucket that it is sorted into. One "
    "program is compiled for each bucket: the first call takes that long.",
}
PLOTS = {"scaling": "speed_scaling.png", "error": "speed_error.png", "memory": "speed_memory.png"}
ALT = {"scaling": "latency by axis", "error": "marginal error against time", "memory": "peak memory"}


def report(result: dict[str, Any]) -> str:
    """The whole page; a case that the JSON lacks is left out."""
    cases = {name: result["cases"][name] for name in CASES if name in result["cases"]}
    parts = [_head(cases), _conclusions(judge(cases))]
    parts += [_section(name, case) for name, case in cases.items()]
    parts.append(_environments(cases))
    return "\n".join(line for part in parts for line in [*part, ""]).rstrip() + "\n"


def _head(cases: dict[str, Any]) -> list[str]:
    lines = [
        "# Speed, memory and marginal error",
        "",
        "240 real questions (HotpotQA and MuSiQue, 120 each) with their dense pools, MiniLM vectors, repeated where a "
        "batch is larger. Times are for one question, in milliseconds: median, 10th and 90th percentile of n calls; "
        "the first call, which compiles, apart. The sides of a table ran in one process in turn, round after round; "
        "ratios are of medians. Made by `python -m benchmarks run` and `python -m benchmarks report`.",
    ]
    quick = [name for name, case in cases.items() if case.get("quick")]
    if quick:
        lines += ["", f"**Quick runs with small sizes, not to be relied on: {', '.join(quick)}.**"]
    return lines


def _conclusions(verdicts: list[Verdict]) -> list[str]:
    measured = [v for v in verdicts if v.worst is not None]
    missed = [v.bar.what for v in measured if not v.met]
    said = f"Of {len(verdicts)} bars, {len(measured)} are measured and {len(measured) - len(missed)} are met"
    said += f"; missed: {'; '.join(missed)}." if missed else "."
    head = ("what", "worst", "bar", "stretch", "verdict", "parts")
    return ["## Bars", "", said, "", *table(head, [_verdict(verdict) for verdict in verdicts])]


def _verdict(verdict: Verdict) -> list[str]:
    bar, sign = verdict.bar, ">=" if verdict.bar.at_least else "<="
    number = lambda value: _number(value, 3) + bar.unit
    return [
        bar.what,
        "-" if verdict.worst is None else number(verdict.worst),
        f"{sign} {number(bar.bar)}",
        "-" if bar.stretch is None else f"{sign} {number(bar.stretch)}",
        verdict.word,
        "; ".join(f"{part} {number(value)}" for part, value in verdict.values.items()) or "-",
    ]


def _section(name: str, case: dict[str, Any]) -> list[str]:
    lines = [f"## {TITLES[name]}", "", ABOUT[name]]
    if name in PLOTS:
        lines += ["", f"![{ALT[name]}]({PLOTS[name]})"]
    if case.get("steps"):
        lines += ["", *_steps(case["steps"])]
    if case.get("peaks"):
        lines += ["", *_peaks(case["peaks"])]
    for group in case.get("groups", []):
        lines += ["", *_group(group)]
    return lines


def _group(group: dict[str, Any]) -> list[str]:
    records = group["records"]
    fastest = min((r["per_query_ms"]["median"] for r in records if "per_query_ms" in r), default=None)
    errors = any("marginal_error" in record for record in records)
    head = ["side", "median", "p10 to p90", "n", "times the fastest", "a call answers", "first call, s"]
    head += ["median error", "worst error"] if errors else []
    lines = [f"### {group['group']}", ""]
    if "about" in group:
        lines += [f"{group['about']}.", ""]
    lines += table(head, [_row(record, fastest, errors) for record in records])
    for record in records:
        if "note" in record:
            lines += ["", f"{record['name']}: {record['note']}."]
    if group.get("agreement"):
        rows = [
            [pair, f"{same['equal_sets']:.1%}", f"{same['equal_order']:.1%}", f"{same['questions']:,}"]
            for pair, same in group["agreement"].items()
        ]
        lines += ["", *table(("picks", "equal sets", "in the same order", "questions"), rows)]
    return lines


def _row(record: dict[str, Any], fastest: float | None, errors: bool) -> list[str]:
    if "error" in record:
        return [record["name"], f"not run: {record['error']}", *["-"] * (7 if errors else 5)]
    time, params = record["per_query_ms"], record["params"]
    cells = [
        record["name"],
        _number(time["median"]),
        f"{_number(time['p10'])} to {_number(time['p90'])}",
        f"{time['n']}",
        _number(time["median"] / fastest, 3) if fastest else "-",
        f"{record['queries_a_call']:,}"
        + ("" if params["batch"] > 1 or record["queries_a_call"] == 1 else ", in a loop"),
        f"{record['first_call_s']:.3g}",
    ]
    if errors:
        cells += [f"{record['marginal_error'][which]:.2g}" for which in ("median", "worst")]
    return cells


def _number(value: float, digits: int = 4) -> str:
    return f"{value:.{digits}g}" if value < 1000 else f"{value:,.0f}"


def _steps(rows: list[dict[str, Any]]) -> list[str]:
    total = sum(row["steps"] for row in rows)
    said = f"{total:,} real steps" + ("" if total >= STEPS_WANTED else f", fewer than {STEPS_WANTED:,}: no verdict")
    head = ("pool", "demand", "k", "questions", "steps", "median", "worst", "not converged")
    cells = [
        [row["pool"], row["demand"], str(row["k"]), str(row["questions"]), f"{row['steps']:,}"]
        + [f"{row['median']:.2g}", f"{row['worst']:.2g}", f"{row['not_converged_share']:.1%}"]
        for row in rows
    ]
    return [f"Converged: {said}.", "", *table(head, cells)]


def _peaks(rows: list[dict[str, Any]]) -> list[str]:
    head = ("config", "questions", "inputs, MiB", "peak above them, MiB", "seconds")
    cells = [
        [row["config"], f"{row['batch']:,} ({row['dtype']})", f"{row['inputs_mib']:,}"]
        + [f"{row['peak_above_inputs_mib']:,}", f"{row['seconds']:g}"]
        for row in rows
    ]
    return table(head, cells)


def _environments(cases: dict[str, Any]) -> list[str]:
    head = ("case", "commit", "UTC", "seconds", "rounds", "device", "load before and after")
    rows, machines = [], []
    for name, case in cases.items():
        env = case["environment"]
        dirty = " with uncommitted changes" if env["uncommitted_changes"] else ""
        load = f"{env['load_average_at_start']:g}, {case['load_average_at_end']:g}"
        device = f"{env['device']}, {env['processor']}, {env['cores']} cores"
        rows.append([name, env["commit"] + dirty, env["utc"], str(case["seconds"]), str(case["rounds"]), device, load])
        versions = {"Python": env["python"], "jax": env["jax"]} | env["packages"]
        said = ", ".join(f"{package} {version or 'not installed'}" for package, version in versions.items())
        machines.append(said + "".join(f"; {key}={value}" for key, value in env["threads"].items()))
    distinct = list(dict.fromkeys(machines))
    if len(distinct) == 1:
        return ["## Where and when", "", *table(head, rows), "", distinct[0] + "."]
    said = [f"{name}: {machine}." for name, machine in zip(cases, machines, strict=True)]
    return ["## Where and when", "", *table(head, rows), *(line for each in said for line in ("", each))]
