"""Rerank scores on their way into the selector."""

import numpy as np
import pytest

from georag_jax.config import SelectConfig
from georag_jax.documents import Document, Question
from georag_jax.pipeline import RERANKED_BLOCK, GeoRAG
from georag_jax.retrieval import DenseRetriever
from georag_jax.selection import select

TEXTS = ["river bridge stone", "river bridge iron", "engineer born porto", "opera composer novel", "river source"]
WORDS = sorted({word for text in TEXTS for word in text.split()})
READS = SelectConfig(k=2, alpha=1.0, demand_points="candidates")
QUESTIONS = [Question(f"q{i}", text) for i, text in enumerate(["river bridge", "engineer porto", "opera river"] * 2)]


class WordEncoder:
    """Counts of known words, with a small offset so that no text is a zero vector."""

    fingerprint = "words:1"

    def encode(self, texts, kind="document"):
        rows = np.array([[text.lower().split().count(word) + 0.01 for word in WORDS] for text in texts], np.float32)
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).reshape(len(texts), len(WORDS))


class NoSubQueries:
    """Leaves every question to itself."""

    def subqueries(self, questions):
        return [[] for _ in questions]


class Likes:
    """Scores passages by the number of a word's letters that they hold."""

    fingerprint = "likes:1"

    def __init__(self, word):
        self.word, self.seen = word, []

    def score(self, pairs):
        self.seen.append(pairs)
        return np.array([passage.count(self.word) / 4 + len(question) / 1e3 for question, passage in pairs], np.float32)


@pytest.fixture(scope="module")
def dense():
    documents = [Document(f"d{i}", text, title=f"T{i}") for i, text in enumerate(TEXTS)]
    return DenseRetriever(WordEncoder().encode(TEXTS), documents)


def pipeline(dense, **settings):
    return GeoRAG(dense, WordEncoder(), NoSubQueries(), pool="dense", **settings)


def test_the_reranker_ranks_for_the_objective_that_takes_the_largest_scores(dense):
    reranker = Likes("opera")
    result = pipeline(dense, config=SelectConfig(k=2, objective="cosine"), reranker=reranker).run(QUESTIONS[:1])[0]
    assert result.picks[0].document.id == "d3"
    assert result.picks[0].score == pytest.approx(0.25 + 12 / 1e3)
    assert result.cosine[0].id != "d3"
    assert {question for question, _ in reranker.seen[0]} == {"river bridge"}
    assert sorted(passage for _, passage in reranker.seen[0]) == sorted(f"T{i}. {t}" for i, t in enumerate(TEXTS))


@pytest.mark.parametrize("config", [READS, SelectConfig(k=2, objective="mmr")])
def test_each_question_has_the_scores_of_its_own_pool(dense, config):
    reranker = Likes("iron")
    results = pipeline(dense, config=config, candidates=4, reranker=reranker).run(QUESTIONS)
    assert [len(pairs) for pairs in reranker.seen] == [4 * RERANKED_BLOCK, 4 * (len(QUESTIONS) - RERANKED_BLOCK)]
    encoder = WordEncoder()
    for question, result in zip(QUESTIONS, results, strict=True):
        pool = [int(i[1:]) for i in result.pool_ids]
        chosen = select(
            encoder.encode([TEXTS[i] for i in pool]),
            encoder.encode([question.text])[0],
            np.zeros((0, len(WORDS)), np.float32),
            scores=Likes("iron").score([(question.text, f"T{i}. {TEXTS[i]}") for i in pool]),
            config=config,
        )
        assert [pick.document.id for pick in result.picks] == [f"d{pool[i]}" for i in chosen.indices if i >= 0]
        np.testing.assert_allclose([p.score for p in result.picks], chosen.scores[chosen.indices >= 0], atol=1e-6)


def test_scores_shape_the_demand(dense):
    plain = pipeline(dense, config=READS).run(QUESTIONS[:1])[0]
    liked = pipeline(dense, config=READS, reranker=Likes("opera")).run(QUESTIONS[:1])[0]
    assert liked.coverage != plain.coverage


def test_a_reranker_that_could_change_nothing_is_refused(dense):
    with pytest.raises(ValueError, match="reranker: expected settings that read scores.*, got .*facility_location"):
        pipeline(dense, reranker=Likes("opera"))
    with pytest.raises(ValueError, match="with alpha 0.0, where it would change no pick"):
        pipeline(dense, reranker=Likes("opera"), config=SelectConfig(demand_points="candidates"))
    pipeline(dense, reranker=Likes("opera"), config=SelectConfig.preset("paper"))


def test_a_reranker_with_a_wrong_number_of_scores_is_named(dense):
    reranker = Likes("opera")
    reranker.score = lambda pairs: np.zeros((len(pairs), 1), np.float32)
    with pytest.raises(ValueError, match=r"reranker: expected 5 scores, got shape \(5, 1\)"):
        pipeline(dense, reranker=reranker, config=SelectConfig(objective="cosine")).run(QUESTIONS[:1])
