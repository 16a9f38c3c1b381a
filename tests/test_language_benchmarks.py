"""The benchmarks that ask a language model, on a corpus of a few words with a model that knows it."""

import numpy as np
import pytest

pytest.importorskip("faiss")

from benchmarks import reading, subqueries
from benchmarks.data import QuestionSet
from georag_jax.documents import Document
from georag_jax.models.chat import Completion
from georag_jax.retrieval import DenseRetriever, HybridRetriever, LexicalRetriever

WORDS = ["river", "bridge", "engineer", "opera", "novel", "mountain", "canal", "painter"]


class WordEncoder:
    fingerprint = "words:1"

    def encode(self, texts, kind="document"):
        rows = np.array([[text.lower().split().count(word) + 0.01 for word in WORDS] for text in texts], np.float32)
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).reshape(-1, len(WORDS))


class Model:
    """Writes the words of the question, or answers with the first passage's title."""

    fingerprint = "model:1"

    def complete(self, chats, n, sampling, progress=None):
        return [[Completion(self._say(chat[-1]["content"], i), cut=False) for i in range(n)] for chat in chats]

    def count(self, text):
        return len(text.split())

    def _say(self, asked, i):
        passages, question, _ = asked.partition("\n\nQuestion: ")
        return f"{passages.split()[1]} [1]" if question else f"what {asked.split()[i % 2]} ?"


@pytest.fixture(scope="module")
def questions():
    texts = [f"{first} {second}" for first in WORDS for second in WORDS]
    documents = [Document(f"d{i}", text, title=f"T{i}") for i, text in enumerate(texts)]
    dense = DenseRetriever(WordEncoder().encode(texts), documents)
    asked, own = (
        ["river bridge", "opera novel", "canal painter"],
        [["river", "bridge"], ["opera", "novel"], ["canal", "x"]],
    )
    return QuestionSet(
        name="tiny",
        dense=dense,
        hybrid=HybridRetriever(dense, LexicalRetriever(documents)),
        texts=asked,
        subquery_texts=own,
        queries=WordEncoder().encode(asked),
        subqueries=np.stack([WordEncoder().encode(each) for each in own]),
        gold=[{0, 9}, {27, 36}, {54, 63}],
    )


def test_subqueries(questions):
    rows, generation = subqueries.measure([questions], Model(), WordEncoder(), most=2, rounds=2, n=2)
    assert len(rows) == 9
    assert {row["questions"] for row in rows} == {2}
    assert all(len(row["counts"]) == len(row["minus_free"]) == 3 for row in rows)
    free = next(row for row in rows if row["subqueries"] == subqueries.FREE)
    assert free["minus_free"] == [[0, 0, 0]] * 3
    assert generation["tiny"]["kept"] == 4
    assert len(generation["tiny"]["agreements"]) == 2
    assert len(subqueries.page(rows).splitlines()) == 2 + len(rows)


def test_reading(questions, monkeypatch):
    make = reading.make_pool
    monkeypatch.setattr(reading, "make_pool", lambda questions, kind: make(questions, kind, 20))
    rows = reading.measure(reading.first(questions, 2), [["T9"], ["none"]], Model())
    assert [row["chunks"] for row in rows] == list(reading.CHOICES)
    assert rows[0]["f1_minus_cosine"] == [0, 0, 0]
    assert all(row["cited"][0] == 1 and row["questions"] == 2 for row in rows)
    assert len(reading.page(rows).splitlines()) == 2 + len(rows)
