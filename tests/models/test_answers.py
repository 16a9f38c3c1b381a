import re

import pytest
from fake_chat import FakeChat
from hypothesis import given
from hypothesis import strategies as st

from georag_jax.documents import Document, Question
from georag_jax.models.answers import REFUSAL, Answer, Reader, messages, read

Q = Question("q", "Which river is longer?")
CHUNKS = [
    Document("a", "The Elbe runs 1,094 km.", "Elbe"),
    Document("b", "The Loire\nruns 1,006 km."),
    Document("c", "-"),
]


def test_the_prompt_holds_the_chunks_with_the_best_one_last():
    model = FakeChat(lambda *_: "the Elbe [3][2]")
    answers = Reader(model).answer([Q], [CHUNKS])
    assert answers == [Answer("the Elbe", ("a", "b"), 0, False, ("c", "b", "a"))]
    (((prompt,), n, sampling),) = model.calls
    shown = "[1] -\n[2] The Loire runs 1,006 km.\n[3] Elbe: The Elbe runs 1,094 km.\n\nQuestion: Which river is longer?"
    assert prompt == shown
    assert (n, sampling.temperature) == (1, 0)


def test_the_worked_examples_follow_the_rules_that_they_teach():
    chat = messages("Who?", ["x"])
    assert [message["role"] for message in chat] == ["system", *["user", "assistant"] * 3, "user"]
    for asked, answered in zip(chat[1:-1:2], chat[2:-1:2], strict=True):
        numbers = re.findall(r"^\[(\d+)\]", asked["content"], re.MULTILINE)
        told = read(answered["content"], [Document(number, "") for number in numbers])
        assert told.refused == (told.text == REFUSAL)
        assert bool(told.citations) != told.refused
        assert told.invalid == 0
    assert REFUSAL in chat[0]["content"]


def test_questions_without_chunks_are_not_asked():
    model, told = FakeChat(lambda *_: "x"), []
    answers = Reader(model).answer([Q, Q], [[], CHUNKS], told.append)
    assert answers[0] == Answer(REFUSAL, (), 0, True, ())
    assert answers[1].text == "x"
    assert told == [1]
    assert Reader(model).answer([], []) == []
    assert len(model.calls) == 1


def test_the_budget_leaves_out_the_worst_and_cuts_the_last_that_fits():
    long = [Document(name, f"{name} " * 50) for name in "abcd"]
    model = FakeChat(lambda *_: "x")
    (answer,) = Reader(model, budget=130).answer([Q], [long])
    assert answer.context == ("c", "b", "a")
    lines = model.calls[0][0][0].partition("\n\n")[0].splitlines()
    assert [line.count(line[4]) for line in lines] == [30, 50, 50]
    (answer,) = Reader(model, budget=110).answer([Q], [long])
    assert answer.context == ("b", "a")
    (answer,) = Reader(model, budget=64).answer([Q], [[Document("a", "a " * 500)]])
    assert answer.context == ("a",)
    with pytest.raises(ValueError, match="budget: expected at least 64 tokens"):
        Reader(model, budget=63)


@pytest.mark.parametrize(
    "reply, text, cited, invalid",
    [
        ("Denmark [1][2]", "Denmark", "ab", 0),
        ("Denmark [2, 1].", "Denmark.", "ba", 0),
        ("Denmark [1;2][1]", "Denmark", "ab", 0),
        ("Denmark [7][0]", "Denmark", "", 2),
        ("Denmark", "Denmark", "", 0),
        ("Answer: Denmark [2]\n\nQuestion: Another? [1]", "Denmark", "b", 0),
        ("The answer is: in [1] Denmark", "in Denmark", "a", 0),
        ("<think>[2]?</think>\n\nDenmark\n[1]", "Denmark", "a", 0),
        ("The film [Rec] [1]", "The film [Rec]", "a", 0),
    ],
)
def test_replies(reply, text, cited, invalid):
    assert read(reply, CHUNKS) == Answer(text, tuple(cited), invalid, False, ("a", "b", "c"))


@pytest.mark.parametrize(
    "reply",
    [
        REFUSAL,
        "the passages do not say",
        f"{REFUSAL} [1]",
        "The passage does not state it.",
        "",
        " \n",
        "[1]",
        "half \ud83d",
        "<think>Hm",
    ],
)
def test_refusals(reply):
    answer = read(reply, CHUNKS)
    assert (answer.text, answer.citations, answer.refused) == (REFUSAL, (), True)


@given(
    st.text() | st.lists(st.sampled_from(["a", " ", "[1]", "[2,9]", "[", "]", "\n", "\n\n", "Answer:"])).map("".join)
)
def test_properties_of_any_reply(reply):
    answer = read(reply, CHUNKS)
    assert answer.text.strip()
    assert len(set(answer.citations)) == len(answer.citations)
    assert set(answer.citations) <= {"a", "b", "c"}
    assert answer.invalid >= 0
    answer.text.encode()
