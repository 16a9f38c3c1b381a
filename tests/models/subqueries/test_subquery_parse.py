import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from georag_jax.models.subqueries.parse import MAX_CHARACTERS, Parsed, distinct, identity, parse

TWO = ["Who wrote Emma?", "Emma film director"]


@pytest.mark.parametrize(
    "answer, malformed",
    [
        (json.dumps({"subquestions": TWO}), 0),
        (json.dumps(TWO), 0),
        ("```json\n" + json.dumps(TWO, indent=1) + "\n```", 0),
        ("Here you go:\n```\n" + json.dumps({"queries": TWO}) + "\n```\nAnything else?", 0),
        ("```json\n" + json.dumps(TWO), 0),
        ("The list is " + json.dumps(TWO) + " as wished.", 0),
        (json.dumps([{"question": TWO[0]}, {"query": TWO[1], "weight": 1}]), 0),
        (json.dumps({"q1": TWO[0], "q2": TWO[1]}), 0),
        (json.dumps([*TWO, 3, None, "", "?"]), 4),
        ('{"subquestions": ["Who wrote Emma?", "Emma film director", "Emma sequ', 1),
        ('["Who wrote Emma?", "Emma film director",]', 1),
        ("1. Who wrote Emma?\n2. Emma film director", 0),
        ("1) Who wrote Emma?\n\n2) Emma film director\n", 0),
        ("- Who wrote Emma?\n* **Emma film director**", 0),
        ("Sure! Here are two:\n• Who wrote Emma?\n• “Emma film director”", 1),
        ("Sure! Here are two queries.\nWho wrote Emma?\nEmma film director", 1),
        ("Sub-question 1: Who wrote Emma?\nQuery: Emma film director", 0),
        ("Who wrote Emma?\nEmma film director", 0),
        ("<think>1. No.\n2. Neither.</think>\n" + json.dumps(TWO), 0),
        ('I wonder ["what"]...</think>\n1. Who wrote Emma?\n2. Emma film director', 0),
    ],
)
def test_forms_of_an_answer(answer, malformed):
    assert parse(answer) == Parsed(TWO, malformed)


@pytest.mark.parametrize("answer", ["", " \n", "<think>1. Who wrote Emma?", "```json\n[]\n```", "[]", "{}"])
def test_answers_without_a_subquery(answer):
    assert parse(answer).subqueries == []


def test_a_cut_last_line_is_dropped_only_where_the_answer_was_cut():
    text = "1. Who wrote Emma?\n2. Emma fi"
    assert parse(text, cut=True) == Parsed(["Who wrote Emma?"], 1)
    assert parse(text).subqueries == ["Who wrote Emma?", "Emma fi"]


def test_escapes_in_cut_json():
    assert parse(r'["Who wrote \"Emma\"?", "caf\u00e9", "cut').subqueries == ['Who wrote "Emma"?', "café"]


def test_hostile_json():
    assert parse("[" * 100_000) == Parsed([], 1)
    assert parse(r'["half \ud83d", "whole \ud83d\ude00"]') == Parsed(["whole 😀"], 1)


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps({"thought": ["I wonder", "what it is"], "subquestions": TWO}),
        json.dumps({"subquestions": TWO, "thought": ["I wonder"]}),
        json.dumps({"answer": {"notes": ["I wonder"], "subquestions": TWO}}),
        json.dumps({"thought": ["I wonder"], "subquestions": TWO})[:-1],
        "Steps [one, two]: " + json.dumps({"subquestions": TWO}, indent=1),
    ],
)
def test_the_list_that_was_asked_for_comes_before_others(answer):
    assert parse(answer) == Parsed(TWO, 0)


def test_the_list_that_was_asked_for_may_be_cut():
    answer = json.dumps({"thought": ["I wonder"], "subquestions": [*TWO, "cut off"]})[:-6]
    assert parse(answer, cut=True) == Parsed(TWO, 1)


def test_the_schema_names_that_list():
    from georag_jax.models.subqueries.prompt import RESPONSE_FORMAT

    assert RESPONSE_FORMAT["json_schema"]["schema"]["required"] == ["subquestions"]


def test_a_year_at_the_start_of_a_line_is_not_a_number_of_the_list():
    assert parse("1998. World Cup\n1998 World Cup winner").subqueries == ["1998. World Cup", "1998 World Cup winner"]


def test_long_lines_are_capped_between_words():
    (capped,) = parse("word " * 200).subqueries
    assert len(capped) <= MAX_CHARACTERS
    assert set(capped.split()) == {"word"}
    assert len(parse("x" * 1000).subqueries[0]) == MAX_CHARACTERS


def test_identity_and_distinct():
    assert identity("Who wrote ‘Emma’?") == identity("who  WROTE emma")
    assert identity("C") != identity("D")
    assert list(distinct(["a b", " ", "A, b!", "c", "?", "?"])) == ["a b", "c", "?"]


@given(st.text())
def test_any_text_is_read_without_an_error(text):
    for cut in (False, True):
        parsed = parse(text, cut)
        assert all(s == s.strip() and s and len(s) <= MAX_CHARACTERS for s in parsed.subqueries)
        assert parsed.malformed >= 0


@given(
    st.lists(st.from_regex(r"[a-z]{2,9}( [a-z]{2,9}){1,4}", fullmatch=True), min_size=1, max_size=8), st.integers(0, 99)
)
def test_cutting_json_anywhere_never_invents_a_subquery(subqueries, percent):
    whole = json.dumps({"subquestions": subqueries})
    parsed = parse(whole[: len('{"subquestions": [') + len(whole) * percent // 100], cut=True)
    assert parsed.subqueries == subqueries[: len(parsed.subqueries)]
