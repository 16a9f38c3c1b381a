import subprocess
import sys
import threading

import numpy as np
import pytest

from georag_jax._errors import MissingExtraError
from georag_jax._types import Retriever
from georag_jax.documents import Document
from georag_jax.retrieval import DenseRetriever


@pytest.fixture
def retriever(vectors, documents):
    return DenseRetriever(vectors, documents)


def queries(count, width=16, seed=1):
    rows = np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)
    return ["?"] * count, rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("count", [1, 2, 30])
@pytest.mark.parametrize("k", [1, 7, 119, 120])
def test_search_equals_brute_force(retriever, vectors, brute_force, count, k):
    texts, rows = queries(count)
    hits = retriever.search(texts, rows, k)
    numbers, scores = brute_force(rows.astype(np.float64) @ vectors.T.astype(np.float64), k)
    assert hits.numbers.tolist() == numbers.tolist()
    np.testing.assert_allclose(hits.scores, scores, atol=1e-6)
    assert (hits.numbers.dtype, hits.scores.dtype) == (np.int64, np.float32)


def test_is_a_retriever(retriever):
    assert isinstance(retriever, Retriever)
    assert (retriever.size, retriever.width) == (120, 16)


@pytest.mark.parametrize("k", [1, 3, 40, 70])
@pytest.mark.parametrize("count", [1, 50])
def test_ties_go_to_the_lowest_number(k, count):
    """A hundred equal rows, scattered: more than the few spare hits, so the tie reaches beyond the cut."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3000, 384)).astype(np.float32)
    equal = np.sort(rng.choice(3000, 100, replace=False))
    rows[equal] = rows[equal[0]]
    retriever = DenseRetriever(rows, [Document(str(i), "x") for i in range(3000)])
    query = rows[equal[:1]] + 0.1 * rng.standard_normal((count, 384)).astype(np.float32)
    hits = retriever.search(["?"] * count, query, k)
    assert (hits.numbers == equal[:k]).all()
    assert (hits.scores == hits.scores[:, :1]).all()


def test_scores_do_not_depend_on_the_batch(retriever):
    texts, rows = queries(40)
    together = retriever.search(texts, rows, 20)
    alone = [retriever.search(["?"], row[None], 20) for row in rows]
    assert (together.numbers == np.concatenate([a.numbers for a in alone])).all()
    assert (together.scores == np.concatenate([a.scores for a in alone])).all()


def test_k_beyond_the_corpus_is_padded(documents, vectors):
    retriever = DenseRetriever(vectors[:3], documents[:3])
    hits = retriever.search(*queries(2), 5)
    assert hits.numbers.shape == hits.scores.shape == (2, 5)
    assert (np.sort(hits.numbers[:, :3]) == [0, 1, 2]).all()
    assert (hits.numbers[:, 3:] == -1).all()
    assert (hits.scores[:, 3:] == 0).all()


@pytest.mark.parametrize("vectors_of_none", [[], np.zeros((0, 16), np.float32)])
def test_no_queries(retriever, vectors_of_none):
    assert retriever.search([], vectors_of_none, 4).numbers.shape == (0, 4)
    assert retriever.similarity([], vectors_of_none, np.array([1, 2])).shape == (0, 2)


def test_empty_corpus():
    hits = DenseRetriever(np.zeros((0, 4)), []).search(["?"], [[1, 0, 0, 0]], 2)
    assert hits.numbers.tolist() == [[-1, -1]]


def test_similarity_is_the_clipped_cosine(retriever, vectors):
    texts, rows = queries(3)
    numbers = np.array([7, 0, 7, 119])
    similarity = retriever.similarity(texts, rows, numbers)
    assert similarity.dtype == np.float32
    np.testing.assert_allclose(similarity, np.clip(rows @ vectors[numbers].T, 0, 1), atol=1e-6)
    assert ((similarity >= 0) & (similarity <= 1)).all()
    own = retriever.similarity(["?"], vectors[:1], np.array([0]))
    assert own <= 1
    assert retriever.similarity(texts, rows, []).shape == (3, 0)


def test_embeddings_and_documents_by_number(retriever, vectors, documents):
    assert (retriever.embeddings(np.array([[3, 1], [0, 0]])) == vectors[[[3, 1], [0, 0]]]).all()
    assert retriever.documents([5, 2]) == [documents[5], documents[2]]
    assert retriever.documents([]) == []
    for numbers in ([0, -1], [120], [0.5]):
        with pytest.raises(ValueError, match="^numbers: expected"):
            retriever.embeddings(np.array(numbers))
        with pytest.raises(ValueError, match="^numbers: expected"):
            retriever.documents(numbers)


def test_ids_by_number(retriever, vectors, documents):
    assert retriever.ids(np.array([5, 2, 5])) == [documents[5].id, documents[2].id, documents[5].id]
    assert retriever.ids([]) == []
    for numbers in ([-1], [120], [0.5]):
        with pytest.raises(ValueError, match="^numbers: expected"):
            retriever.ids(numbers)
    asked = []
    given = DenseRetriever(vectors, documents, lambda: asked.append(1) or [f"given {i}" for i in range(120)])
    assert not asked
    assert given.ids([3, 0]) == ["given 3", "given 0"]


def test_similarity_is_the_score_of_search_to_the_bit():
    """Equal chunks, scattered, stay equal, whatever chunks and queries share the call."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((6000, 384)).astype(np.float32)
    equal = rng.choice(6000, 50, replace=False)
    rows[equal] = rows[equal[0]]
    retriever = DenseRetriever(rows, [Document(str(i), "x") for i in range(6000)])
    query = rows[equal[:1]] + rng.standard_normal((3, 384)).astype(np.float32)
    hits = retriever.search(["?"] * 3, query, 203)
    for numbers in (np.arange(6000), rng.permutation(6000), equal, equal[:1]):
        similarity = retriever.similarity(["?"] * 3, query, numbers)
        assert (np.ptp(similarity[:, np.isin(numbers, equal)], axis=1) == 0).all()
        assert (similarity[:1] == retriever.similarity(["?"], query[:1], numbers)).all()
    for i, numbers in enumerate(hits.numbers):
        similarity = retriever.similarity(["?"] * 3, query, numbers)
        assert (similarity[i] == np.clip(hits.scores[i], 0, 1)).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_rows_of_any_length_and_type_become_unit(dtype):
    given = np.array([[3, 4], [0, 0], [0, 2]], dtype)
    before = given.copy()
    retriever = DenseRetriever(given, [Document(str(i), "x") for i in range(3)])
    np.testing.assert_allclose(retriever.embeddings(np.arange(3)), [[0.6, 0.8], [0, 0], [0, 1]], atol=1e-6)
    assert (given == before).all()
    hits = retriever.search(["?", "?"], [[0, 7], [0, 0]], 3)
    assert hits.numbers.tolist() == [[2, 0, 1], [0, 1, 2]]
    np.testing.assert_allclose(hits.scores, [[1, 0.8, 0], [0, 0, 0]], atol=1e-6)


