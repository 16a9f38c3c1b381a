"""The speed benchmark's own pieces: its clockwork with sides that only pretend, its report from a small dict."""

import json

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.speed import questions, rival_sets, runner
from benchmarks.speed.bars import BARS, judge
from benchmarks.speed.speed_report import report
from benchmarks.speed.timing import Side, absent, measure


class Clock:
    """Time passes only in ``work``."""

    def __init__(self):
        self.now, self.order = 0.0, []

    def __call__(self):
        return self.now

    def work(self, name, *seconds):
        def answer(call):
            self.order.append((name, call))
            self.now += seconds[min(call, len(seconds) - 1)]
            return np.zeros(1)

        return answer


def record(key, milliseconds, **params):
    time = {"median": milliseconds, "p10": milliseconds, "p90": milliseconds, "n": 5}
    sizes = {"K": 200, "k": 5, "d": 384, "m": 10, "batch": 1} | params
    return {"key": key, "name": f"side {key}", "params": sizes, "queries_a_call": 1, "first_call_s": 1.5} | {
        "per_query_ms": time
    }


@pytest.fixture
def stored():
    environment = {"commit": "abc", "uncommitted_changes": True, "utc": "2026-01-01T00:00:00+00:00", "device": "cpu"}
    environment |= {"processor": "one", "cores": 2, "python": "3", "jax": "1", "load_average_at_start": 0.5}
    environment |= {"threads": {}, "packages": {"numpy": "2", "ott-jax": None}}
    case = {"environment": environment, "quick": False, "rounds": 5, "seconds": 7, "load_average_at_end": 1.0}
    same = {"questions": 4, "equal_sets": 1.0, "equal_order": 0.75}
    sides = [record("straightforward", 800), record("converged_batch", 4, batch=256), record("algorithm2_batch", 200)]
    sinkhorn = [
        {"group": "one", "records": [*sides, absent("ott", "OTT-JAX", ImportError("no ott"))]}
        | {"agreement": {"algorithm2, straightforward": same}},
        {"group": "two", "records": [record("straightforward", 800), record("converged_batch", 8, batch=256)]},
    ]
    axis = [record("converged", 4), record("converged", 20, K=500), record("straightforward", 8000, K=500)]
    row = {"pool": "dense", "demand": "d", "k": 8, "questions": 9, "median": 1e-7, "not_converged_share": 0.0}
    error = {"steps": [row | {"steps": 6000, "worst": 2e-6}]} | {
        "groups": [
            {"group": "against time", "about": "About it"}
            | {"records": [record("algorithm2", 4, iterations=10) | {"marginal_error": {"median": 0.1, "worst": 0.2}}]}
        ]
    }
    peak = {"config": "default", "batch": 10_000, "dtype": "float16", "inputs_mib": 1500, "seconds": 9.0}
    return {
        "cases": {
            "sinkhorn": case | {"groups": sinkhorn},
            "scaling": case | {"groups": [{"group": "K", "records": axis}]},
            "error": case | error,
            "memory": case | {"quick": True, "peaks": [peak | {"peak_above_inputs_mib": 2000.0}]},
        }
    }


def test_sides_take_turns_and_the_first_call_is_apart():
    clock = Clock()
    sides = [
        Side("slow", "slow", clock.work("slow", 9, 1, 2, 3), {"K": 2}, queries=2),
        Side("part", "part", clock.work("part", 1, 0.5), {}, calls=2, share=0.25, note="a part"),
    ]
    slow, part = measure(sides, 3, clock)
    assert clock.order == [
        *[("slow", 0), ("part", 0)],
        *[("slow", 1), ("part", 1), ("part", 2)],
        *[("part", 3), ("part", 4), ("slow", 2)],
        *[("slow", 3), ("part", 5), ("part", 6)],
    ]
    assert slow["per_query_ms"] == {"median": 1000, "p10": 600, "p90": 1400, "n": 3}
    assert (slow["first_call_s"], slow["compile_s"], slow["rounds"]) == (9, 7, 3)
    assert part["per_query_ms"] == {"median": 2000, "p10": 2000, "p90": 2000, "n": 6}
    assert (part["share_of_work_timed"], part["note"]) == (0.25, "a part")


