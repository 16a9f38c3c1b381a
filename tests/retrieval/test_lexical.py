import logging
import math
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from georag_jax._errors import MissingExtraError
from georag_jax.documents import Document
from georag_jax.retrieval import LexicalRetriever, lexical
from georag_jax.retrieval.lexical import bm25s_module


@pytest.fixture
def retriever(documents):
    return LexicalRetriever(documents)


def plain_bm25(documents, query, k1=1.5, b=0.75):
    """Lucene's BM25 from its definition; the texts of these tests hold no stop words."""
    tokenize = lambda text: re.findall(r"\b\w\w+\b", text.lower())
    corpus = [tokenize(document.full_text) for document in documents]
    average = sum(map(len, corpus)) / len(corpus)
    scores = np.zeros(len(corpus))
    for token in tokenize(query):
        df = sum(token in tokens for tokens in corpus)
        for i, tokens in enumerate(corpus):
            tf = tokens.count(token)
            idf = math.log(1 + (len(corpus) - df + 0.5) / (df + 0.5))
            scores[i] += idf * tf / (k1 * (1 - b + b * len(tokens) / average) + tf)
    return scores


QUERIES = ["red apple", "Title 17 bridge bridge", "composer unknownword", "RIVER"]


def test_scores_equal_the_definition(retriever, documents):
    rows = retriever.scores(QUERIES)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows, [plain_bm25(documents, query) for query in QUERIES], atol=1e-5)


@pytest.mark.parametrize("k", [1, 10, 120])
def test_search_equals_brute_force(retriever, brute_force, k):
    rows = retriever.scores(QUERIES)
    hits = retriever.search(QUERIES, None, k)
    numbers, scores = brute_force(rows, k)
    assert (hits.numbers == np.where(scores > 0, numbers, -1)).all()
    assert (hits.scores == scores).all()
    assert hits.numbers.dtype == np.int64


def test_similarity_is_the_share_of_the_best(retriever):
    rows = retriever.scores(QUERIES)
    numbers = np.array([4, 4, 100])
    similarity = retriever.similarity(QUERIES, None, numbers)
    np.testing.assert_allclose(similarity, (rows / rows.max(1, keepdims=True))[:, numbers], atol=1e-6)
    everything = retriever.similarity(QUERIES, None, np.arange(120))
    assert (everything.max(1) == 1).all()
    assert everything.min() >= 0


@pytest.mark.parametrize("searched", [False, True])
@pytest.mark.parametrize("kept", [0, 2, 100])
def test_similarity_is_the_cells_of_the_rows_to_the_bit(monkeypatch, tmp_path, retriever, documents, searched, kept):
    monkeypatch.setattr(lexical, "_KEPT", kept)
    retriever.save(tmp_path / "words")
    loaded = LexicalRetriever.load(tmp_path / "words", documents)
    rows = retriever.relative_rows([*QUERIES, "the", QUERIES[0]])
    numbers = np.array([119, 4, 0, 4, 77, *range(120)])
    if searched:
        loaded.relative_rows(QUERIES)
    for _ in range(2):
        similarity = loaded.similarity([*QUERIES, "the", QUERIES[0]], None, numbers)
        assert similarity.dtype == np.float32
        assert (similarity == rows[:, numbers]).all()


def test_the_corpus_is_gone_through_once_for_search_and_similarity(monkeypatch, retriever):
    passes, real = [], retriever.scores
    monkeypatch.setattr(retriever, "scores", lambda texts: passes.extend(texts) or real(texts))
    retriever.relative_rows(QUERIES)
    retriever.similarity([*QUERIES, "pear", "pear"], None, np.arange(5))
    retriever.similarity(["pear", QUERIES[1]], None, np.arange(7))
    assert passes == [*QUERIES, "pear"]


def test_only_the_newest_best_scores_are_kept(monkeypatch, retriever):
    monkeypatch.setattr(lexical, "_KEPT", 2)
    retriever.relative_rows(["red", "pear"])
    retriever.relative_rows(["red"])
    retriever.relative_rows(["apple"])
    assert list(retriever._best) == ["red", "apple"]


