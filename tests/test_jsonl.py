"""A malformed line is reported with its file and number."""

import pytest

from georag_jax._jsonl import number_list, read_records, string_list, text_field


def written(tmp_path, text):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_records_with_blank_lines_and_byte_order_mark(tmp_path):
    path = written(tmp_path, b'\xef\xbb\xbf{"id": "a"}\n\n  \n{"id": "b"}')
    assert [(line.record["id"], line.number) for line in read_records(path)] == [("a", 1), ("b", 4)]


@pytest.mark.parametrize(
    "text, message",
    [
        ('{"id": "a"}\n{"id": ', r"lines.jsonl, line 2: not valid JSON"),
        ('{"id": "a"}\n[1]\n', r"line 2: expected a JSON object, got list"),
        ('{"text": "a"}\n', r'line 1: "id" is missing'),
        ('{"id": 3}\n', r'line 1: "id": expected a string, got int'),
        ('{"id": " "}\n', r'line 1: "id" is empty'),
        ('{"id": "\\ud800"}\n', r'line 1: "id" is not valid Unicode'),
        ('{"id": "a"}\n{"id": "b"}\n{"id": "a"}\n', r"line 3: id 'a' was used on line 1 already"),
        (b'{"id": "\xff"}\n', r"line 1: not valid JSON in UTF-8"),
        ("[" * 100_000, r"line 1: not valid JSON"),
    ],
)
def test_malformed_lines_are_named(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        list(read_records(written(tmp_path, text)))


def test_fields():
    assert text_field({"question": "Why?"}, "question", "here") == "Why?"
    assert string_list({}, "answers", "here") == ()
    assert string_list({"answers": ["a"]}, "answers", "here") == ("a",)
    with pytest.raises(ValueError, match='here: "answers": expected a list of strings'):
        string_list({"answers": "a"}, "answers", "here")


@pytest.mark.parametrize("item", ["a \ud800 b", "\udc00"])
def test_every_item_of_a_list_is_valid_unicode(item):
    with pytest.raises(ValueError, match='here: "subqueries" is not valid Unicode'):
        string_list({"subqueries": ["a b", item]}, "subqueries", "here")
    assert string_list({"subqueries": ["a \U0001f600 b"]}, "subqueries", "here") == ("a \U0001f600 b",)


def test_number_lists():
    assert number_list({}, "coverage", "here") == ()
    assert number_list({"coverage": [1, 0.5]}, "coverage", "here") == (1.0, 0.5)
    for value in (None, 0.5, "0.5", ["0.5"], [None], [True], [float("nan")], [float("inf")], [10**400]):
        with pytest.raises(ValueError, match='here: "coverage": expected a list of finite numbers'):
            number_list({"coverage": value}, "coverage", "here")
