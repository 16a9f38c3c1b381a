"""The text pipeline over small real parts: what it hands to the selector, and what it says of the picks."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from georag_jax._errors import describe
from georag_jax.cli.select import record
from georag_jax.config import SelectConfig
from georag_jax.documents import Document, Question
from georag_jax.pipeline import GeoRAG, _redundancy, pool_numbers
from georag_jax.retrieval import DenseRetriever, HybridRetriever, LexicalRetriever
from georag_jax.selection import reverse_validation, select

TEXTS = [
    "river bridge stone arch",
    "river bridge stone pillar",
    "river bridge iron",
    "engineer born porto",
    "engineer born vienna",
    "opera composer novel",
    "novel author film",
    "river source mountain",
]
WORDS = sorted({word for text in TEXTS for word in text.split()})


class WordEncoder:
    """Counts of known words, with a small offset so that no text is a zero vector."""

    fingerprint = "words:1"

    def encode(self, texts, kind="document"):
        rows = np.array([[text.lower().split().count(word) + 0.01 for word in WORDS] for text in texts], np.float32)
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).reshape(len(texts), len(WORDS))


class Given:
    """Stored sub-queries."""

    def __init__(self, **by_id):
        self.by_id = by_id

    def subqueries(self, questions):
        return [self.by_id.get(question.id, []) for question in questions]


@pytest.fixture(scope="module")
def dense():
    documents = [Document(f"d{i}", text, title=f"Title {i}") for i, text in enumerate(TEXTS)]
    return DenseRetriever(WordEncoder().encode(TEXTS), documents)


@pytest.fixture(scope="module")
def hybrid(dense):
    return HybridRetriever(dense, LexicalRetriever(dense.documents(range(len(TEXTS)))))


QUESTION = Question("q", "river bridge stone engineer born", gold_ids=("d0", "d3"))
SIDES = ["river bridge stone arch", "engineer born porto"]


def test_a_many_sided_question_gets_all_its_sides(hybrid):
    result = GeoRAG(hybrid, WordEncoder(), Given(q=SIDES), config=SelectConfig(k=2)).run([QUESTION])[0]
    assert {pick.document.id for pick in result.picks} == {"d0", "d3"}
    served = {pick.document.id: [text for text, _ in pick.serves] for pick in result.picks}
    assert served == {"d0": SIDES[:1], "d3": SIDES[1:]}
    assert sum(pick.mass for pick in result.picks) == pytest.approx(1, abs=1e-5)
    assert [subquery.text for subquery in result.subqueries] == SIDES
    assert sum(subquery.weight for subquery in result.subqueries) == pytest.approx(1, abs=1e-5)
    assert result.status == 0


def test_picks_are_those_of_the_array_api(dense):
    encoder, config = WordEncoder(), SelectConfig(k=3, quality="overlap_novelty")
    result = GeoRAG(dense, encoder, Given(q=SIDES), config=config, pool="dense", candidates=4).run([QUESTION])[0]
    query, sides = encoder.encode([QUESTION.text]), encoder.encode(SIDES)
    pool = dense.search([QUESTION.text], query, 4).numbers[0]
    own = dense.search(SIDES, sides, 20).numbers
    retrieved = [[n for n in row if n >= 0] for row in own.tolist()]
    weights = reverse_validation(retrieved, pool.tolist(), quality="overlap_novelty")
    chosen = select(
        dense.embeddings(pool),
        query[0],
        sides,
        affinity=dense.similarity(SIDES, sides, pool),
        weights=weights,
        config=config,
    )
    assert [pick.document.id for pick in result.picks] == [f"d{pool[i]}" for i in chosen.indices]
    np.testing.assert_allclose([s.weight for s in result.subqueries], weights, atol=1e-6)
    np.testing.assert_allclose(result.coverage, chosen.coverage, atol=1e-6)
    assert result.pool_ids == tuple(f"d{n}" for n in pool)


def test_a_drifted_subquery_is_measured_against_the_question_not_against_the_fused_pool():
    texts = ["river bridge stone " * (1 + i % 3) + "arch" for i in range(30)] + ["opera composer novel"] * 30
    encoder = WordEncoder()
    corpus = DenseRetriever(encoder.encode(texts), [Document(f"d{i}", text) for i, text in enumerate(texts)])
    pipeline = GeoRAG(corpus, encoder, Given(q=["opera composer"]), candidates=30, config=SelectConfig(k=2))
    result = pipeline.run([Question("q", "river bridge")])[0]
    assert "d30" in result.pool_ids  # the drifted sub-query put its hits into the pool
    assert describe(result.status).startswith("no sub-query reached the quality threshold")


def test_batches_give_what_single_questions_give(hybrid):
    pipeline = GeoRAG(hybrid, WordEncoder(), Given(a=SIDES, b=SIDES[:1]), config=SelectConfig(k=3), candidates=6)
    questions = [Question("a", QUESTION.text), Question("b", "river mountain"), Question("c", "opera composer")]
    together = pipeline.run(questions)
    for question, result in zip(questions, together, strict=True):
        alone = pipeline.run([question])[0]
        assert [p.document.id for p in alone.picks] == [p.document.id for p in result.picks]
        np.testing.assert_allclose(alone.coverage, result.coverage, atol=1e-6)


def test_no_questions_no_results(dense):
    assert GeoRAG(dense, WordEncoder(), Given()).run([]) == []


def test_a_question_without_subqueries_is_served_by_itself(dense):
    result = GeoRAG(dense, WordEncoder(), Given(), config=SelectConfig(k=1)).ask("engineer born vienna")
    assert [pick.document.id for pick in result.picks] == ["d4"]
    assert result.subqueries == ()


def test_more_picks_than_chunks(dense):
    result = GeoRAG(dense, WordEncoder(), Given(q=SIDES), config=SelectConfig(k=20)).run([QUESTION])[0]
    assert sorted(pick.document.id for pick in result.picks) == sorted(f"d{i}" for i in range(len(TEXTS)))
    assert len(result.coverage) == len(result.redundancy) == len(TEXTS)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"pool": "sparse"}, "pool: expected one of"),
        ({"candidates": 0}, "candidates: expected a pool size >= 1, got 0"),
    ],
)
def test_wrong_settings_are_refused(dense, changes, message):
    with pytest.raises(ValueError, match=message):
        GeoRAG(dense, WordEncoder(), Given(), **changes)


def test_a_blank_question_is_named(dense):
    with pytest.raises(ValueError, match="blank question with id 'x'"):
        GeoRAG(dense, WordEncoder(), Given()).run([Question("x", "  ")])


def testpool_numbers_keeps_pool_positions_and_tells_strangers_apart():
    pool = np.array([7, 2, 9])
    assert pool_numbers(np.array([[9, 2, 5, -1, 100]]), pool, 4).tolist() == [[2, 1, 9, -1, 104]]


def test_redundancy_is_the_mean_of_the_pairs():
    gram = np.array([[1, 0.5, 0.1], [0.5, 1, 0.3], [0.1, 0.3, 1]])
    assert _redundancy(gram) == pytest.approx([0, 0.5, 0.3])


def test_results_can_be_written_as_json(hybrid):
    result = GeoRAG(hybrid, WordEncoder(), Given(q=SIDES), config=SelectConfig(k=2)).run([QUESTION])[0]
    again = json.loads(json.dumps(record(result)))
    assert again["id"] == "q"
    assert len(again["picks"]) == len(again["gains"]) == len(again["coverage"]) == 2


class Silent:
    """A retriever that finds nothing for some questions."""

    def __init__(self, retriever, word):
        self.retriever, self.word = retriever, word

    def __getattr__(self, name):
        return getattr(self.retriever, name)

    def search(self, texts, vectors, k):
        hits = self.retriever.search(texts, vectors, k)
        silent = [self.word in text for text in texts]
        hits.numbers[silent], hits.scores[silent] = -1, 0
        return hits


@pytest.mark.parametrize("pool", ["dense", "multi_query"])
def test_a_question_without_any_chunk_leaves_the_others_alone(dense, pool):
    pipeline = GeoRAG(Silent(dense, "opera"), WordEncoder(), Given(), pool=pool, config=SelectConfig(k=2))
    questions = [Question("a", "river bridge"), Question("b", "opera composer"), Question("c", "novel author")]
    found, nothing, other = pipeline.run(questions)
    assert (len(found.picks), len(nothing.picks), len(other.picks)) == (2, 0, 2)
    assert nothing.pool_ids == ()
    assert "fewer than k candidates" in describe(nothing.status)
    assert json.loads(json.dumps(record(nothing)))["picks"] == []


def test_over_index_takes_what_belongs_to_the_preset(dense, hybrid):
    index = SimpleNamespace(dense=dense, hybrid=hybrid)
    default = GeoRAG.over_index(index, WordEncoder(), Given())
    assert (default.retriever, default.pool, default.config) == (hybrid, "multi_query", SelectConfig())
    paper = GeoRAG.over_index(index, WordEncoder(), Given(), preset="paper")
    assert (paper.retriever, paper.pool, paper.config) == (dense, "dense", SelectConfig.preset("paper"))
    mixed = GeoRAG.over_index(index, WordEncoder(), Given(), preset="paper", pool="multi_query", similarity="hybrid")
    assert (mixed.retriever, mixed.pool) == (hybrid, "multi_query")
    with pytest.raises(ValueError, match="similarity: expected one of"):
        GeoRAG.over_index(index, WordEncoder(), Given(), similarity="sparse")
