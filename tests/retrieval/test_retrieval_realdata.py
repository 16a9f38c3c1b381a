"""On the development question sets: in how many questions does the candidate pool hold all evidence?"""

import json
from pathlib import Path

import numpy as np
import pytest

from georag_jax.documents import Document
from georag_jax.retrieval import DenseRetriever, HybridRetriever, LexicalRetriever, fuse

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
POOL = 200


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "dense_ceiling", "hybrid_ceiling"), [("hotpotqa", 110, 120), ("musique", 87, 117)])
def test_ceilings(name, dense_ceiling, hybrid_ceiling):
    if not (DATA / name).is_dir():
        pytest.skip(f"the question sets are not at {DATA}")
    documents = [Document(row["id"], row["text"], row["title"]) for row in rows(DATA / name / "corpus.jsonl")]
    dense = DenseRetriever(np.load(DATA / name / "minilm_corpus.npz")["corpus"], documents)
    hybrid = HybridRetriever(dense, LexicalRetriever(documents))
    vectors = np.load(DATA / name / "minilm_queries.npz")
    number = {document.id: i for i, document in enumerate(documents)}
    questions = {row["id"]: (i, row) for i, row in enumerate(rows(DATA / name / "queries.jsonl"))}
    held = {"dense": 0, "hybrid": 0}
    for parts, row in zip(vectors["subqueries"], rows(DATA / name / "subqueries.jsonl"), strict=True):
        position, question = questions[row["id"]]
        gold = {number[identifier] for identifier in question["gold_ids"]}
        texts = [question["question"], *row["subqueries"]]
        queries = np.concatenate([vectors["queries"][position : position + 1], parts])
        held["dense"] += gold <= set(dense.search(texts[:1], queries[:1], POOL).numbers[0].tolist())
        pool = fuse(hybrid.search(texts, queries, POOL).numbers, POOL)
        held["hybrid"] += gold <= set(pool.tolist())
    assert held == {"dense": dense_ceiling, "hybrid": hybrid_ceiling}
