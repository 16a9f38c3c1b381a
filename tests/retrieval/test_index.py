import json
import logging
import sys

import numpy as np
import pytest

from georag_jax._errors import MissingExtraError
from georag_jax.retrieval import DenseRetriever, HybridRetriever, LexicalRetriever, build_index, open_index, passages


@pytest.fixture
def corpus(tmp_path, make_corpus):
    return make_corpus(tmp_path / "corpus.jsonl")


@pytest.fixture
def built(tmp_path, corpus, encoder):
    return build_index(corpus, tmp_path / "index", encoder, batch=16)


def test_an_index_is_what_the_parts_are_in_memory(tmp_path, built, encoder):
    index = open_index(tmp_path / "index", encoder)
    assert (index.size, index.fingerprint) == (50, "fake:hash:16")
    assert index.ids == [f"p{i}" for i in range(50)]
    assert index.documents[7].metadata == {"page": 7}
    texts = [document.full_text for document in index.documents]
    dense = DenseRetriever(encoder.encode(texts), list(index.documents))
    lexical = LexicalRetriever(list(index.documents))
    queries, vectors = ["red apple", "the"], encoder.encode(["red apple", "the"], "query")
    for stored, memory in (
        (index.dense, dense),
        (index.lexical, lexical),
        (index.hybrid, HybridRetriever(dense, lexical)),
    ):
        for found, expected in zip(
            stored.search(queries, vectors, 60), memory.search(queries, vectors, 60), strict=True
        ):
            assert (found == expected).all()
        assert stored.documents([3])[0].id == "p3"
    assert (index.dense.embeddings(np.arange(50)) == dense.embeddings(np.arange(50))).all()


@pytest.mark.parametrize("name", ["dense", "hybrid"])
def test_ids_come_without_reading_passages(tmp_path, built, monkeypatch, name):
    index = open_index(tmp_path / "index")
    retriever = getattr(index, name)
    assert "ids" not in vars(index)  # not loaded before they are asked for
    monkeypatch.setattr(passages, "parse_passage", None)
    assert retriever.ids(np.array([7, 0, 49])) == ["p7", "p0", "p49"]
    with pytest.raises(ValueError, match="^numbers: expected"):
        retriever.ids([50])


def test_what_is_embedded_and_how_much_at_a_time(tmp_path, corpus, encoder):
    seen = []
    index = build_index(corpus, tmp_path / "index", encoder, batch=16, progress=lambda *counts: seen.append(counts))
    assert [len(batch) for batch in encoder.batches] == [16, 16, 16, 2]
    assert encoder.batches[0][0] == index.documents[0].full_text
    assert encoder.batches[0][0].startswith("Title 0. ")
    assert seen == [(0, 50), (16, 50), (32, 50), (48, 50), (50, 50)]
    assert not (tmp_path / "index" / "work.json").exists()


def test_a_finished_index_is_left_as_it_is(tmp_path, corpus, built, make_encoder, caplog):
    again = make_encoder()
    with caplog.at_level(logging.INFO, "georag_jax"):
        assert build_index(corpus, tmp_path / "index", again).size == 50
    assert again.batches == []
    assert "finished already" in caplog.text


def test_a_finished_index_of_something_else_is_not_overwritten(tmp_path, corpus, built, make_encoder, make_corpus):
    other_corpus = make_corpus(tmp_path / "other.jsonl", seed=1)
    for args in ((corpus, make_encoder(name="other")), (other_corpus, make_encoder())):
        with pytest.raises(ValueError, match="remove it or choose another directory"):
            build_index(args[0], tmp_path / "index", args[1])
    assert open_index(tmp_path / "index", make_encoder()).size == 50


def test_another_encoder_is_refused_and_both_are_named(tmp_path, built, make_encoder):
    with pytest.raises(ValueError, match="'fake:hash:16'.*'fake:other:16'"):
        open_index(tmp_path / "index", make_encoder(name="other"))
    assert open_index(tmp_path / "index").size == 50


