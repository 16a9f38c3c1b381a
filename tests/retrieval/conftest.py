"""A small deterministic encoder and corpus."""

import hashlib
import json
import time

import numpy as np
import pytest

from georag_jax.documents import Document

WORDS = [
    "red",
    "green",
    "apple",
    "pear",
    "plum",
    "river",
    "bridge",
    "novel",
    "author",
    "film",
    "composer",
    "city",
    "war",
]


class FakeEncoder:
    """Vectors seeded by a hash of the text; counts what it was asked for, and may be slow or break."""

    def __init__(self, width=16, name="hash", sleep=0.0, fail_after=None):
        self.fingerprint = f"fake:{name}:{width}"
        self.width, self.sleep, self.fail_after = width, sleep, fail_after
        self.batches = []

    def encode(self, texts, kind="document"):
        if self.fail_after is not None and len(self.batches) >= self.fail_after:
            raise RuntimeError("the encoder broke")
        self.batches.append(list(texts))
        time.sleep(self.sleep)
        rows = np.empty((len(texts), self.width), np.float32)
        for row, text in zip(rows, texts, strict=True):
            seed = int.from_bytes(hashlib.sha256(f"{self.fingerprint}\0{text}".encode()).digest()[:8], "big")
            row[:] = np.random.default_rng(seed).standard_normal(self.width)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def passages(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {"id": f"p{i}", "title": f"Title {i}", "text": " ".join(rng.choice(WORDS, 8)), "page": i} for i in range(count)
    ]


def write_corpus(path, count=50, seed=0):
    rows = passages(count, seed)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def make_encoder():
    return FakeEncoder


@pytest.fixture
def make_corpus():
    return write_corpus


@pytest.fixture
def documents():
    return [Document(row["id"], row["text"], row["title"]) for row in passages(120)]


@pytest.fixture
def encoder():
    return FakeEncoder()


@pytest.fixture
def vectors(documents, encoder):
    return encoder.encode([d.full_text for d in documents])


@pytest.fixture
def brute_force():
    """Hits of full score rows [n, corpus]: numbers and scores of the k best, ties to the lowest number."""

    def best(rows, k):
        order = np.argsort(-rows, axis=1, kind="stable")[:, :k]
        return order, np.take_along_axis(rows, order, 1)

    return best
