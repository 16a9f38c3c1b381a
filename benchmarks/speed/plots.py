"""The plots of REPORT.md, from the JSON alone."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")

from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.ticker import NullFormatter, ScalarFormatter  # noqa: E402

from benchmarks.speed.speed_report import PLOTS  # noqa: E402

# Okabe and Ito's colours, told apart by marker as well
STYLES = {
    "converged": {"color": "#0072B2", "marker": "o", "label": "Sinkhorn, converged"},
    "default": {"color": "#009E73", "marker": "s", "label": "preset default"},
    "straightforward": {"color": "#D55E00", "marker": "^", "label": "straightforward program"},
    "algorithm2": {"color": "#E69F00", "marker": "D", "label": "algorithm2"},
}
AXES = {"K": "candidates K", "k": "picks k", "d": "width d", "m": "sub-queries m", "batch": "questions at once"}
LIMIT_MIB = 1024


def draw(result: dict[str, Any], out: Path) -> list[Path]:
    """One PNG for each case that has a plot and was measured."""
    makers = {"scaling": _scaling, "error": _error, "memory": _memory}
    written = []
    for name, make in makers.items():
        if name in result["cases"]:
            figure = make(result["cases"][name])
            written.append(out / PLOTS[name])
            figure.savefig(written[-1], dpi=150, metadata={"Software": None})
            plt.close(figure)
    return written


def _scaling(case: dict[str, Any]):
    groups = case["groups"]
    size = (3.3 * len(groups), 3.6)
    figure, axes = plt.subplots(1, len(groups), figsize=size, layout="constrained", squeeze=False, sharey=True)
    for axis, group in zip(axes[0], groups, strict=True):
        for key in dict.fromkeys(record["key"] for record in group["records"]):
            records = [record for record in group["records"] if record["key"] == key]
            x = [record["params"][group["group"]] for record in records]
            times = [record["per_query_ms"] for record in records]
            middle = [time["median"] for time in times]
            spread = [[t["median"] - t["p10"] for t in times], [t["p90"] - t["median"] for t in times]]
            axis.errorbar(x, middle, spread, capsize=2, markersize=5, linewidth=1.4, **STYLES[key])
        _logarithmic(axis, [record["params"][group["group"]] for record in group["records"]])
        axis.set_xlabel(AXES[group["group"]])
    axes[0][0].set_ylabel("ms a question")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    return figure


def _logarithmic(axis: Axes, values: list[int]) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(sorted(set(values)))
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.tick_params(axis="x", labelsize=8)
    axis.grid(visible=True, which="major", alpha=0.3)


def _error(case: dict[str, Any]):
    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    records = [record for group in case["groups"] for record in group["records"]]
    for key in dict.fromkeys(record["key"] for record in records):
        own = [record for record in records if record["key"] == key]
        x = [record["per_query_ms"]["median"] for record in own]
        for which, line in (("median", "-"), ("worst", ":")):
            y = [max(record["marginal_error"][which], 1e-9) for record in own]
            style = STYLES[key] | {"label": f"{STYLES[key]['label']}, {which}"}
            hollow = "none" if which == "worst" else STYLES[key]["color"]
            axis.plot(x, y, line, markersize=6, linewidth=1.4, markerfacecolor=hollow, **style)
        for record, across in zip(own, x, strict=True):
            if "iterations" in record["params"]:
                at = (across, record["marginal_error"]["worst"])
                axis.annotate(
                    f"{record['params']['iterations']:,}",
                    at,
                    (0, 6),
                    textcoords="offset points",
                    ha="center",
                    fontsize=8,
                )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("ms a question")
    axis.margins(0.08, 0.12)
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_ylabel("L1 marginal error (algorithm2: by iterations)")
    axis.grid(visible=True, alpha=0.3)
    axis.legend(frameon=False, fontsize=8)
    return figure


def _memory(case: dict[str, Any]):
    figure, axis = plt.subplots(figsize=(5, 2.6), layout="constrained")
    for place, row in enumerate(case["peaks"]):
        style = STYLES[row["config"]]
        bar = axis.barh(place, row["peak_above_inputs_mib"], color=style["color"], height=0.6)
        axis.bar_label(bar, fmt="{:,.0f} MiB", padding=3)
    axis.axvline(LIMIT_MIB, color="#000000", linestyle="--", linewidth=1)
    axis.annotate("1 GiB", (LIMIT_MIB, len(case["peaks"]) - 0.3), (5, 0), textcoords="offset points")
    axis.set_yticks(range(len(case["peaks"])), [STYLES[row["config"]]["label"] for row in case["peaks"]])
    axis.set_xlim(0, 1.25 * max(LIMIT_MIB, *(row["peak_above_inputs_mib"] for row in case["peaks"])))
    axis.set_xlabel(f"peak above the inputs of {max(row['batch'] for row in case['peaks']):,} questions, MiB")
    axis.set_ylim(-0.5, len(case["peaks"]) + 0.1)
    return figure
