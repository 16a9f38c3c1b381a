"""Search by words: BM25."""

import logging
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from georag_jax._errors import MissingExtraError, require
from georag_jax._types import Hits
from georag_jax.documents import Document
from georag_jax.retrieval._rows import blocks, candidates, checked_numbers, checked_texts, fill, no_hits

_ABSENT = object()

# Queries whose best score is kept: more than one block of questions has, in a few MiB.
_KEPT = 2**14


def bm25s_module() -> ModuleType:
    """Imports bm25s without its side effects; MissingExtraError where it is not installed.

    On import bm25s runs a JAX top-k where JAX is installed, which starts a backend and may take a GPU's memory, and
    sets its logger to DEBUG. It is told that there is no ``jax.lax`` while it looks, and its logger is put back.
    """
    if "bm25s" in sys.modules:
        return _import_bm25s()
    logger = logging.getLogger("bm25s")
    level, lax = logger.level, sys.modules.get("jax.lax", _ABSENT)
    sys.modules["jax.lax"] = None  # type: ignore[assignment]
    try:
        return _import_bm25s()
    finally:
        if lax is _ABSENT:
            del sys.modules["jax.lax"]
        else:
            sys.modules["jax.lax"] = lax  # type: ignore[assignment]
        logger.setLevel(level)


def _import_bm25s() -> ModuleType:
    try:
        import bm25s
    except ModuleNotFoundError as error:
        if error.name != "bm25s":
            raise
        raise MissingExtraError("bm25s", "retrieval") from error
    return bm25s


