import math

import numpy as np
import pytest
from fake_chat import FakeChat

from georag_jax._types import Hits, SubQuerySource
from georag_jax.documents import Document, Question
from georag_jax.models.subqueries import (
    Decomposer,
    GeneratedSubQueries,
    GuardedSubQueries,
    JoinedSubQueries,
    NearestSubQueries,
    TwoRoundSubQueries,
)
from georag_jax.models.subqueries.joined import agreement

WORDS = ["river", "bridge", "engineer", "opera", "novel", "mountain"]


class WordEncoder:
    fingerprint = "words:1"

    def encode(self, texts, kind="document"):
        rows = np.array([[t.lower().split().count(w) + 0.01 for w in WORDS] for t in texts], np.float32).reshape(
            -1, len(WORDS)
        )
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


class Corpus:
    """``many`` chunks of each word, ranked by cosine."""

    def __init__(self, many=250):
        self.texts = [f"{word} {i}" for word in WORDS for i in range(many)]
        self.vectors = WordEncoder().encode(self.texts)
        self.searched = []

    def search(self, texts, vectors, k):
        self.searched += texts
        scores = vectors @ self.vectors.T
        numbers = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return Hits(numbers, np.take_along_axis(scores, numbers, 1))

    def documents(self, numbers):
        return [Document(f"d{n}", f"text {n}", title=self.texts[n]) for n in numbers]


class Given:
    def __init__(self, *lists):
        self.lists, self.asked = lists, []

    def subqueries(self, questions):
        self.asked.append([question.id for question in questions])
        return [list(own) for own in self.lists[: len(questions)]]


QUESTIONS = [Question("a", "river bridge"), Question("b", "opera novel")]


def test_joined_lists_hold_no_text_twice():
    joined = JoinedSubQueries([Given(["River", "bridge"], []), Given(["river!", "arch"], ["opera"])])
    assert isinstance(joined, SubQuerySource)
    assert joined.subqueries(QUESTIONS) == [["River", "bridge", "arch"], ["opera"]]
    assert joined.subqueries([]) == []


def test_joining_nothing_is_refused():
    with pytest.raises(ValueError, match="sources: expected at least one"):
        JoinedSubQueries([])


def test_nearest_keeps_the_order_of_the_source():
    source = Given(["mountain", "bridge", "river bridge engineer", "river bridge"], ["opera"])
    nearest = NearestSubQueries(source, WordEncoder(), kept=2)
    assert nearest.subqueries(QUESTIONS) == [["river bridge engineer", "river bridge"], ["opera"]]
    with pytest.raises(ValueError, match="kept: expected a positive number"):
        NearestSubQueries(source, WordEncoder(), kept=0)


def test_agreement_is_the_overlap_with_the_question():
    lists = [["river", "mountain"], []]
    own, none = agreement(QUESTIONS, lists, Corpus(), WordEncoder())
    assert own == 0.5
    assert math.isnan(none)
    assert agreement([], [], Corpus(), WordEncoder()) == []
    assert agreement(QUESTIONS[:1], [["river"]], Corpus(many=0), WordEncoder()) == [0.0]


def test_the_guard_falls_back_for_lost_and_empty_questions_alone():
    fallback = Given(["their own"], ["its own"])
    questions = [*QUESTIONS, Question("c", "engineer")]
    source = Given(["river"], ["mountain"], [])
    guard = GuardedSubQueries(source, fallback, Corpus(), WordEncoder(), least=0.3)
    assert guard.subqueries(questions) == [["river"], ["their own"], ["its own"]]
    assert fallback.asked == [["b", "c"]]
    assert guard.fallen_back == 2
    assert guard.agreements[:2] == [1.0, 0.0]


def test_a_guard_that_finds_nothing_amiss_asks_no_fallback():
    fallback = Given()
    guard = GuardedSubQueries(Given(["river"], ["novel"]), fallback, Corpus(), WordEncoder())
    assert guard.subqueries(QUESTIONS) == [["river"], ["novel"]]
    assert fallback.asked == []
    with pytest.raises(ValueError, match="least: expected a share from 0 to 1"):
        GuardedSubQueries(fallback, fallback, Corpus(), WordEncoder(), least=2)


def test_the_guard_looks_at_the_dense_retriever():
    class Hybrid:
        dense = Corpus()

    GuardedSubQueries(Given(["river"]), Given(), Hybrid(), WordEncoder()).subqueries(QUESTIONS[:1])
    assert Hybrid.dense.searched == ["river bridge", "river"]


def test_the_second_round_sees_what_the_first_one_found():
    def behave(question, i, sampling):
        return "engineer of the bridge?\nriver?" if "Passages:" in question else "river?"

    model = FakeChat(behave)
    source = TwoRoundSubQueries(GeneratedSubQueries(model, n=2), Corpus(), WordEncoder(), shown=2)
    blank = Question("c", " ")
    assert source.subqueries([QUESTIONS[0], blank]) == [["river?", "engineer of the bridge?"], []]
    (prompt,) = model.calls[-1][0]
    assert prompt.startswith("river bridge\nPassages:\n- ")
    assert "\n- river 0: text 0" in prompt
    assert prompt.count("\n- ") == 2
    assert source.subqueries([]) == []
    with pytest.raises(ValueError, match="shown: expected a positive number"):
        TwoRoundSubQueries(GeneratedSubQueries(model), Corpus(), WordEncoder(), shown=0)


def test_the_best_of_the_fused_lists_is_shown_first():
    model = FakeChat(lambda question, i, sampling: "bridge ?")
    source = TwoRoundSubQueries(GeneratedSubQueries(model, n=1), Corpus(many=1), WordEncoder(), shown=1)
    source.subqueries([Question("a", "river bridge bridge")])
    assert "- bridge 0: " in model.calls[-1][0][0]


def test_they_nest():
    generated = GeneratedSubQueries(FakeChat(lambda *_: "the river ?"), n=1)
    corpus, encoder = Corpus(), WordEncoder()
    guarded = GuardedSubQueries(TwoRoundSubQueries(generated, corpus, encoder), Decomposer(), corpus, encoder)
    lists = NearestSubQueries(JoinedSubQueries([guarded, Decomposer()]), encoder, 1).subqueries(QUESTIONS)
    assert lists == [["river bridge"], ["opera novel"]]
