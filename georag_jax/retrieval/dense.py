"""Exact search by cosine."""

from collections.abc import Callable, Sequence
from types import ModuleType

import numpy as np

from georag_jax._errors import MissingExtraError, require
from georag_jax._types import Hits
from georag_jax.documents import Document
from georag_jax.retrieval._rows import SLACK, candidates, checked_numbers, checked_queries, fill, no_hits, unit_rows

# FAISS breaks ties as it likes: so many more than k are asked for, to see whether the k-th is tied with the next.
_SPARE = 16

# Chunks scored at a time where few numbers are scored again; bounds the gathered copy of their vectors.
_GATHER = 4096


def faiss_module() -> ModuleType:
    """Imports FAISS; MissingExtraError where it is not installed."""
    try:
        import faiss
    except ModuleNotFoundError as error:
        if error.name != "faiss":
            raise
        raise MissingExtraError("faiss-cpu", "retrieval") from error
    return faiss


class DenseRetriever:
    """Ranks a corpus by the cosine of its vectors to the query's, exactly; a ``Retriever``.

    Scores are the same whatever queries share a call, equal vectors have equal scores, and ties go to the lowest
    corpus number. Safe to use from several threads.

    Args:
        vectors: [n, d] one row a document, any floating type; brought to unit length unless they are so to 1e-5. A
            float32 ``np.memmap`` is used where it lies, its rows taken to be unit, as an index holds them.
        documents: the n documents in the order of the rows.
        ids: gives the documents' n ids, asked at every call of the method ``ids``; None takes them from the documents.

    Raises:
        ValueError: a row that is not finite, or as many documents as rows are not given.
        MissingExtraError: FAISS is not installed.

    >>> retriever = DenseRetriever([[1.0, 0.0], [0.0, 1.0]], [Document("a", "x"), Document("b", "y")])
    >>> retriever.search(["?"], [[0.6, 0.8]], k=1).numbers
    array([[1]])
    """

    def __init__(
        self, vectors: np.ndarray, documents: Sequence[Document], ids: Callable[[], Sequence[str]] | None = None
    ):
        self._faiss = faiss_module()
        mapped = isinstance(vectors, np.memmap) and vectors.dtype == np.float32 and vectors.flags.c_contiguous
        # np.asarray makes a plain view of a memory map: arithmetic then gives plain arrays.
        self._vectors = np.asarray(vectors) if mapped else unit_rows(vectors, "vectors")
        require(len(documents) == len(self._vectors), "documents", f"{len(self._vectors)} of them", len(documents))
        self._documents, self._ids = documents, ids

    @property
    def size(self) -> int:
        """Number of chunks in the corpus."""
        return len(self._vectors)

    @property
    def width(self) -> int:
        """Dimension of the vectors."""
        return self._vectors.shape[1]

    def search(self, texts: Sequence[str], vectors: np.ndarray, k: int) -> Hits:
        """The k chunks nearest to each query.

        Args:
            texts: n queries; only their number matters here.
            vectors: [n, d] floating, their vectors.
            k: at least 1; may exceed the corpus.

        Returns:
            Hits of shape [n, k]; scores are cosines, -1..1.

        Raises:
            ValueError: shapes that do not fit, values that are not finite, or k < 1.
        """
        queries = checked_queries(texts, vectors, self.width)
        hits = no_hits(len(queries), k)
        asked = min(k + _SPARE, self.size)
        if not len(queries) or not asked:
            return hits
        # knn is what IndexFlatIP runs, without the index: that would copy a memory-mapped corpus into memory.
        metric = self._faiss.METRIC_INNER_PRODUCT
        rough, found = self._faiss.knn(queries, self._vectors, asked, metric=metric)
        for i, query in enumerate(queries):
            numbers, scores = found[i], self.cosine(query[None], found[i])[0]
            if asked < self.size and np.partition(scores, -k)[-k] - rough[i, -1] <= SLACK:
                # A tie at the cut may reach beyond what was asked for: look at the whole corpus.
                row = np.einsum("cd,d->c", self._vectors, query)
                numbers = candidates(row, k)
                scores = row[numbers]
            fill(hits, i, numbers, scores)
        return hits

    def similarity(self, texts: Sequence[str], vectors: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Cosine of each query to given chunks, clipped to 0..1: the scores of ``search``, to the bit.

        Args:
            texts: n queries; only their number matters here.
            vectors: [n, d] floating, their vectors.
            numbers: [K] corpus numbers.

        Returns:
            [n, K] float32 in 0..1.

        Raises:
            ValueError: shapes that do not fit, values that are not finite, or a number outside the corpus.
        """
        queries = checked_queries(texts, vectors, self.width)
        return np.clip(self.cosine(queries, checked_numbers(numbers, self.size)), 0, 1)

    def embeddings(self, numbers: np.ndarray) -> np.ndarray:
        """Unit vectors [..., d] float32 of the chunks with these corpus numbers [...].

        Raises:
            ValueError: a number outside the corpus, such as the padding -1.
        """
        return self._vectors[checked_numbers(numbers, self.size)]

    def documents(self, numbers: Sequence[int]) -> list[Document]:
        """The chunks with these corpus numbers [K], in this order.

        Raises:
            ValueError: a number outside the corpus, such as the padding -1.
        """
        return [self._documents[number] for number in checked_numbers(numbers, self.size).tolist()]

    def ids(self, numbers: Sequence[int]) -> list[str]:
        """The ids of the chunks with these corpus numbers [K], in this order; of an index no passage is read.

        Raises:
            ValueError: a number outside the corpus, such as the padding -1.
        """
        wanted: list[int] = checked_numbers(numbers, self.size).tolist()
        if self._ids is None:
            return [self._documents[number].id for number in wanted]
        ids = self._ids()
        return [ids[number] for number in wanted]

    def cosine_rows(self, queries: np.ndarray) -> np.ndarray:
        """Cosines [n, corpus] float32 of unit queries [n, d] to every chunk, good to about 1e-6."""
        return queries @ self._vectors.T

    def cosine(self, queries: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Cosines [n, c] float32 of unit queries [n, d] to chunks [c]; the same bits for the same two vectors, always.

        A matrix product rounds differently from place to place, which would tell equal chunks apart. It is also handed
        to threads, and for a pool's few rows waking them costs far more than the product where the cores are busy.
        """
        scores = np.empty((len(queries), len(numbers)), np.float32)
        for start in range(0, len(numbers), _GATHER):
            part = slice(start, start + _GATHER)
            vectors = self._vectors[numbers[part]]
            for row, query in zip(scores, queries, strict=True):
                row[part] = np.einsum("cd,d->c", vectors, query)
        return scores
