import numpy as np
import pytest

from georag_jax._types import Retriever
from georag_jax.documents import Document
from georag_jax.retrieval import DenseRetriever, HybridRetriever, LexicalRetriever, _rows

TEXTS = ["red apple", "the of", "Title 17 bridge", "unknownword"]


@pytest.fixture
def parts(vectors, documents):
    return DenseRetriever(vectors, documents), LexicalRetriever(documents)


@pytest.fixture
def queries(encoder):
    return encoder.encode(TEXTS, "query")


def plain_rows(vectors, lexical, queries, weight):
    words = lexical.scores(TEXTS).astype(np.float64)
    best = words.max(1, keepdims=True)
    words = np.where(best > 0, words / np.where(best > 0, best, 1), 0)
    return (queries.astype(np.float64) @ vectors.T.astype(np.float64) + weight * words) / (1 + weight)


@pytest.mark.parametrize("cells", [1, 2**24])
@pytest.mark.parametrize("weight", [0, 0.3, 2.0])
@pytest.mark.parametrize("k", [1, 10, 120, 125])
def test_search_equals_brute_force(monkeypatch, parts, vectors, queries, brute_force, k, weight, cells):
    monkeypatch.setattr(_rows, "_CELLS", cells)
    hits = HybridRetriever(*parts, lexical_weight=weight).search(TEXTS, queries, k)
    numbers, scores = brute_force(plain_rows(vectors, parts[1], queries, weight), k)
    assert hits.numbers[:, :120].tolist() == numbers.tolist()
    np.testing.assert_allclose(hits.scores[:, :120], scores, atol=1e-6)
    assert (hits.numbers[:, 120:] == -1).all()
    assert (hits.numbers.dtype, hits.scores.dtype) == (np.int64, np.float32)


def test_similarity_is_the_clipped_score(parts, vectors, queries):
    numbers = np.array([3, 90, 3])
    similarity = HybridRetriever(*parts).similarity(TEXTS, queries, numbers)
    expected = np.clip(plain_rows(vectors, parts[1], queries, 0.3), 0, 1)[:, numbers]
    np.testing.assert_allclose(similarity, expected, atol=1e-6)
    assert similarity.dtype == np.float32


def test_similarity_is_the_score_of_search_to_the_bit(parts, queries):
    hybrid = HybridRetriever(*parts)
    hits = hybrid.search(TEXTS, queries, 120)
    for i, numbers in enumerate(hits.numbers):
        for text, vector in ((TEXTS, queries), (TEXTS[i : i + 1], queries[i : i + 1])):
            similarity = hybrid.similarity(text, vector, numbers)[i if len(text) > 1 else 0]
            assert (similarity == np.clip(hits.scores[i], 0, 1)).all()


def test_is_a_retriever_and_shows_its_parts(parts, vectors, documents):
    hybrid = HybridRetriever(*parts)
    assert isinstance(hybrid, Retriever)
    assert hybrid.dense is parts[0]
    assert hybrid.lexical is parts[1]
    assert hybrid.size == 120
    assert (hybrid.embeddings([4, 2]) == vectors[[4, 2]]).all()
    assert hybrid.documents([4, 2]) == [documents[4], documents[2]]
    assert hybrid.ids([4, 2]) == ["p4", "p2"]


@pytest.mark.parametrize("count", [1, 50])
def test_ties_go_to_the_lowest_number(count):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((2000, 384)).astype(np.float32)
    equal = np.sort(rng.choice(2000, 100, replace=False))
    rows[equal] = rows[equal[0]]
    documents = [Document(str(i), "same words" if i in set(equal.tolist()) else f"other{i}") for i in range(2000)]
    hybrid = HybridRetriever(DenseRetriever(rows, documents), LexicalRetriever(documents))
    query = rows[equal[:1]] + 0.1 * rng.standard_normal((count, 384)).astype(np.float32)
    assert (hybrid.search(["words"] * count, query, 60).numbers == equal[:60]).all()


def test_no_queries(parts):
    hybrid = HybridRetriever(*parts)
    assert hybrid.search([], [], 3).numbers.shape == (0, 3)
    assert hybrid.similarity([], [], np.arange(4)).shape == (0, 4)


def test_bad_arguments_are_named(parts, documents, queries):
    with pytest.raises(ValueError, match="^lexical: expected a corpus of 120"):
        HybridRetriever(parts[0], LexicalRetriever(documents[:5]))
    for weight in (-0.1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="^lexical_weight: expected"):
            HybridRetriever(*parts, lexical_weight=weight)
    with pytest.raises(ValueError, match="^vectors: expected shape"):
        HybridRetriever(*parts).search(TEXTS[:2], queries, 3)
    with pytest.raises(ValueError, match="^numbers: expected"):
        HybridRetriever(*parts).similarity(TEXTS, queries, [-1])
