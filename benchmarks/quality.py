"""Evidence coverage on real question sets: ``python -m benchmarks.quality --data DIR``.

DIR holds folders with corpus.jsonl, queries.jsonl, subqueries.jsonl and stored MiniLM vectors. Counts, for every
selector and pool, the questions with all gold passages among the first k picks; chooses settings on some questions and
counts on others; tries Sinkhorn on the same demand; mixes in foreign sub-queries and leaves some out. Writes
quality.json and, from it alone, QUALITY.md.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import crossfit, decomposer, robustness, rows, sinkhorn
from benchmarks.data import POOLS, SIZE, load, make_pool
from benchmarks.environment import environment
from benchmarks.published import TARGETS
from benchmarks.report import report


def measure(folders: list[Path], only: list[str] | None = None) -> dict[str, Any]:
    """The sections, or ``only`` some of them, ready for JSON."""
    sets = [load(folder) for folder in folders]
    pools = {(each.name, kind): make_pool(each, kind) for each in sets for kind in POOLS}
    targeted = {key: pool for key, pool in pools.items() if key[1] in TARGETS}
    sections = {
        "rows": lambda: rows.main_rows(pools),
        "sample": lambda: rows.sample_rows(pools, sinkhorn.picks),
        "crossfit": lambda: crossfit.measure(targeted),
        "sinkhorn": lambda: sinkhorn.rows(pools),
        "drift": lambda: [row for each in sets for row in robustness.drift(each, pools[each.name, "dense"])],
        "subsets": lambda: [
            row for each in sets for kind in TARGETS for row in robustness.subsets(each, pools[each.name, kind], kind)
        ],
        "decomposer": lambda: decomposer.rows(sets),
    }
    configs = {label: rows.settings(config) for label, config in rows.CONFIGS.items()}
    result: dict[str, Any] = {"environment": environment(), "settings": {"candidates": SIZE, "k": rows.K}}
    result["settings"] |= {"configs": configs, "preset_default": asdict(rows.DEFAULT)}
    result["settings"] |= {"drift_draws": robustness.DRIFT_DRAWS, "subset_draws": robustness.SUBSET_DRAWS}
    result["settings"] |= {"foreign": robustness.FOREIGN, "targets": TARGETS, "seconds": {}}
    for name in only or sections:
        start = time.perf_counter()
        result[name] = sections[name]()
        result["settings"]["seconds"][name] = round(time.perf_counter() - start)
        print(f"{name}: {result['settings']['seconds'][name]} s", file=sys.stderr)
    return result


def main() -> None:
    """Measures and writes both files; or writes the report anew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="folder with the question sets")
    source.add_argument("--report-only", action="store_true", help="QUALITY.md from the quality.json that is there")
    parser.add_argument("--sets", nargs="+", default=["hotpotqa", "musique"])
    parser.add_argument(
        "--only", nargs="+", metavar="SECTION", help="measure these anew, keep the rest of quality.json"
    )
    parser.add_argument("--out", type=Path, default=Path("bench_results"))
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    stored = options.out / "quality.json"
    if options.report_only:
        result = json.loads(stored.read_text(encoding="utf-8"))
    else:
        result = measure([options.data / name for name in options.sets], options.only)
        if options.only:
            result = _merged(json.loads(stored.read_text(encoding="utf-8")), result)
        stored.write_text(_compact(result) + "\n", encoding="utf-8")
        result = json.loads(stored.read_text(encoding="utf-8"))
    (options.out / "QUALITY.md").write_text(report(result), encoding="utf-8")


def _merged(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Sections measured anew in the place of those before; the order stays."""
    seconds = before["settings"]["seconds"] | after["settings"]["seconds"]
    merged = before | after
    merged["settings"] = after["settings"] | {"seconds": seconds}
    return merged


def _compact(result: dict[str, Any]) -> str:
    """JSON with one line an entry."""
    parts = []
    for name, section in result.items():
        if isinstance(section, list):
            body = "[\n  " + ",\n  ".join(json.dumps(row) for row in section) + "\n ]"
        elif isinstance(section, dict):
            body = "{\n  " + ",\n  ".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in section.items()) + "\n }"
        else:
            body = json.dumps(section)
        parts.append(f" {json.dumps(name)}: {body}")
    return "{\n" + ",\n".join(parts) + "\n}"


if __name__ == "__main__":
    main()
