import json

import numpy as np
import pytest
from fake_chat import FakeChat
from hypothesis import given
from hypothesis import strategies as st

from georag_jax._types import SubQuerySource
from georag_jax.documents import Document, Question
from georag_jax.models.chat import Completion
from georag_jax.models.subqueries import GeneratedSubQueries, Report
from georag_jax.models.subqueries.parse import identity

Q = Question("q1", "Who directed the film of Emma?")


class Angles:
    """Texts "at 30" lie at that many degrees, all others at 0."""

    fingerprint = "angles:1"

    def encode(self, texts, kind="document"):
        assert kind == "query"
        degrees = [float(text.split()[1]) if text.startswith("at ") else 0.0 for text in texts]
        return np.stack([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))], 1).astype(np.float32)


def numbered(question, i, sampling):
    return f"query {sampling.seed + i}?"


def test_samples_of_lines():
    model = FakeChat(lambda question, i, sampling: f"1. Emma film {i}?\n2. director of Emma {i}?")
    source = GeneratedSubQueries(model, n=4, temperature=0.9, seed=3)
    assert isinstance(source, SubQuerySource)
    assert source.subqueries([Q]) == [["Emma film 0?", "director of Emma 0?", "Emma film 1?", "director of Emma 1?"]]
    ((asked, n, sampling),) = model.calls
    assert (asked, n) == ([Q.text], 4)
    assert (sampling.temperature, sampling.seed) == (0.9, 3)
    assert source.last_report == Report(samples=4, generated=8, surplus=4, kept=4)


def test_a_list_in_one_answer():
    model = FakeChat(lambda *_: json.dumps({"subquestions": ["Emma film", "director of Emma"]}))
    source = GeneratedSubQueries(model, n=7, style="list", temperature=0)
    assert source.subqueries([Q]) == [["Emma film", "director of Emma"]]
    ((asked, n, _),) = model.calls
    assert n == 1
    assert asked == [Q.text + "\n\nWrite 7 different search queries for this question."]


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"n": 0}, "n"),
        ({"style": "best"}, "style"),
        ({"temperature": 0}, "temperature"),
        ({"temperature": -1, "style": "list"}, "temperature"),
        ({"seed": -1}, "seed"),
    ],
)
def test_arguments_out_of_range(arguments, name):
    with pytest.raises(ValueError, match=f"^{name}: expected "):
        GeneratedSubQueries(FakeChat(numbered), **arguments)


def test_counts_of_what_is_dropped():
    text = (
        "Sure! Here are some:\n1. Emma film\n2. emma FILM.\n3. Who directed the film of 'Emma'?\n4. A b\n5. C d\n6. ??"
    )
    source = GeneratedSubQueries(FakeChat(lambda *_: text), n=2, style="list")
    assert source.subqueries([Q]) == [["Emma film", "A b"]]
    assert source.last_report == Report(samples=1, generated=5, duplicates=2, malformed=2, surplus=1, kept=2)


def test_too_few_are_topped_up_within_a_bound_with_seeds_of_their_own():
    model = FakeChat(lambda question, i, sampling: "same thing?")
    source = GeneratedSubQueries(model, n=6)
    assert source.subqueries([Q]) == [["same thing?"]]
    assert [(n, sampling.seed) for _, n, sampling in model.calls] == [(6, 0), (3, 6), (3, 9)]
    assert source.last_report == Report(samples=12, generated=12, duplicates=11, kept=1, topped_up=6)


def test_only_questions_that_lack_some_are_topped_up():
    lacking = Question("q2", "Who wrote Emma?")
    behave = lambda question, i, sampling: "same?" if question == lacking.text and i else numbered("", i, sampling)
    model = FakeChat(behave)
    lists = GeneratedSubQueries(model, n=3).subqueries([Q, lacking])
    assert lists[0] == ["query 0?", "query 1?", "query 2?"]
    assert lists[1] == ["same?", "query 0?", "query 3?"]
    assert [asked for asked, _, _ in model.calls] == [[Q.text, lacking.text], [lacking.text]]


def test_near_duplicates_and_drift_are_told_by_the_encoder():
    lines = ["at 10 ?", "at 40 ?", "at 45 ?", "at 100 ?", "at 110 ?", "at 170 ?"]
    model = FakeChat(lambda question, i, sampling: "\n".join(lines))
    source = GeneratedSubQueries(model, n=20, encoder=Angles())
    # Near the question (10), near the one before (45, 110); far from the question (100, 170).
    assert source.subqueries([Q]) == [["at 40 ?", "at 100 ?", "at 170 ?"]]
    report = source.last_report
    assert (report.near_duplicates, report.kept, report.drifted) == (3, 3, 2)
    assert report.duplicates + report.near_duplicates + report.kept == report.generated


