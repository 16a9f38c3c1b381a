"""Question sets with stored vectors, and the pools that the selectors choose from."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from georag_jax.documents import Document
from georag_jax.pipeline import OWN_LIST, pool_numbers
from georag_jax.retrieval import DenseRetriever, HybridRetriever, LexicalRetriever, fuse

POOLS = ("dense", "multi_query", "hybrid_multi_query")
SIZE = 200


@dataclass(frozen=True, eq=False)
class QuestionSet:
    """The questions with sub-queries of one folder.

    ``queries`` [n, d] and ``subqueries`` [n, m, d] are their vectors; ``gold`` holds corpus numbers.
    """

    name: str
    dense: DenseRetriever
    hybrid: HybridRetriever
    texts: list[str]
    subquery_texts: list[list[str]]
    queries: np.ndarray
    subqueries: np.ndarray
    gold: list[set[int]]


@dataclass(frozen=True, eq=False)
class Pool:
    """The candidates of every question.

    Attributes:
        numbers: [n, K] corpus numbers behind the pool positions.
        arguments: of ``select``.
        gold: corpus numbers.
        question_affinity: [n, K] similarity of the question itself to the candidates.
        own: [n, m, 20] corpus numbers of each sub-query's own list.
        primary: [n, K] corpus numbers of the question's own dense list.
        lists: [n, 1 + m, K] the lists that were fused, the question's first; None for the dense pool.
    """

    numbers: np.ndarray
    arguments: dict[str, np.ndarray]
    gold: list[set[int]]
    question_affinity: np.ndarray
    own: np.ndarray
    primary: np.ndarray
    lists: np.ndarray | None

    def found(self, indices: np.ndarray) -> np.ndarray:
        """[n, k] whether all gold passages are among the first 1, ..., k picks, given pool positions [n, k]."""
        return all_gold(np.take_along_axis(self.numbers, indices, 1), self.gold)


def all_gold(picked: np.ndarray, gold: list[set[int]]) -> np.ndarray:
    """[n, k] whether all gold passages are among the first 1, ..., k of the corpus numbers [n, k]."""
    rows = [
        [wanted <= set(row[: j + 1]) for j in range(len(row))]
        for wanted, row in zip(gold, picked.tolist(), strict=True)
    ]
    return np.array(rows)


def load(folder: Path) -> QuestionSet:
    """Reads corpus, questions, sub-queries and their stored vectors."""
    records = lambda name: [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
    documents = [Document(row["id"], row["text"], row["title"]) for row in records("corpus.jsonl")]
    number = {document.id: n for n, document in enumerate(documents)}
    questions, written = records("queries.jsonl"), records("subqueries.jsonl")
    at = {row["id"]: i for i, row in enumerate(questions)}
    rows = [at[row["id"]] for row in written]
    with np.load(folder / "minilm_corpus.npz") as corpus, np.load(folder / "minilm_queries.npz") as stored:
        dense = DenseRetriever(corpus["corpus"], documents)
        queries, subqueries = _unit(stored["queries"])[rows], _unit(stored["subqueries"])
    return QuestionSet(
        name=folder.name,
        dense=dense,
        hybrid=HybridRetriever(dense, LexicalRetriever(documents)),
        texts=[questions[i]["question"] for i in rows],
        subquery_texts=[row["subqueries"] for row in written],
        queries=queries,
        subqueries=subqueries,
        gold=[{number[g] for g in questions[i]["gold_ids"]} for i in rows],
    )


def make_pool(questions: QuestionSet, kind: str, size: int = SIZE) -> Pool:
    """The pool of every question: its own dense list, or the fusion with the sub-queries' lists.

    The same arrays as ``GeoRAG`` makes, kept so that many selectors can be tried on them.
    """
    retriever = questions.hybrid if kind.startswith("hybrid") else questions.dense
    n, m, d = questions.subqueries.shape
    texts, vectors = [t for own in questions.subquery_texts for t in own], questions.subqueries.reshape(n * m, d)
    primary = questions.dense.search(questions.texts, questions.queries, size).numbers
    own = questions.dense.search(texts, vectors, OWN_LIST).numbers.reshape(n, m, OWN_LIST)
    lists, numbers = None, primary
    if kind != "dense":
        found = retriever.search([*questions.texts, *texts], np.concatenate([questions.queries, vectors]), size).numbers
        lists = np.concatenate([found[:n, None], found[n:].reshape(n, m, size)], 1)
        numbers = np.stack([fuse(each, size) for each in lists])
    similarity = [
        retriever.similarity(
            [questions.texts[i], *questions.subquery_texts[i]],
            np.concatenate([questions.queries[i][None], questions.subqueries[i]]),
            numbers[i],
        )
        for i in range(n)
    ]
    affinity = np.stack(similarity)
    arguments = {
        "candidates": questions.dense.embeddings(numbers),
        "query": questions.queries,
        "subqueries": questions.subqueries,
        "affinity": affinity[:, 1:],
        "retrieved": np.stack([pool_numbers(own[i], numbers[i], size) for i in range(n)]),
        "primary": np.stack([pool_numbers(primary[i], numbers[i], size) for i in range(n)]),
    }
    return Pool(numbers, arguments, questions.gold, affinity[:, 0], own, primary, lists)


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = vectors.astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
