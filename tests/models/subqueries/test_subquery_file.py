import re

import pytest

from georag_jax._types import SubQuerySource
from georag_jax.documents import Question
from georag_jax.models.subqueries import FileSubQueries


def _write(path, *lines):
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_file_gives_lists_in_the_order_of_the_questions(tmp_path):
    path = _write(
        tmp_path / "s.jsonl",
        '{"id": "a", "subqueries": ["Wer schrieb „Emma“?", "Emma"], "note": 1}',
        "",
        "   ",
        '{"id": "b", "subqueries": []}',
    )
    source = FileSubQueries(path)
    assert isinstance(source, SubQuerySource)
    questions = [Question("b", "?"), Question("a", "?"), Question("b", "?")]
    assert source.subqueries(questions) == [[], ["Wer schrieb „Emma“?", "Emma"], []]
    assert source.subqueries([]) == []


def test_a_changed_result_does_not_change_the_source(tmp_path):
    source = FileSubQueries(_write(tmp_path / "s.jsonl", '{"id": "a", "subqueries": ["x"]}'))
    source.subqueries([Question("a", "?")])[0].append("y")
    assert source.subqueries([Question("a", "?")]) == [["x"]]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "1",
        '{"subqueries": ["x"]}',
        '{"id": 1, "subqueries": ["x"]}',
        '{"id": "b"}',
        '{"id": "b", "subqueries": "x"}',
        '{"id": "b", "subqueries": ["x", 2]}',
        '{"id": "b", "subqueries": ["x", ""]}',
        '{"id": "b", "subqueries": [" "]}',
        '{"id": "b", "subqueries": ["a \\ud800 b"]}',
    ],
)
def test_malformed_line_is_named_with_file_and_number(tmp_path, line):
    path = _write(tmp_path / "s.jsonl", '{"id": "a", "subqueries": []}', "", line)
    with pytest.raises(ValueError, match=re.escape(f"{path}, line 3: ")):
        FileSubQueries(path)


def test_duplicate_ids_are_named_with_both_lines(tmp_path):
    line = '{"id": "a", "subqueries": []}'
    with pytest.raises(ValueError, match=r"line 3: id 'a' .* line 1\b"):
        FileSubQueries(_write(tmp_path / "s.jsonl", line, "", line))


def test_all_missing_ids_are_reported_together(tmp_path):
    source = FileSubQueries(_write(tmp_path / "s.jsonl", '{"id": "a", "subqueries": []}'))
    questions = [Question("m1", "?"), Question("a", "?"), Question("m2", "?")]
    assert source.missing(questions) == ["m1", "m2"]
    assert source.missing(questions[1:2]) == []
    with pytest.raises(ValueError, match=r"2 question\(s\): m1, m2"):
        source.subqueries(questions)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        FileSubQueries(tmp_path / "none.jsonl")
