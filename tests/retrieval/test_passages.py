import json

import pytest

from georag_jax.documents import Document
from georag_jax.retrieval.passages import StoredPassages, parse_passage, scan_corpus

GOOD = '{"id": "a", "text": "Red."}\n'


def scan(tmp_path, content):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path, scan_corpus(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "b", "text": ', "not valid JSON"),
        (b'{"id": "b", "text": "\xff"}', "not valid JSON in UTF-8"),
        ("[" * 100_000, "not valid JSON"),
        ('["b", "text"]', "expected a JSON object, got list"),
        ("null", "expected a JSON object, got NoneType"),
        ('{"text": "x"}', '"id" is missing'),
        ('{"id": "b"}', '"text" is missing'),
        ('{"id": 7, "text": "x"}', '"id": expected a string, got int'),
        ('{"id": null, "text": "x"}', '"id": expected a string, got NoneType'),
        ('{"id": "", "text": "x"}', '"id" is empty'),
        ('{"id": "b", "text": ""}', '"text" is empty'),
        ('{"id": "b", "text": " \\n"}', '"text" is empty'),
        ('{"id": "b", "text": ["x"]}', '"text": expected a string, got list'),
        ('{"id": "b", "text": "x", "title": 3}', '"title": expected a string, got int'),
        ('{"id": "b", "text": "x \\ud83d"}', '"text" is not valid Unicode'),
        ('{"id": "a", "text": "x"}', "id 'a' was used on line 1 already"),
    ],
)
def test_a_malformed_line_is_named_with_its_number(tmp_path, line, message):
    line = line if isinstance(line, bytes) else line.encode()
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 4: ") as caught:
        scan(tmp_path, GOOD.encode() + b"\n  \n" + line + b"\n")
    assert message in str(caught.value)


@pytest.mark.parametrize("content", ["", "\n", "\n \r\n"])
def test_a_corpus_without_passages_is_refused(tmp_path, content):
    with pytest.raises(ValueError, match="holds no passages"):
        scan(tmp_path, content)


def test_blank_lines_line_ends_and_a_byte_order_mark_are_passed_over(tmp_path):
    path, found = scan(
        tmp_path,
        "\ufeff" + GOOD + "\n\r\n" + '{"id": "b", "text": "Blue.", "title": null}\r\n \n' + GOOD[:-1].replace("a", "c"),
    )
    assert found.ids == ["a", "b", "c"]
    assert found.bytes == path.stat().st_size
    passages = StoredPassages(path, found.spans)
    assert list(passages) == [Document("a", "Red."), Document("b", "Blue."), Document("c", "Red.")]


def test_passages_come_back_as_they_went_in(tmp_path):
    rows = [
        {"id": "é\n1", "title": "Łódź", "text": "日本語 \U0001f600 \u2028 line", "page": 3, "tags": ["x", {"y": None}]},
        {"id": " ", "text": "x"},
        {"id": "2", "text": "y", "title": "", "metadata": {"k": 1}},
    ]
    rows[1]["id"] = "1"
    for ascii_only in (True, False):
        path, found = scan(tmp_path, "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows))
        passages = StoredPassages(path, found.spans)
        assert len(passages) == 3
        assert passages[0].metadata == {"page": 3, "tags": ["x", {"y": None}]}
        assert passages[2].metadata == {"metadata": {"k": 1}}
        assert [(p.id, p.title, p.text) for p in passages] == [(r["id"], r.get("title", ""), r["text"]) for r in rows]
        assert passages[-1] == passages[2]
        assert passages[1:] == [passages[1], passages[2]]
        with pytest.raises(IndexError):
            passages[3]


def test_parsing_names_the_place():
    with pytest.raises(ValueError, match="^somewhere: "):
        parse_passage(b"{", "somewhere")