def test_bars_are_judged_by_the_worst_part(stored):
    verdicts = {verdict.bar.what: verdict for verdict in judge(stored["cases"])}
    assert len(verdicts) == len(BARS)
    said = lambda what: (verdicts[what].worst, verdicts[what].word)
    assert said("converged in a batch, against the straightforward program") == (100, "met")
    assert said("algorithm2 in a batch, against the straightforward program") == (4, "missed")
    assert said("converged in a batch, against OTT-JAX") == (None, "not measured")
    assert said("converged at K = 500, against itself at K = 200") == (5, "met")
    assert said("converged at K = 500, against the straightforward program there") == (400, "met")
    assert said("peak memory of 10,000 questions above the inputs") == (2000, "missed")
    assert said("worst marginal error over 5,000 real steps or more") == (2e-6, "met")
    stored["cases"]["memory"]["peaks"][0]["peak_above_inputs_mib"] = 299
    stored["cases"]["error"]["steps"][0]["steps"] = 4999
    words = [verdict.word for verdict in judge(stored["cases"])]
    assert words[-2:] == ["met, stretch too", "not measured"]


def test_an_error_that_is_no_number_misses_the_bar(stored):
    stored["cases"]["error"]["steps"][0]["worst"] = float("nan")
    assert judge(stored["cases"])[-1].word == "missed"


def test_report_from_a_small_dict(stored):
    text = report(json.loads(runner.layout(stored)))
    for said in (
        "Of 14 bars, 7 are measured and 5 are met; missed: algorithm2 in a batch, against the straightforward program; "
        "peak memory of 10,000 questions above the inputs.",
        "| 100x | >= 80x | >= 250x | met | one 200x; two 100x |",
        "| 2,000 MiB | <= 1,024 MiB | <= 300 MiB | missed | default 2,000 MiB |",
        "| OTT-JAX | not run: ImportError: no ott |",
        "not to be relied on: memory",
        "| algorithm2, straightforward | 100.0% | 75.0% | 4 |",
        "| side algorithm2 | 4 | 4 to 4 | 5 | 1 | 1 | 1.5 | 0.1 | 0.2 |",
        "6,000 real steps",
        "abc with uncommitted changes",
        "ott-jax not installed",
    ):
        assert said in text
    assert "Facility location" not in text.split("## Sinkhorn")[1]


def test_report_command(stored, tmp_path, capsys):
    assert main(["report", "--out", str(tmp_path)]) == 1
    assert "python -m benchmarks run" in capsys.readouterr().err
    runner.write(tmp_path / "speed.json", stored)
    assert main(["report", "--out", str(tmp_path)]) == 0
    names = {"REPORT.md", "speed.json", "speed_error.png", "speed_memory.png", "speed_scaling.png"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_a_case_measured_anew_replaces_itself_alone(stored, tmp_path, monkeypatch, capsys):
    def measured(name, plan):
        if name == "error":
            raise ValueError("as it happens")
        return {"seconds": 1, "name": name}

    monkeypatch.setattr(runner, "_measured", measured)
    plan, kept = questions.Plan(tmp_path), tmp_path / "speed.json"
    runner.write(kept, stored)
    assert runner.run_cases(["memory", "error", "diversity"], plan, tmp_path) == ["error"]
    assert "as it happens" in capsys.readouterr().err
    want = stored["cases"] | {name: {"seconds": 1, "name": name} for name in ("memory", "diversity")}
    assert json.loads(kept.read_text())["cases"] == want
    assert runner.run_cases(["memory"], plan, tmp_path / "new") == []


@pytest.mark.parametrize("words", [["--rounds", "2"], ["--only", "nothing"]])
def test_run_refuses(words, capsys):
    with pytest.raises(SystemExit):
        main(["run", "--data", ".", *words])
    assert words[0] in capsys.readouterr().err


def test_questions_repeat_and_keep_their_cosines():
    rng = np.random.default_rng(0)
    unit = lambda *shape: (x := rng.normal(size=shape)) / np.linalg.norm(x, axis=-1, keepdims=True)
    some = {"candidates": unit(2, 5, 4), "query": unit(2, 4), "subqueries": unit(2, 3, 4)}
    wide = questions.widened(some, 9)
    assert wide["query"].shape == (2, 9)
    np.testing.assert_allclose(questions.grams(wide["candidates"]), questions.grams(some["candidates"]), atol=1e-6)
    assert questions.widened(some, 3)["candidates"].shape == (2, 5, 3)
    np.testing.assert_array_equal(questions.repeat(some, 5)["query"], some["query"][[0, 1, 0, 1, 0]])
    same = questions.equal_picks([[0, 1], [2, 3]], [[1, 0], [2, 3]])
    assert same == {"questions": 2, "equal_sets": 1.0, "equal_order": 0.5}


def test_the_numpy_loop_is_greedy():
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(12, 4))
    gram, weight = vectors @ vectors.T, rng.dirichlet(np.ones(12))
    picks: list[int] = []
    for _ in range(4):
        worth = lambda i, picks=picks: weight @ np.maximum(gram[:, [*picks, i]], 0).max(1)
        picks.append(max((i for i in range(12) if i not in picks), key=worth))
    assert rival_sets.numpy_facility_location(gram, weight, 4) == picks