def test_threads_may_share_it(monkeypatch, retriever):
    monkeypatch.setattr(lexical, "_KEPT", 3)
    texts, wrong = [f"{word} {i}" for i in range(9) for word in ("red", "river", "title")], []
    expected = retriever.relative_rows(texts)

    def work(start):
        for i in [*range(start, len(texts)), *range(start)] * 3:
            retriever.relative_rows(texts[i : i + 2])
            found = retriever.similarity(texts[i : i + 3], None, np.arange(120))
            wrong.extend(texts[i] for _ in range(1) if (found != expected[i : i + 3]).any())

    threads = [threading.Thread(target=work, args=(7 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("query", ["the of and", "", "?!", "zzzz qqqq", "a", "\u200b"])
def test_a_query_without_known_tokens_scores_nothing(retriever, query):
    assert (retriever.scores([query]) == 0).all()
    assert (retriever.similarity([query], None, np.arange(5)) == 0).all()
    hits = retriever.search([query, "red"], None, 3)
    assert hits.numbers[0].tolist() == [-1, -1, -1]
    assert (hits.scores[0] == 0).all()
    assert (hits.numbers[1] >= 0).all()


def test_no_queries(retriever):
    assert retriever.scores([]).shape == (0, 120)
    assert retriever.search([], None, 3).numbers.shape == (0, 3)
    assert retriever.similarity([], None, np.arange(2)).shape == (0, 2)


def test_ties_go_to_the_lowest_number():
    retriever = LexicalRetriever([Document(str(i), "same words" if i % 2 else "other") for i in range(40)])
    assert retriever.search(["words"], None, 6).numbers.tolist() == [[1, 3, 5, 7, 9, 11]]


def test_one_document():
    retriever = LexicalRetriever([Document("a", "red apples")])
    hits = retriever.search(["apples", "pears"], None, 2)
    assert hits.numbers.tolist() == [[0, -1], [-1, -1]]
    assert hits.scores[0, 0] > 0
    assert retriever.documents([0])[0].id == "a"


@pytest.mark.parametrize("text", ["the", "?"])
def test_a_corpus_without_any_token(tmp_path, text):
    documents = [Document("a", text), Document("b", text)]
    retriever = LexicalRetriever(documents)
    retriever.save(tmp_path / "words")
    for either in (retriever, LexicalRetriever.load(tmp_path / "words", documents)):
        assert either.scores(["red", "", "the"]).tolist() == [[0, 0]] * 3


def test_title_counts_and_unicode_words_are_found():
    retriever = LexicalRetriever(
        [Document("a", "plain"), Document("b", "Élan vital", "Жизнь"), Document("c", "東京都")]
    )
    assert retriever.search(["жизнь", "ÉLAN", "東京都"], None, 1).numbers.tolist() == [[1], [1], [2]]


def test_saved_and_loaded_it_scores_the_same(tmp_path, retriever, documents):
    retriever.save(tmp_path / "words")
    loaded = LexicalRetriever.load(tmp_path / "words", documents)
    assert (loaded.scores(QUERIES) == retriever.scores(QUERIES)).all()
    with pytest.raises(ValueError, match="^index: expected one of 119 documents, got 120"):
        LexicalRetriever.load(tmp_path / "words", documents[1:])


def test_an_index_of_another_form_of_bm25_is_refused(documents):
    index = bm25s_module().BM25(method="bm25+")
    index.index([["red"]] * 120, show_progress=False)
    with pytest.raises(ValueError, match=r"^index: expected BM25 in Lucene's form, got bm25\+"):
        LexicalRetriever(documents, index)


def test_bad_input_is_named(retriever):
    with pytest.raises(ValueError, match="^documents: expected at least one"):
        LexicalRetriever([])
    with pytest.raises(ValueError, match="^texts: expected a sequence of strings"):
        retriever.scores("red")
    with pytest.raises(ValueError, match="^k: expected"):
        retriever.search(["red"], None, 0)
    with pytest.raises(ValueError, match="^numbers: expected"):
        retriever.similarity(["red"], None, [120])
    with pytest.raises(ValueError, match="^numbers: expected"):
        retriever.documents([-1])


def test_missing_bm25s_names_the_extra(monkeypatch, documents):
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingExtraError, match=r"bm25s .*georag-jax\[retrieval\]"):
        LexicalRetriever(documents)


def test_nothing_is_printed(retriever, capfd, caplog):
    with caplog.at_level(logging.WARNING):
        LexicalRetriever([Document("a", "red apples")]).search(["the", "red"], None, 1)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


SIDE_EFFECTS = """
import logging, sys
{first}
logging.getLogger("bm25s").setLevel(logging.ERROR)
from georag_jax.documents import Document
from georag_jax.retrieval import LexicalRetriever
assert "bm25s" not in sys.modules and "faiss" not in sys.modules
known = sys.modules.get("jax.lax", "absent")
assert LexicalRetriever([Document("a", "red")]).search(["red"], None, 1).numbers[0, 0] == 0
assert logging.getLogger("bm25s").level == logging.ERROR
assert sys.modules.get("jax.lax", "absent") is known
{last}
"""


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("", "assert 'jax' not in sys.modules; import jax.lax; jax.lax.top_k"),
        (
            "import jax.lax; from jax._src import xla_bridge",
            "assert not xla_bridge.backends_are_initialized(); assert jax.lax.add(1, 2) == 3",
        ),
    ],
)
def test_importing_bm25s_starts_no_backend(first, last):
    subprocess.run([sys.executable, "-c", SIDE_EFFECTS.format(first=first, last=last)], check=True, timeout=120)