@pytest.mark.parametrize("name", ["vectors.npy", "passages.jsonl", "ids.json", "spans.npy", "lexical/vocab.index.json"])
def test_a_damaged_index_is_refused(tmp_path, built, name):
    path = tmp_path / "index" / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{path.name} is damaged: expected .* bytes"):
        open_index(tmp_path / "index")
    path.unlink()
    with pytest.raises(ValueError, match=f"{path.name} is damaged: .* no such file"):
        open_index(tmp_path / "index")


def test_unreadable_manifests_are_refused(tmp_path, built):
    manifest = tmp_path / "index" / "index.json"
    good = json.loads(manifest.read_text())
    for content, message in (
        ("{", "damaged"),
        ("[]", "damaged"),
        (json.dumps(good | {"format": 2}), "format 1, got 2"),
    ):
        manifest.write_text(content)
        with pytest.raises(ValueError, match=message):
            open_index(tmp_path / "index")


def test_unfinished_and_absent_indexes_are_refused(tmp_path, built):
    (tmp_path / "index" / "index.json").unlink()
    with pytest.raises(ValueError, match="unfinished.*: run georag index again"):
        open_index(tmp_path / "index")
    with pytest.raises(FileNotFoundError, match="no such index directory"):
        open_index(tmp_path / "nowhere")


def test_malformed_lines_stop_the_build_before_it_embeds(tmp_path, corpus, encoder):
    with corpus.open("a") as file:
        file.write('{"id": "p3", "text": "again"}\n')
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 51: id 'p3' was used on line 4 already"):
        build_index(corpus, tmp_path / "index", encoder)
    assert encoder.batches == []
    assert not (tmp_path / "index").exists()


def test_a_directory_with_other_files_is_not_touched(tmp_path, corpus, encoder):
    before = corpus.read_bytes()
    with pytest.raises(ValueError, match="not empty and holds no index"):
        build_index(corpus, tmp_path, encoder)
    assert [path.name for path in tmp_path.iterdir()] == ["corpus.jsonl"]
    assert corpus.read_bytes() == before


def test_one_passage_and_no_words(tmp_path, encoder):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": "a", "text": "The."}')
    index = build_index(corpus, tmp_path / "deep" / "index", encoder)
    vectors = encoder.encode(["the"], "query")
    assert index.hybrid.search(["the"], vectors, 2).numbers.tolist() == [[0, -1]]
    assert index.ids == ["a"]


class BadEncoder:
    fingerprint = "fake:bad"

    def __init__(self, result):
        self.result = result

    def encode(self, texts, kind="document"):
        return self.result(len(texts))


@pytest.mark.parametrize(
    "result",
    [
        lambda n: np.full((n, 4), np.nan),
        lambda n: np.ones((n - 1, 4)),
        lambda n: np.ones(n),
        lambda n: np.ones((n, 4 if n == 16 else 5)),
        lambda n: np.ones((n, 4 if n == 16 else 1)),
    ],
)
def test_an_encoder_that_misbehaves_is_reported(tmp_path, corpus, result):
    with pytest.raises(ValueError, match="expected"):
        build_index(corpus, tmp_path / "index", BadEncoder(result), batch=16)


def test_vectors_of_any_length_and_type_are_stored_as_unit_rows(tmp_path, corpus):
    index = build_index(corpus, tmp_path / "index", BadEncoder(lambda n: np.full((n, 4), 3, np.float16)))
    stored = np.load(tmp_path / "index" / "vectors.npy")
    assert stored.dtype == np.float32
    assert (stored == 0.5).all()
    assert index.dense.width == 4


@pytest.mark.parametrize("module", ["faiss", "bm25s"])
def test_a_missing_extra_is_reported_before_the_work(tmp_path, corpus, encoder, monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError):
        build_index(corpus, tmp_path / "index", encoder)
    assert encoder.batches == []


def test_batch_is_checked(tmp_path, corpus, encoder):
    with pytest.raises(ValueError, match="^batch: expected at least 1"):
        build_index(corpus, tmp_path / "index", encoder, batch=0)
