"""Question sets with stored vectors, and the pools that the selectors choose from."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from georag_jax.documents import Document
from georag_jax.pipeline import OWN_LIST, pool_numbers
from georag_jax.retrieval import DenseRetriever, HybridRetriever, LexicalRetriever, fuse

POOLS = ("dense", "multi_query", "hybrid_multi_query")


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Pool:
    """Arguments of ``select`` for every question, and the corpus numbers [n, K] behind the pool positions."""

    numbers: np.ndarray
    arguments: dict[str, np.ndarray]
    gold: list[set[int]]

    def found(self, indices: np.ndarray) -> np.ndarray:
        """[n, k] whether all gold passages are among the first 1, ..., k picks, given pool positions [n, k]."""
        picked = np.take_along_axis(self.numbers, indices, 1)
        rows = [
            [gold <= set(row[: j + 1]) for j in range(len(row))]
            for gold, row in zip(self.gold, picked.tolist(), strict=True)
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


def make_pool(questions: QuestionSet, kind: str, size: int = 200) -> Pool:
    """The pool of every question: its own dense list, or the fusion with the sub-queries' lists."""
    retriever = questions.hybrid if kind.startswith("hybrid") else questions.dense
    n, m, d = questions.subqueries.shape
    texts, vectors = [t for own in questions.subquery_texts for t in own], questions.subqueries.reshape(n * m, d)
    primary = questions.dense.search(questions.texts, questions.queries, size).numbers
    own = questions.dense.search(texts, vectors, OWN_LIST).numbers.reshape(n, m, OWN_LIST)
    if kind == "dense":
        numbers = primary
    else:
        lists = retriever.search([*questions.texts, *texts], np.concatenate([questions.queries, vectors]), size).numbers
        theirs = lists[n:].reshape(n, m, size)
        numbers = np.stack([fuse(np.vstack([lists[i], theirs[i]]), size) for i in range(n)])
    similarity = [
        retriever.similarity(questions.subquery_texts[i], questions.subqueries[i], numbers[i]) for i in range(n)
    ]
    arguments = {
        "candidates": questions.dense.embeddings(numbers),
        "query": questions.queries,
        "subqueries": questions.subqueries,
        "affinity": np.stack(similarity),
        "retrieved": np.stack([pool_numbers(own[i], numbers[i], size) for i in range(n)]),
        "primary": np.stack([pool_numbers(primary[i], numbers[i], size) for i in range(n)]),
    }
    return Pool(numbers, arguments, questions.gold)


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = vectors.astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