def test_bad_input_is_named(retriever, documents, vectors):
    broken = vectors.copy()
    broken[3, 2] = np.nan
    with pytest.raises(ValueError, match=r"^vectors: expected finite values, got NaN or infinity in row \[3\]"):
        DenseRetriever(broken, documents)
    with pytest.raises(ValueError, match="^documents: expected 120 of them, got 3"):
        DenseRetriever(vectors, documents[:3])
    with pytest.raises(ValueError, match="row"):
        retriever.search(["?"], broken[3:4], 2)
    for texts, rows in ((["?"], vectors[:2]), (["?"], vectors[:1, :8]), (["?"], vectors[0]), ("?", vectors[:1])):
        with pytest.raises(ValueError, match="expected"):
            retriever.search(texts, rows, 2)
    with pytest.raises(ValueError, match="^k: expected at least 1"):
        retriever.search(["?"], vectors[:1], 0)


def test_a_memory_map_is_used_where_it_lies(tmp_path, documents, vectors):
    np.save(tmp_path / "v.npy", vectors)
    mapped = np.load(tmp_path / "v.npy", mmap_mode="r")
    retriever = DenseRetriever(mapped, documents)
    assert np.shares_memory(retriever._vectors, mapped)
    texts, rows = queries(30)
    hits, expected = retriever.search(texts, rows, 10), DenseRetriever(vectors, documents).search(texts, rows, 10)
    assert (hits.numbers == expected.numbers).all()
    assert (hits.scores == expected.scores).all()
    for array in (*hits, retriever.similarity(texts, rows, [1]), retriever.embeddings([1])):
        assert type(array) is np.ndarray


def test_threads_may_share_it(retriever):
    texts, rows = queries(20)
    expected, wrong = retriever.search(texts, rows, 10).numbers, []

    def work():
        wrong.extend(i for i in range(20) if (retriever.search(texts, rows, 10).numbers != expected).any())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_missing_faiss_names_the_extra(monkeypatch, vectors, documents):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"faiss-cpu .*georag-jax\[retrieval\]"):
        DenseRetriever(vectors, documents)


IN_ONE_PROCESS_WITH_JAX = """
import jax, jax.numpy as jnp, numpy as np
a = jnp.ones((300, 300)); (a @ a).block_until_ready()
from georag_jax.documents import Document
from georag_jax.retrieval import DenseRetriever
rows = np.random.default_rng(0).standard_normal((2000, 64)).astype(np.float32)
retriever = DenseRetriever(rows, [Document(str(i), "x") for i in range(2000)])
for _ in range(3):
    assert (retriever.search(["?"] * 50, jnp.asarray(rows[:50]), 5).numbers[:, 0] == np.arange(50)).all()
    (a @ a).block_until_ready()
"""


def test_faiss_and_jax_share_a_process():
    subprocess.run([sys.executable, "-c", IN_ONE_PROCESS_WITH_JAX], check=True, timeout=120)
