"""Search by cosine and words together."""

from collections.abc import Sequence

import numpy as np

from georag_jax._errors import require
from georag_jax._types import Hits
from georag_jax.documents import Document
from georag_jax.retrieval._rows import (
    SLACK,
    blocks,
    candidates,
    checked_numbers,
    checked_queries,
    checked_texts,
    fill,
    no_hits,
)
from georag_jax.retrieval.dense import DenseRetriever
from georag_jax.retrieval.lexical import LexicalRetriever


class HybridRetriever:
    """Ranks a corpus by a weighted mean of cosine and relative BM25; a ``Retriever``.

    The score is (cosine + w * BM25 / the query's best BM25 in the corpus) / (1 + w). Ties go to the lowest corpus
    number.

    Args:
        dense: gives the cosines, the embeddings and the documents; kept as ``.dense``.
        lexical: gives BM25 over the same documents in the same order; kept as ``.lexical``.
        lexical_weight: w, 0 and up; 0 ranks as ``dense`` does.

    Raises:
        ValueError: the two differ in size, or the weight is negative or not finite.

    >>> chunks = [Document("a", "red apples"), Document("b", "green pears")]
    >>> hybrid = HybridRetriever(DenseRetriever([[1.0, 0.0], [0.8, 0.6]], chunks), LexicalRetriever(chunks))
    >>> hybrid.search(["pears"], [[1.0, 0.0]], k=2).numbers
    array([[1, 0]])
    """

    def __init__(self, dense: DenseRetriever, lexical: LexicalRetriever, lexical_weight: float = 0.3):
        require(dense.size == lexical.size, "lexical", f"a corpus of {dense.size} as the dense one", lexical.size)
        require(0 <= lexical_weight < np.inf, "lexical_weight", "0 or more, finite", lexical_weight)
        self.dense, self.lexical, self.lexical_weight = dense, lexical, float(lexical_weight)

    @property
    def size(self) -> int:
        """Number of chunks in the corpus."""
        return self.dense.size

    def search(self, texts: Sequence[str], vectors: np.ndarray, k: int) -> Hits:
        """The k chunks of the corpus that score highest for each query.

        Every chunk is scored, some queries at a time so that memory stays bounded.

        Args:
            texts: n queries.
            vectors: [n, d] floating, their vectors.
            k: at least 1; may exceed the corpus.

        Returns:
            Hits of shape [n, k]; the scores are not clipped, so they may be negative.

        Raises:
            ValueError: shapes that do not fit, values that are not finite, or k < 1.
        """
        texts, queries = checked_texts(texts), checked_queries(texts, vectors, self.dense.width)
        hits = no_hits(len(queries), k)
        for block in blocks(len(queries), self.size):
            words = self.lexical.relative_rows(texts[block])
            rows = self._mix(self.dense.cosine_rows(queries[block]), words)
            for i, row, word in zip(range(block.start, block.stop), rows, words, strict=True):
                numbers = candidates(row, k, SLACK)
                cosine = self.dense.cosine(queries[i : i + 1], numbers)[0]
                fill(hits, i, numbers, self._mix(cosine, word[numbers]))
        return hits

    def similarity(self, texts: Sequence[str], vectors: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """The score of each query for given chunks, clipped to 0..1: the scores of ``search``, to the bit.

        Args:
            texts: n queries.
            vectors: [n, d] floating, their vectors.
            numbers: [K] corpus numbers.

        Returns:
            [n, K] float32 in 0..1.

        Raises:
            ValueError: shapes that do not fit, values that are not finite, or a number outside the corpus.
        """
        queries = checked_queries(texts, vectors, self.dense.width)
        cosine = self.dense.cosine(queries, checked_numbers(numbers, self.size))
        return np.clip(self._mix(cosine, self.lexical.similarity(texts, None, numbers)), 0, 1)

    def embeddings(self, numbers: np.ndarray) -> np.ndarray:
        """Unit vectors [..., d] float32 of the chunks with these corpus numbers [...], from ``dense``."""
        return self.dense.embeddings(numbers)

    def documents(self, numbers: Sequence[int]) -> list[Document]:
        """The chunks with these corpus numbers [K], in this order."""
        return self.dense.documents(numbers)

    def ids(self, numbers: Sequence[int]) -> list[str]:
        """The ids of the chunks with these corpus numbers [K], in this order, from ``dense``."""
        return self.dense.ids(numbers)

    def _mix(self, cosine: np.ndarray, words: np.ndarray) -> np.ndarray:
        weight = np.float32(self.lexical_weight)
        return (cosine + weight * words) / (1 + weight)