def test_those_that_most_answers_hold_remain():
    answers = ["a b?\nc d?\nc d?", "e f?\nC D", "E F?\ng h?", "at 1?\ne f?"]
    model = FakeChat(lambda question, i, sampling: answers[i % 4])
    source = GeneratedSubQueries(model, n=4)
    assert source.subqueries([Q]) == [["e f?", "a b?", "c d?", "g h?"]]
    report = source.last_report
    assert (report.generated, report.duplicates, report.malformed, report.surplus) == (8, 3, 1, 1)


def test_a_near_duplicate_votes_for_its_like():
    answers = ["at 30 ?", "at 60 ?", "at 62 ?"]
    model = FakeChat(lambda question, i, sampling: answers[(i + sampling.seed) % 3])
    source = GeneratedSubQueries(model, n=3, encoder=Angles())
    assert source.subqueries([Q]) == [["at 60 ?", "at 30 ?"]]


def test_what_only_the_worked_examples_name_and_statements_are_dropped():
    model = FakeChat(lambda *_: "Where was Jonas Ekholt born?\nEmma is a film.\nWho made Emma?")
    source = GeneratedSubQueries(model, n=1)
    assert source.subqueries([Q]) == [["Who made Emma?"]]
    assert (source.last_report.echoes, source.last_report.malformed) == (1, 1)
    about_him = Question("q", "In which town did Jonas Ekholt live?")
    assert source.subqueries([about_him]) == [["Where was Jonas Ekholt born?"]]


@pytest.mark.parametrize(
    "content",
    ['```json\n["Emma film"]\n```', '<think>1. No\n2. No</think>["Emma film"]', '{"subquestions": ["Emma film", "cu'],
)
def test_untidy_answers(content):
    model = FakeChat(lambda *_: Completion(content, cut=True))
    assert GeneratedSubQueries(model, style="list").subqueries([Q]) == [["Emma film"]]


@pytest.mark.parametrize("content", ["", "Who directed the film of Emma?", "Sure!"])
@pytest.mark.parametrize("style", ["samples", "list"])
def test_nothing_usable_gives_the_question_and_is_counted(content, style, caplog):
    source = GeneratedSubQueries(FakeChat(lambda *_: content), n=3, style=style)
    assert source.subqueries([Q]) == [[Q.text]]
    assert source.last_report.fallbacks == 1
    assert "fallbacks=1" in caplog.text


def test_blank_questions_are_not_asked():
    model = FakeChat(numbered)
    source = GeneratedSubQueries(model)
    assert source.subqueries([Question("b", " \n")]) == [[]]
    assert source.subqueries([]) == []
    assert model.calls == []
    assert source.total_report == Report()


def test_the_total_report_sums_the_calls():
    texts = iter(['["a b", "A B", "c d"]', ""])
    source = GeneratedSubQueries(FakeChat(lambda *_: next(texts)), style="list")
    assert source.total_report == Report()
    source.subqueries([Q])
    source.subqueries([Question("q2", "Another?")])
    assert source.last_report == Report(samples=1, fallbacks=1)
    assert source.total_report == Report(samples=2, generated=3, duplicates=1, kept=2, fallbacks=1)


def test_follow_ups_see_the_passages_and_repeat_nothing():
    model = FakeChat(lambda question, i, sampling: "Who directed Emma?\nWho is Autumn de Wilde?\nWhat did she make?")
    source = GeneratedSubQueries(model, n=4)
    passages = [Document("p", "A film of 2020 directed by Autumn de Wilde. " + "x " * 500, "Emma")]
    lists = source.follow_ups([Q, Q], [passages, []], [["who directed Emma"], []])
    assert lists == [["Who is Autumn de Wilde?", "What did she make?"], []]
    ((asked, n, _),) = model.calls
    assert n == 2
    (prompt,) = asked
    assert prompt.startswith(f"{Q.text}\nPassages:\n- Emma: A film of 2020 directed by Autumn de Wilde. x x")
    assert len(prompt) < 400
    assert source.last_report == Report(samples=2, generated=6, duplicates=4, kept=2)


@given(st.lists(st.text(max_size=80), min_size=1, max_size=6), st.integers(1, 5), st.sampled_from(["samples", "list"]))
def test_properties_of_any_answers(answers, n, style):
    model = FakeChat(lambda question, i, sampling: answers[(i + sampling.seed) % len(answers)])
    source = GeneratedSubQueries(model, n=n, style=style)
    (own,) = source.subqueries([Q])
    report = source.last_report
    assert 1 <= len(own) <= n
    assert len({identity(text) for text in own}) == len(own)
    assert report.generated == report.duplicates + report.surplus + report.kept
    assert report.near_duplicates == report.drifted == 0
    assert report.kept == (0 if report.fallbacks else len(own))
    assert report.samples == model.samples <= 2 * n + 2
