"""The sections on Sinkhorn, on 60 of the questions, on robustness and on the decomposer."""

from typing import Any

from benchmarks.markdown import missing, slashes, table


def sinkhorn(result: dict[str, Any]) -> list[str]:
    """Rows, and the verdict from the best of them."""
    rows, targets = result["sinkhorn"], result["settings"]["targets"]
    columns = list(rows[0]["counts"])
    wanted = {column: targets[column.split(" ")[1]][column.split(" ")[0]] for column in columns}
    preset = {f"{r['set']} {r['pool']}": r["counts"] for r in result["rows"] if r["selector"] == "preset default"}
    lines = [["target", *(slashes(wanted[c]) for c in columns), "", str(sum(sum(wanted[c]) for c in columns)), ""]]
    if preset:
        short = sum(missing(preset[c], wanted[c]) for c in columns)
        lines.append(_sinkhorn_row("preset default, f.l.", preset, columns, "", short))
    for row in rows:
        worst = f"{max(e[0] for e in row['errors'].values()):.1e}, {max(e[1] for e in row['errors'].values()):.1e}"
        lines.append(_sinkhorn_row(row["selector"], row["counts"], columns, worst, row["missing"]))
    head = ["transport from", *columns, "marginal error: median, largest", "total", "missing"]
    return [
        "## Sinkhorn on the same demand",
        "",
        'Uniform E_S, first pick from the demand, a loss never gated (gate_losses False). "100 iterations" is '
        'Algorithm 2 as it is; "converged" solves every transport problem (Newton\'s method on the semi-dual). '
        "Marginal error: the largest over steps and candidates of a question, then median and largest over the "
        'questions of the worst column. "saturated" and the sub-query rows take the default\'s weights; those rows '
        "move the default's own demand, mass w_j max_i s_ji at cost 1 - s_ji / max_i s_ji without a gate, which the "
        "package does not offer; their eps 1.4 was chosen on these questions.",
        "",
        *table(head, lines),
        "",
        _verdict(rows, columns, wanted),
        *_earlier(rows),
    ]


def _sinkhorn_row(label, counts, columns, error, short) -> list[str]:
    return [label, *(slashes(counts[c]) for c in columns), error, str(sum(sum(counts[c]) for c in columns)), str(short)]


def _verdict(rows: list[dict[str, Any]], columns: list[str], wanted: dict[str, Any]) -> str:
    said = []
    for kind, text in (
        ("candidates,", "On the candidates' demand, as the package offers it,"),
        ("candidates with", "With another cost"),
        ("sub-queries", "On the sub-queries"),
    ):
        of_kind = [row for row in rows if row["selector"].startswith(kind)]
        if of_kind:
            best = min(of_kind, key=lambda row: row["missing"])
            by_column = [f"{missing(best['counts'][c], wanted[c])} on {c}" for c in columns]
            short = f"is {best['missing']} questions short of the targets ({', '.join(by_column)})"
            said.append(
                f"{text} the best row, {best['selector']}, {short if best['missing'] else 'reaches every target'}."
            )
    reached = any(row["missing"] == 0 for row in rows if row["selector"].startswith("candidates,"))
    offered = (
        "A Sinkhorn row that the package offers reaches"
        if reached
        else "No Sinkhorn row that the package offers reaches"
    )
    return f"Verdict. {' '.join(said)} {offered} every target."


def _earlier(rows: list[dict[str, Any]]) -> list[str]:
    pairs = [
        f"{row['selector']}, {c}: {slashes(row['counts'][c])}, earlier {slashes(told)}"
        for row in rows
        for c, told in row.get("published", {}).items()
        if c in row["counts"]
    ]
    return ["", f"Beside an earlier measurement: {'; '.join(pairs)}."] if pairs else []


def sample(result: dict[str, Any]) -> list[str]:
    """Shares on all questions beside those of 60 of them."""
    rows = result["sample"]["rows"]
    sets = list(rows[0]["counts"])
    n = {row["set"]: row["questions"] for row in result.get("rows", [])}
    lines, inside, cells = [], 0, 0
    for row in rows:
        line = [row["selector"]]
        for name in sets:
            told, ranges = row["published"][name], row["of_60"][name]
            fits = [low <= share <= high for share, (low, high) in zip(told, ranges, strict=True)]
            inside, cells = inside + sum(fits), cells + len(fits)
            ours = [count / n.get(name, 120) for count in row["counts"][name]]
            marks = " / ".join(f"{share:.3f}{'' if fit else ' *'}" for share, fit in zip(told, fits, strict=True))
            line += [" / ".join(f"{share:.3f}" for share in ours), marks]
        lines.append(line)
    head = [
        "demand, selector",
        *(word for name in sets for word in (f"{name} @2 / @3 / @5, all", "earlier, 60 of them")),
    ]
    halves = result["sample"]["cosine_of_halves"]
    shown = "; ".join(f"{part} {slashes(shares[sets[0]])}" for part, shares in halves.items())
    told = rows[0]["published"][sets[0]]
    matching = [part for part, shares in halves.items() if all(shares[s] == rows[0]["published"][s] for s in sets)]
    found = f"The {', '.join(matching)} half gives it" if matching else "None of them gives it"
    return [
        "## Rows that were measured earlier on 60 of the questions (dense pool)",
        "",
        f"Which 60 is not recorded. Its cosine row is {slashes(told)} on {sets[0]}; the plain halves have: {shown}. "
        f"{found}. So the shares of all questions stand beside the earlier ones; * marks an earlier share outside the "
        f"95 % range of random choices of 60 from our counts: {cells - inside} of {cells}. Paper's P_Q: alpha = beta "
        "= 1, overlap x novelty weights, no max-min step, first pick by cosine unless said. Mixture rows: alpha = 0. "
        "Sinkhorn at eps .01 with the paper's gate.",
        "",
        *table(head, lines),
    ]


