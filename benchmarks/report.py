"""QUALITY.md from quality.json alone: every number and every conclusion is computed from it."""

from typing import Any

from benchmarks import report_crossfit, report_more
from benchmarks.markdown import missing, number_list, setting_text, slashes, table

PRESET = "preset default"
ABLATION = "default with"


def report(result: dict[str, Any]) -> str:
    """The whole page; a section that the JSON lacks is left out."""
    parts = [_head(result)]
    if result.get("rows"):
        parts += [_targets(result), _ablations(result), *_pools(result), _reproduced(result)]
    if result.get("crossfit"):
        parts.append(report_crossfit.section(result))
    for name, section in report_more.SECTIONS.items():
        if name in result:
            parts.append(section(result))
    if result.get("settings", {}).get("configs"):
        parts.append(_settings(result))
    return "\n".join(line for part in parts for line in [*part, ""]).rstrip() + "\n"


def _head(result: dict[str, Any]) -> list[str]:
    env, settings = result["environment"], result["settings"]
    seconds = settings.get("seconds", {})
    return [
        "# Evidence coverage",
        "",
        "Counts are questions with all gold passages among the first 2 / 3 / 5 picks, in brackets the 95 % bootstrap "
        f"interval of the share. all-MiniLM-L6-v2 vectors, {settings['candidates']} candidates, 12 sub-queries a "
        "question written by a large language model from the question alone; overlap is measured against the "
        "question's own dense list, whatever the pool. Dense: that list. Multi-query: reciprocal-rank fusion of the "
        "lists of the question and its sub-queries. Hybrid: similarity (cosine + 0.3 BM25 / the best BM25) / 1.3, "
        "for lists and affinity. f.l. is facility location; points means sub-queries as demand points, mixture .02 "
        "the candidates under a softmax of that temperature.",
        "",
        "Made by `python -m benchmarks.quality` at commit "
        f"{env.get('commit')}{' with uncommitted changes' if env.get('uncommitted_changes') else ''}, JAX "
        f"{env.get('jax')}, {env.get('cores')} cores, {sum(seconds.values())} s.",
    ]


def _sets(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["set"] for row in rows))


def _columns(result: dict[str, Any]) -> list[tuple[str, str, list[int]]]:
    """Pool, set and target of the columns that have one and were measured."""
    have = {(row["pool"], row["set"]) for row in result["rows"]}
    targets = result["settings"].get("targets", {})
    return [(p, s, t) for p, sets in targets.items() for s, t in sets.items() if (p, s) in have]


def _counts(result: dict[str, Any], label: str) -> dict[tuple[str, str], list[int]]:
    return {(row["pool"], row["set"]): row["counts"] for row in result["rows"] if row["selector"] == label}


def _targets(result: dict[str, Any]) -> list[str]:
    counts, columns = _counts(result, PRESET), _columns(result)
    if not counts or not columns:
        return []
    short = sum(missing(counts[p, s], t) for p, s, t in columns)
    exact = [
        f"{s} {p.replace('_', ' ')} @{k}"
        for p, s, t in columns
        for k, have, want in zip((2, 3, 5), counts[p, s], t, strict=True)
        if have == want
    ]
    lines = ["## The default against its targets, in sample", ""]
    lines += table(
        ["column", "target", "preset default (in sample)", "missing"],
        [[f"{s} {p}", slashes(t), slashes(counts[p, s]), str(missing(counts[p, s], t))] for p, s, t in columns],
    )
    verdict = "Every target is reached" if short == 0 else f"Missing to the targets: {short}"
    return [
        *lines,
        "",
        f"{verdict}; by settings that were found on these very questions. Met exactly, without one question to spare: "
        f"{', '.join(exact) or 'none'}. What the settings do on questions that did not choose them follows below.",
    ]


def _ablations(result: dict[str, Any]) -> list[str]:
    columns = _columns(result)
    labels = dict.fromkeys(row["selector"] for row in result["rows"])
    labels = [label for label in labels if label == PRESET or label.startswith(ABLATION)]
    if len(labels) < 2 or not columns:
        return []
    rows = []
    for label in [PRESET, *(each for each in labels if each != PRESET)]:
        counts = _counts(result, label)
        total, short = (
            sum(sum(counts[p, s]) for p, s, _ in columns),
            sum(missing(counts[p, s], t) for p, s, t in columns),
        )
        rows.append([label, *(slashes(counts[p, s]) for p, s, _ in columns), str(total), str(short)])
    head = ["selector", *(f"{s} {p}" for p, s, _ in columns), "total", "missing to targets"]
    return ["## One term of the default changed at a time, in sample", "", *table(head, rows)]


def _pools(result: dict[str, Any]) -> list[list[str]]:
    return [_pool(result, kind) for kind in dict.fromkeys(row["pool"] for row in result["rows"])]


def _pool(result: dict[str, Any], kind: str) -> list[str]:
    rows = [row for row in result["rows"] if row["pool"] == kind]
    at, sets = {(row["selector"], row["set"]): row for row in rows}, _sets(rows)
    lines = []
    for label in dict.fromkeys(row["selector"] for row in rows):
        cells = [label]
        for name in sets:
            row = at[label, name]
            shares = ", ".join(f"{low:.2f}-{high:.2f}" for low, high in row["intervals"])
            cells += [f"{slashes(row['counts'])} ({shares})", slashes(row["published"]) if "published" in row else ""]
        lines.append(cells)
    head = ["selector", *(word for name in sets for word in (f"{name} @2 / @3 / @5", "earlier"))]
    return [f"## Pool: {kind.replace('_', ' ')}", "", *table(head, lines)]


def _reproduced(result: dict[str, Any]) -> list[str]:
    cells, differ = 0, []
    for row in result["rows"]:
        for k, ours, told in zip((2, 3, 5), row["counts"], row.get("published", [None] * 3), strict=True):
            cells += told is not None
            if told is not None and ours != told:
                differ.append(f"{row['selector']}, {row['set']} {row['pool']} @{k}: {ours}, earlier {told}")
    if not cells:
        return []
    rest = f"; {number_list(differ)}" if differ else ""
    return [
        "## Earlier figures",
        "",
        f'The columns "earlier" are an earlier, independent measurement of the same rows. {cells - len(differ)} of '
        f"its {cells} counts are reproduced exactly{rest}.",
    ]


def _settings(result: dict[str, Any]) -> list[str]:
    rows = [[label, setting_text(values)] for label, values in result["settings"]["configs"].items()]
    return ["## Settings of the rows", "", *table(["selector", "settings"], rows)]