class LexicalRetriever:
    """Ranks a corpus by BM25 (Lucene's form, k1 1.5, b 0.75) of title and text.

    Tokens are what ``bm25s.tokenize`` makes of a text by default: lower case, words of two characters and more,
    bm25s's English stop words removed, no stemming. A token that a query repeats counts as often. It has no vectors,
    hence no ``embeddings``: for selection combine it with a dense one in a ``HybridRetriever``.

    Args:
        documents: the n documents.
        index: a ``bm25s.BM25`` of just these documents where one exists already; else it is built.

    Raises:
        ValueError: no documents, or an index of another number of documents or of another form of BM25.
        MissingExtraError: bm25s is not installed.

    >>> retriever = LexicalRetriever([Document("a", "red apples"), Document("b", "green pears")])
    >>> retriever.search(["Which pears?"], None, k=1).numbers
    array([[1]])
    """

    def __init__(self, documents: Sequence[Document], index: Any = None):
        self._bm25s = bm25s_module()
        require(len(documents) > 0, "documents", "at least one", 0)
        self._documents = documents
        self._index = self._build(document.full_text for document in documents) if index is None else index
        indexed = self._index.scores["num_docs"]
        require(indexed == len(documents), "index", f"one of {len(documents)} documents", indexed)
        require(self._index.method == "lucene", "index", "BM25 in Lucene's form", self._index.method)
        # np.asarray makes plain views of memory maps, which cost more to slice.
        parts = [np.asarray(self._index.scores[name]) for name in ("indptr", "indices", "data")]
        self._starts, self._numbers, self._values = parts
        self._best: dict[str, float] = {}
        self._lock = threading.Lock()

    @classmethod
    def load(cls, directory: str | Path, documents: Sequence[Document]) -> "LexicalRetriever":
        """Opens what ``save`` wrote, memory-mapped, for the same documents."""
        index = bm25s_module().BM25.load(directory, mmap=True, show_progress=False)
        return cls(documents, index)

    def save(self, directory: str | Path) -> None:
        """Writes the index, without the documents, into a directory, which is made."""
        self._index.save(directory, show_progress=False)

    @property
    def size(self) -> int:
        """Number of chunks in the corpus."""
        return len(self._documents)

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """BM25 of every chunk of the corpus for each query.

        Args:
            texts: n queries.

        Returns:
            [n, corpus] float32, 0 and up; all 0 for a query without a token that the corpus knows.
        """
        texts = checked_texts(texts)
        rows = np.zeros((len(texts), self.size), np.float32)
        for row, postings in zip(rows, self._postings(texts), strict=True):
            for numbers, values in postings:
                row[numbers] += values
        return rows

    def search(self, texts: Sequence[str], vectors: np.ndarray | None, k: int) -> Hits:
        """The k chunks that score highest for each query; chunks that share no token with it are never listed.

        Args:
            texts: n queries.
            vectors: not looked at.
            k: at least 1; may exceed the corpus.

        Returns:
            Hits of shape [n, k]; scores are BM25; ties go to the lowest corpus number.

        Raises:
            ValueError: k < 1.
        """
        texts = checked_texts(texts)
        hits = no_hits(len(texts), k)
        for block in blocks(len(texts), self.size):
            for i, row in enumerate(self.scores(texts[block]), block.start):
                numbers = candidates(row, k)
                numbers = numbers[row[numbers] > 0]
                fill(hits, i, numbers, row[numbers])
        return hits

    def similarity(self, texts: Sequence[str], vectors: np.ndarray | None, numbers: np.ndarray) -> np.ndarray:
        """BM25 of each query for given chunks as a share of the query's best BM25 in the whole corpus.

        Args:
            texts: n queries.
            vectors: not looked at.
            numbers: [K] corpus numbers.

        Returns:
            [n, K] float32 in 0..1; all 0 where the query's best is 0.

        Raises:
            ValueError: a number outside the corpus.
        """
        texts, numbers = checked_texts(texts), checked_numbers(numbers, self.size)
        order = np.argsort(numbers)
        # In the postings' own type: searchsorted would convert all of them to another one.
        wanted = numbers[order].astype(self._numbers.dtype)
        found = np.zeros((len(texts), len(wanted)), np.float32)
        for row, postings in zip(found, self._postings(texts), strict=True):
            for chunks, values in postings:  # the same sums in the same order as in ``scores``, hence the same bits
                place = chunks.searchsorted(wanted)
                row += values.take(place, mode="clip") * (chunks.take(place, mode="clip") == wanted)
        best = self._bests(texts)[:, None]
        result = np.empty_like(found)
        result[:, order] = np.divide(found, best, out=found, where=best > 0)
        return result

    def relative_rows(self, texts: Sequence[str]) -> np.ndarray:
        """Scores [n, corpus] float32 divided by each query's best; all 0 where that is 0."""
        rows = self.scores(texts)
        best = rows.max(axis=1, keepdims=True)
        self._keep(texts, best[:, 0])
        return np.divide(rows, best, out=rows, where=best > 0)

    def documents(self, numbers: Sequence[int]) -> list[Document]:
        """The chunks with these corpus numbers [K], in this order.

        Raises:
            ValueError: a number outside the corpus, such as the padding -1.
        """
        return [self._documents[number] for number in checked_numbers(numbers, self.size).tolist()]

    def _postings(self, texts: list[str]) -> Iterator[list[tuple[np.ndarray, np.ndarray]]]:
        """For each text, for each of its tokens: the chunks that hold it, ascending, and what it adds to each."""
        for tokens in self._bm25s.tokenize(texts, return_ids=False, show_progress=False):
            known = self._index.get_tokens_ids(tokens)
            parts = [slice(self._starts[token], self._starts[token + 1]) for token in known]
            yield [(self._numbers[part], self._values[part]) for part in parts if part.start < part.stop]

    def _bests(self, texts: list[str]) -> np.ndarray:
        """Each query's best score [n] float32 in the whole corpus.

        Only a pass over the corpus finds it. The queries of a similarity were mostly searched for just before, so the
        pass that ``relative_rows`` made then is kept in mind instead of made again.
        """
        with self._lock:
            known = {text: self._best[text] for text in texts if text in self._best}
        missing = [text for text in dict.fromkeys(texts) if text not in known]
        for block in blocks(len(missing), self.size):
            best = self.scores(missing[block]).max(axis=1)
            self._keep(missing[block], best)
            known.update(zip(missing[block], best.tolist(), strict=True))
        return np.array([known[text] for text in texts], np.float32)

    def _keep(self, texts: Sequence[str], best: np.ndarray) -> None:
        with self._lock:
            for text, value in zip(texts, best.tolist(), strict=True):
                self._best.pop(text, None)  # so that it stands last, as the newest
                self._best[text] = value
            while len(self._best) > _KEPT:
                del self._best[next(iter(self._best))]

    def _build(self, texts: Iterable[str]) -> Any:
        tokenized = self._bm25s.tokenize(texts, show_progress=False)
        if not tokenized.vocab:
            # bm25s cannot index a corpus without any token: every document gets the one that no query can hold.
            tokenized = self._bm25s.tokenization.Tokenized(ids=[[0] for _ in tokenized.ids], vocab={"": 0})
        index = self._bm25s.BM25(method="lucene", k1=1.5, b=0.75)
        index.index(tokenized, show_progress=False)
        return index