def drift(result: dict[str, Any]) -> list[str]:
    """Foreign sub-queries."""
    settings, rows = result["settings"], result["drift"]
    sets = list(dict.fromkeys(row["set"] for row in rows))
    at = {(row["selector"], row["set"]): row for row in rows}
    lines = []
    for label in dict.fromkeys(row["selector"] for row in rows):
        line = [label]
        for name in sets:
            row = at[label, name]
            change = [round(a - b, 2) for a, b in zip(row["mean"], row["before"], strict=True)]
            spread = f"{row['low'][-1] - row['before'][-1]:+d} to {row['high'][-1] - row['before'][-1]:+d}"
            points = f"{100 * change[-1] / row['questions']:+.1f}"
            points += f" ({row['published']:+d})" if "published" in row else ""
            line += [slashes(row["before"]), " / ".join(f"{c:+.2f}" for c in change), spread, points]
        lines.append(line)
    head = [
        "selector",
        *(w for s in sets for w in (f"{s} before", "mean change @2 / @3 / @5", "draws @5", "points @5 (earlier)")),
    ]
    return [
        "## Sub-queries of another question mixed in",
        "",
        f"{settings['foreign']} sub-queries of one other question join the 12; dense pool; questions lost or won of "
        f"those counted, mean over {settings['drift_draws']} random draws and the least and the most at k = 5.",
        "",
        *table(head, lines),
    ]


def subsets(result: dict[str, Any]) -> list[str]:
    """Fewer sub-queries."""
    rows = result["subsets"]
    at = {(r["selector"], r["kept"], f"{r['set']} {r['pool']}"): r for r in rows}
    columns, kept = list(dict.fromkeys(k[2] for k in at)), list(dict.fromkeys(k[1] for k in at))
    lines = []
    for size in kept:
        for label in dict.fromkeys(k[0] for k in at):
            means = [at[label, size, c]["mean"] for c in columns]
            total = sum(map(sum, means))
            lines.append([str(size), label, *(" / ".join(f"{m:.1f}" for m in each) for each in means), f"{total:.1f}"])
    return [
        "## Random subsets of the 12 sub-queries",
        "",
        f"Mean counts over {result['settings']['subset_draws']} draws; a fused pool is fused from the kept lists "
        "alone.",
        "",
        *table(["kept", "selector", *columns, "total"], lines),
        "",
        _best_of_subsets(lines, kept),
    ]


def _best_of_subsets(lines: list[list[str]], kept: list[int]) -> str:
    said = []
    for size in kept:
        ranked = sorted((float(line[-1]), line[1]) for line in lines if line[0] == str(size))
        said.append(f"with {size} {ranked[-1][1]} ({ranked[-1][0]:g}), then {ranked[-2][1]} ({ranked[-2][0]:g})")
    return f"Largest total: {'; '.join(said)}."


def decomposer(result: dict[str, Any]) -> list[str]:
    """Without a language model."""
    head = ["## Without a language model", ""]
    if not result["decomposer"]:
        return [*head, "Not measured: the encoder's weights were not to be had."]
    lines = [
        [r["set"], r["selector"], f"{r['subqueries']:g}", slashes(r["counts"]), slashes(r["target"])]
        + [str(missing(r["counts"], r["target"]))]
        for r in result["decomposer"]
        if "target" in r
    ]
    return [
        *head,
        "Sub-queries from the question's own words (`Decomposer`) through `GeoRAG`, hybrid multi-query pool, MiniLM.",
        "",
        *table(["set", "selector", "sub-queries a question", "counts", "target", "missing"], lines),
    ]


SECTIONS = {
    "sinkhorn": sinkhorn,
    "drift": drift,
    "subsets": subsets,
    "decomposer": decomposer,
    "sample": sample,
}
