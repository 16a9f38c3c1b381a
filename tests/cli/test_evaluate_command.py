"""georag evaluate: scores counted by hand, what is left out, and malformed files."""

import json

import pytest

from georag_jax.cli import main


@pytest.fixture
def picks(tmp_path):
    """Two hand-made files for three questions of two gold passages each."""
    queries = [{"id": q, "question": "?", "gold_ids": [f"{q}1", f"{q}2"]} for q in "abc"]
    good = [{"id": q, "picks": [f"{q}1", f"{q}2", "x"], "pool": [f"{q}1", f"{q}2", "x", "y"]} for q in "abc"]
    bad = [{"id": q, "picks": ["x", f"{q}1", "y"]} for q in "ab"]
    for name, rows in (("queries", queries), ("good", good), ("bad", bad)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_evaluate_counts_by_hand(picks, capsys):
    assert main(["evaluate", str(picks / "good.jsonl"), "--queries", str(picks / "queries.jsonl"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["files"][0]
    assert report["questions"] == 3
    assert [row["recall"][0] for row in report["prefixes"]] == [0.5, 1, 1]
    assert [row["all_gold_count"] for row in report["prefixes"]] == [0, 3, 3]
    assert [row["ceiling_all_gold"][0] for row in report["prefixes"]] == [0, 1, 1]
    assert report["prefixes"][0]["redundancy"] is None


def test_evaluate_compares_two_files_on_their_common_questions(picks, capsys):
    files = [str(picks / "good.jsonl"), str(picks / "bad.jsonl")]
    assert main(["evaluate", *files, "--queries", str(picks / "queries.jsonl"), "--json"]) == 0
    difference = json.loads(capsys.readouterr().out)["difference"]
    assert difference["questions"] == 2
    assert [row["recall"][0] for row in difference["prefixes"]] == [0.5, 0.5, 0.5]
    assert [(row["won"], row["lost"]) for row in difference["prefixes"]] == [(0, 0), (2, 0), (2, 0)]
    assert main(["evaluate", *files, "--queries", str(picks / "queries.jsonl")]) == 0
    assert "paired bootstrap" in capsys.readouterr().out


@pytest.mark.parametrize(
    "row, message",
    [
        ({"id": "z", "picks": []}, "expected an id of the questions, got 'z'"),
        ({"id": "a"}, 'expected a list "picks"'),
        ({"id": "a", "picks": [1]}, '"picks": expected a list of strings'),
        ({"id": "a", "picks": ["\ud800"]}, '"picks" is not valid Unicode'),
        ({"id": "a", "picks": ["a1"], "coverage": None}, '"coverage": expected a list of finite numbers, got null'),
        ({"id": "a", "picks": ["a1"], "coverage": 0.5}, '"coverage": expected a list of finite numbers, got 0.5'),
        ({"id": "a", "picks": ["a1"], "redundancy": ["x"]}, '"redundancy": expected a list of finite numbers'),
        ({"id": "a", "picks": ["a1"], "redundancy": [float("nan")]}, '"redundancy": expected a list of finite numbers'),
    ],
)
def test_evaluate_names_the_wrong_line(picks, row, message, capsys):
    (picks / "wrong.jsonl").write_text(json.dumps(row) + "\n")
    assert main(["evaluate", str(picks / "wrong.jsonl"), "--queries", str(picks / "queries.jsonl")]) == 2
    error = capsys.readouterr().err
    assert "wrong.jsonl, line 1" in error
    assert message in error


def test_evaluate_takes_two_files_at_most(picks, capsys):
    files = [str(picks / "good.jsonl")] * 3
    assert main(["evaluate", *files, "--queries", str(picks / "queries.jsonl")]) == 2
    assert "one file, or two" in capsys.readouterr().err


@pytest.fixture
def partial(picks):
    """Questions a, b, c and one without gold passages; picks for a and for that one alone."""
    with open(picks / "queries.jsonl", "a") as file:
        file.write('{"id": "d", "question": "?"}\n')
    rows = [{"id": "a", "picks": ["a1", "a2"]}, {"id": "d", "picks": ["x"]}]
    (picks / "partial.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ["evaluate", str(picks / "partial.jsonl"), "--queries", str(picks / "queries.jsonl")]


def test_evaluate_says_what_it_leaves_out(partial, capsys):
    assert main(partial) == 0
    assert "partial.jsonl: 1 of 4 questions; 2 have no picks, 1 no gold passages" in capsys.readouterr().out
    assert main([*partial, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["files"][0]
    assert [report[key] for key in ("questions", "of", "without_picks", "without_gold")] == [1, 4, 2, 1]


def test_strict_refuses_missing_picks(picks, partial, capsys):
    assert main([*partial, "--strict"]) == 2
    error = capsys.readouterr().err
    assert "partial.jsonl: expected picks for every question (--strict), got none for 2: b, c" in error
    complete = ["evaluate", str(picks / "good.jsonl"), "--queries", str(picks / "queries.jsonl"), "--strict"]
    assert main(complete) == 0


def test_a_file_that_scores_no_question(picks, capsys):
    (picks / "none.jsonl").write_text("")
    assert main(["evaluate", str(picks / "none.jsonl"), "--queries", str(picks / "queries.jsonl")]) == 2
    assert "none.jsonl: expected picks for questions with gold passages" in capsys.readouterr().err


@pytest.fixture
def answered(tmp_path):
    """Two files of answers to three questions, of which one has gold passages and one no accepted answers."""
    queries = [
        {"id": "a", "question": "?", "answers": ["the Elbe", "river Elbe"], "gold_ids": ["a1"]},
        {"id": "b", "question": "?", "answers": ["yes"]},
        {"id": "c", "question": "?"},
    ]
    good = [
        {"id": "a", "picks": ["a1", "x"], "answer": "Elbe", "citations": ["a1", "x"], "refused": False},
        {"id": "b", "picks": [], "answer": "yes, it is", "citations": []},
        {"id": "c", "picks": [], "answer": "whatever"},
    ]
    bad = [{"id": q, "picks": ["x"], "answer": "The passages do not say.", "refused": True} for q in "ab"]
    for name, rows in (("queries", queries), ("good", good), ("bad", bad)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_answers_are_scored_where_they_are(answered, capsys):
    command = ["evaluate", str(answered / "good.jsonl"), "--queries", str(answered / "queries.jsonl")]
    assert main([*command, "--json"]) == 0
    (report,) = json.loads(capsys.readouterr().out)["files"]
    assert report["questions"] == 1
    scores = report["answers"]
    assert (scores["questions"], scores["of"]) == (2, 2)
    assert scores["exact"][0] == 0.5
    assert scores["f1"][0] == 0.5  # "yes, it is" earns nothing for "yes"
    assert (scores["refused"][0], scores["cited"][0], scores["gold_cited"][0]) == (0, 0.5, 0.5)
    assert main(command) == 0
    page = capsys.readouterr().out
    assert "good.jsonl: answers to 2 of 2 questions" in page
    assert "exact match" in page


def test_answers_of_two_files_are_compared(answered, capsys):
    files = [str(answered / "good.jsonl"), str(answered / "bad.jsonl")]
    assert main(["evaluate", *files, "--queries", str(answered / "queries.jsonl"), "--json"]) == 0
    difference = json.loads(capsys.readouterr().out)["answer_difference"]
    assert difference["questions"] == 2
    assert difference["exact"][0] == 0.5
    assert main(["evaluate", *files, "--queries", str(answered / "queries.jsonl")]) == 0
    assert "answers to 2 questions of both, paired bootstrap" in capsys.readouterr().out


def test_answers_alone_are_enough(answered, capsys):
    rows = (answered / "queries.jsonl").read_text().replace(', "gold_ids": ["a1"]', "")
    (answered / "queries.jsonl").write_text(rows)
    command = ["evaluate", str(answered / "good.jsonl"), "--queries", str(answered / "queries.jsonl")]
    assert main(command) == 0
    page = capsys.readouterr().out
    assert "answers to 2 of 2 questions" in page
    assert "recall" not in page


@pytest.mark.parametrize(
    "row, message",
    [
        ({"id": "a", "picks": [], "answer": 3}, 'expected a string "answer", got int'),
        ({"id": "a", "picks": [], "answer": "x", "refused": 1}, 'expected true or false as "refused", got 1'),
        ({"id": "a", "picks": [], "answer": "x", "citations": [2]}, '"citations": expected a list of strings'),
    ],
)
def test_wrong_answers_are_named_with_their_line(answered, row, message, capsys):
    (answered / "wrong.jsonl").write_text(json.dumps(row) + "\n")
    assert main(["evaluate", str(answered / "wrong.jsonl"), "--queries", str(answered / "queries.jsonl")]) == 2
    error = capsys.readouterr().err
    assert "wrong.jsonl, line 1" in error
    assert message in error
