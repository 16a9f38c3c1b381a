"""The section on settings chosen on some questions and counted on others."""

from typing import Any

from benchmarks.markdown import missing, setting_text, slashes, table


def section(result: dict[str, Any]) -> list[str]:
    """Halves, folds, sets and random halves."""
    found, targets = result["crossfit"], result["settings"]["targets"]
    columns = found["columns"]
    wanted = [targets[kind][name] for name, kind in (column.split(" ") for column in columns)]
    return [
        "## Settings chosen on some questions, counted on others",
        "",
        _families(found),
        "",
        *_halves(found, columns),
        "",
        *_out_of_sample(found, columns, wanted),
        "",
        *_sets(found),
        "",
        *_random(found),
    ]


def _families(found: dict[str, Any]) -> str:
    grid = "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in found["grid"].items())
    rivals = "; ".join(
        f"{family} with " + ", ".join(f"{name} {' or '.join(map(str, values))}" for name, values in fields.items())
        for family, fields in found["prototypes"].items()
    )
    sizes = list(found["settings"].values())
    return (
        f"The default's family has {sizes[0]} settings, every combination of {grid}. The prototypes' family has "
        f"{sizes[1]}: {rivals}. In each the largest total over sets, pools and k on the choosing questions is taken, "
        "ties to the more neutral. The grid holds the preset's neighbours but was laid out from neutral values; the "
        "*form* of the objective was found on all the questions, which no split can undo. The preset's row is in "
        "sample throughout."
    )


def _label(family: str) -> str:
    return "preset default (in sample)" if family == "preset default" else f"{family} family"


def _halves(found: dict[str, Any], columns: list[str]) -> list[str]:
    rows = []
    for way in ("even to odd", "odd to even"):
        for half in found["halves"]:
            counts = [slashes(c) for c in half[way]["counts"]]
            rows.append([way, _label(half["family"]), _setting(half[way]["setting"]), *counts, str(half[way]["total"])])
    return table(["chosen on, counted on", "family", "chosen", *columns, "total"], rows)


def _out_of_sample(found: dict[str, Any], columns: list[str], wanted: list) -> list[str]:
    rows, said = [["target", *map(slashes, wanted), str(sum(map(sum, wanted))), ""]], []
    ways = {"two halves": {half["family"]: half["sum"] for half in found["halves"]}, "ten folds": found["folds"]}
    for way, families in ways.items():
        for family, counts in families.items():
            if family == "preset default" and way != "two halves":
                continue
            name = _label(family) if family == "preset default" else f"{_label(family)}, {way}"
            short = sum(missing(c, t) for c, t in zip(counts, wanted, strict=True))
            rows.append([name, *map(slashes, counts), str(sum(map(sum, counts))), str(short)])
            if family == "default's":
                said.append(f"{way}: {_missed(counts, wanted, columns)}")
    return [
        "Every question counted once, under settings that it did not choose:",
        "",
        *table(["family", *columns, "total", "missing to targets"], rows),
        "",
        f"Missed out of sample by the default's family, {'; '.join(said)}.",
    ]


def _missed(counts: list, wanted: list, columns: list[str]) -> str:
    texts = [
        f"{column} @{k} ({have:g} of {want})"
        for column, row, target in zip(columns, counts, wanted, strict=True)
        for k, have, want in zip((2, 3, 5), row, target, strict=True)
        if have < want
    ]
    return f"{len(texts)} of {3 * len(columns)} targets" + (f" - {', '.join(texts)}" if texts else "")


def _sets(found: dict[str, Any]) -> list[str]:
    rows = [
        [f"{r['chosen_on']} to {r['counted_on']}", _label(r["family"]), _setting(r["setting"])]
        + [" and ".join(map(slashes, r["counts"])), str(r["total"])]
        for r in found["sets"]
    ]
    head = ["chosen on, counted on", "family", "chosen", "counts, dense and hybrid multi-query", "total"]
    return ["Chosen on one set, counted on the other:", "", *table(head, rows), "", _sets_verdict(found["sets"])]


def _sets_verdict(rows: list[dict[str, Any]]) -> str:
    total = {(r["chosen_on"], r["counted_on"], r["family"]): r["total"] for r in rows}
    said = []
    for on, other in dict.fromkeys((on, other) for on, other, _ in total):
        ours, theirs = total[on, other, "default's"], total[on, other, "prototypes'"]
        word = "level with" if ours == theirs else f"{abs(ours - theirs)} {'ahead of' if ours > theirs else 'behind'}"
        said.append(f"from {on} to {other} it is {word} the prototypes' ({ours} and {theirs})")
    return f"The default's family across sets: {', '.join(said)}."


def _random(found: dict[str, Any]) -> list[str]:
    drawn = found["random"]
    rows = [
        [_label(family), f"{t['mean']:g} ({t['low']:g} to {t['high']:g})", *map(slashes, drawn["means"][family])]
        for family, t in drawn["totals"].items()
    ]
    ways = [
        f"minus {'the ' if family != 'preset default' else ''}{_label(family)} {d['mean']:+g} ({d['low']:g} to "
        f"{d['high']:g}; above 0 in {100 * d['above_0']:.0f} % of the splits)"
        for family, d in drawn["differences"].items()
    ]
    return [
        f"{drawn['splits']} random halves, each choosing for the other; mean cross-fitted total and 2.5 to 97.5 "
        "percentile over the splits (the splits share their questions: this is the spread of the choice, not of new "
        "questions):",
        "",
        *table(["family", "total", *found["columns"]], rows),
        "",
        f"Paired difference of the totals, the default's family {', and '.join(ways)}.",
    ]


def _setting(values: dict[str, Any]) -> str:
    if values["temperature"] is None:
        values = {name: value for name, value in values.items() if name != "temperature"}
        return "points, " + setting_text(values)
    return "mixture, " + setting_text({name: values[name] for name in ("temperature", "power", "discount", "weights")})
