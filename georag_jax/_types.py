"""The interfaces that a user can implement, and the alphabet of dimensions.

B queries, K candidates, k picks, m sub-queries, r entries of a sub-query's own list, d embedding width, n texts.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from georag_jax.documents import Document, Question

Kind = Literal["query", "document"]


class Hits(NamedTuple):
    """Ranked lists, one row a query.

    Attributes:
        numbers: [n, k] int64 corpus numbers (0-based rows of the corpus), best first, -1 where a list ends early.
        scores: [n, k] float32, higher is better; 0 where the number is -1.
    """

    numbers: np.ndarray
    scores: np.ndarray


@runtime_checkable
class Encoder(Protocol):
    """Turns texts into vectors.

    ``fingerprint`` names model and settings: an index made with another fingerprint is refused.
    """

    fingerprint: str

    def encode(self, texts: Sequence[str], kind: Kind = "document") -> np.ndarray:
        """Vectors [n, d] float32 with unit rows, in the order of the texts."""
        ...


@runtime_checkable
class Retriever(Protocol):
    """Ranks a corpus for queries given as text and as vector, and gives similarities on a scale of 0 to 1."""

    def search(self, texts: Sequence[str], vectors: np.ndarray, k: int) -> Hits:
        """The k best of the corpus for each of n queries; vectors [n, d]."""
        ...

    def similarity(self, texts: Sequence[str], vectors: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Similarity [n, K] in 0..1 of n queries to the K chunks with these corpus numbers [K]."""
        ...

    def embeddings(self, numbers: np.ndarray) -> np.ndarray:
        """Vectors [..., d] float32 of the chunks with these corpus numbers [...]."""
        ...

    def documents(self, numbers: Sequence[int]) -> list[Document]:
        """The chunks with these corpus numbers."""
        ...

    def ids(self, numbers: Sequence[int]) -> list[str]:
        """The ids alone of the chunks with these corpus numbers, so that no chunk has to be read for its id."""
        ...


@runtime_checkable
class SubQuerySource(Protocol):
    """Writes the sub-queries of questions."""

    def subqueries(self, questions: Sequence[Question]) -> list[list[str]]:
        """For each question its sub-queries, in order; an empty list where there are none."""
        ...


@runtime_checkable
class Reranker(Protocol):
    """Reads a question and a passage together and says how well the passage serves the question.

    ``fingerprint`` names model and settings that change scores.
    """

    fingerprint: str

    def score(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """Scores [n] float32 of n pairs of question and passage, higher is better."""
        ...
