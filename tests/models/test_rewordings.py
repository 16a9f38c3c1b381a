import pytest
from fake_chat import FakeChat

from georag_jax._types import SubQuerySource
from georag_jax.documents import Question
from georag_jax.models.chat import Completion
from georag_jax.models.rewordings import HyDE, Rewordings

QUESTIONS = [Question("a", "Who wrote Emma?"), Question("b", " "), Question("c", "Who wrote Persuasion?")]


def test_passages_of_each_question():
    model = FakeChat(lambda question, i, sampling: f"{question[:-1]}:\nsomeone {i + sampling.seed}.")
    lists = HyDE(model, n=2, temperature=0.5, seed=7).passages(QUESTIONS)
    assert lists == [
        ["Who wrote Emma: someone 7.", "Who wrote Emma: someone 8."],
        [],
        ["Who wrote Persuasion: someone 7.", "Who wrote Persuasion: someone 8."],
    ]
    ((asked, n, sampling),) = model.calls
    assert (len(asked), n, sampling.temperature) == (2, 2, 0.5)
    assert HyDE(model).passages([]) == []


@pytest.mark.parametrize(
    "answer, kept",
    [
        (Completion("One. Two! Thr", cut=True), ["One. Two!"]),
        (Completion("One. Two", cut=False), ["One. Two"]),
        (Completion("no end", cut=True), ["no end"]),
        (Completion("<think>Hm</think> One.", cut=False), ["One."]),
        (Completion(" ", cut=False), []),
        (Completion("half \ud83d", cut=False), []),
    ],
)
def test_passages_are_tidied(answer, kept):
    assert HyDE(FakeChat(lambda *_: answer)).passages(QUESTIONS[:1]) == [kept]


def test_rewordings_differ_from_the_question_and_each_other():
    texts = ["Sure!\nWhose novel is Emma?", "who wrote EMMA", "Whose novel is 'Emma'?", "1. Emma's author?\n2. Another"]
    model = FakeChat(lambda question, i, sampling: texts[i])
    source = Rewordings(model, n=4)
    assert isinstance(source, SubQuerySource)
    assert source.subqueries(QUESTIONS[:2]) == [["Whose novel is Emma?", "Emma's author?"], []]


@pytest.mark.parametrize("make", [HyDE, Rewordings])
def test_arguments_out_of_range(make):
    with pytest.raises(ValueError, match="^n: expected a positive number"):
        make(FakeChat(lambda *_: ""), n=0)
    with pytest.raises(ValueError, match="^temperature: expected "):
        make(FakeChat(lambda *_: ""), temperature=-1)
    with pytest.raises(ValueError, match="^seed: expected "):
        make(FakeChat(lambda *_: ""), seed=-1)


def test_equal_rewordings_are_of_no_use():
    with pytest.raises(ValueError, match="temperature: expected more than 0"):
        Rewordings(FakeChat(lambda *_: ""), temperature=0)
