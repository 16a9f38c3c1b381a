"""Speed, memory and marginal error: ``python -m benchmarks run --data DIR``, then ``python -m benchmarks report``.

DIR holds the folders hotpotqa and musique, as for ``benchmarks.quality``. ``run`` writes speed.json after every case
and leaves those that it does not run as they are; ``report`` makes REPORT.md and its plots from that file alone.
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.speed import CASES, STORED

ROUNDS, LEAST_ROUNDS, QUICK_ROUNDS = 5, 5, 2


def main(words: list[str] | None = None) -> int:
    """0, or 1 where a case failed or there is nothing to report."""
    options = _options(words)
    return _run(options) if options.command == "run" else _report(options.out)


def _options(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure and write speed.json")
    run.add_argument("--data", type=Path, required=True, help="folder with the question sets")
    run.add_argument("--only", nargs="+", choices=CASES, default=CASES, metavar="CASE", help=f"of {', '.join(CASES)}")
    run.add_argument("--quick", action="store_true", help="small sizes, to see that everything runs")
    run.add_argument("--rounds", type=int, help=f"at least {LEAST_ROUNDS}, the default; {QUICK_ROUNDS} with --quick")
    report = commands.add_parser("report", help="write REPORT.md and its plots from speed.json")
    for each in (run, report):
        each.add_argument("--out", type=Path, default=Path("bench_results"))
    options = parser.parse_args(words)
    if options.command == "run":
        options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
        if options.rounds < (1 if options.quick else LEAST_ROUNDS):
            parser.error(f"--rounds: at least {LEAST_ROUNDS}, got {options.rounds}")
    return options


def _run(options: argparse.Namespace) -> int:
    from benchmarks.speed.questions import Plan
    from benchmarks.speed.runner import run_cases

    failed = run_cases(options.only, Plan(options.data, options.rounds, options.quick), options.out)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _report(out: Path) -> int:
    from benchmarks.speed.plots import draw
    from benchmarks.speed.speed_report import report

    stored = out / STORED
    if not stored.exists():
        print(f"{stored} is not there: python -m benchmarks run makes it", file=sys.stderr)
        return 1
    result = json.loads(stored.read_text(encoding="utf-8"))
    (out / "REPORT.md").write_text(report(result), encoding="utf-8")
    draw(result, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
