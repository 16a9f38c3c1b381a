"""Makes tests/data/goldens.npz: what the float64 oracle picks under the `paper` preset.

    python tests/make_goldens.py        # from the root of the checkout; takes a few minutes

Real pools: the 200 passages nearest to each of 104 HotpotQA and 104 MuSiQue questions with their 12 sub-queries, from
../shared/data beside the checkout. All vectors of a set are projected on the leading 24 singular directions of its
corpus and rounded to int8, row by row: 1 MB instead of 70, with the structure of real pools, and these integers are the
exact input. The lists of reverse validation are the real ones (full-width vectors, top 20 of the corpus). Pools at full
width are tested live where the data are.

Generated pools: integers from seeded streams, made again by the tests; the file holds a digest of them.

Stored for each pool: picks (-1 where the pool ends), gains, margins (best minus second-best score) and weights.
"""

import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import reference

FILE = Path(__file__).parent / "data" / "goldens.npz"
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
SETS, QUESTIONS, POOL, WIDTH, LIST, MOST = ("hotpotqa", "musique"), 104, 200, 24, 20, 12
KINDS = ("clusters", "flat", "silent", "duplicates", "positive", "no sub-queries")
GROUPS = {"small": (896, 16), "large": (128, 60)}  # name: (pools, largest K)
K_PICKS = 5


class Pools(NamedTuple):
    """B pools, padded: what ``select`` takes."""

    candidates: np.ndarray
    query: np.ndarray
    subqueries: np.ndarray
    retrieved: np.ndarray
    candidate_mask: np.ndarray
    subquery_mask: np.ndarray

    def row(self, b):
        """Candidates, query, sub-queries and the sets of retrieved numbers of one pool, without padding."""
        valid, asked = self.candidate_mask[b], self.subquery_mask[b]
        lists = [set(row[row >= 0].tolist()) for row in self.retrieved[b][asked]]
        return self.candidates[b][valid], self.query[b], self.subqueries[b][asked], lists


def generated(group: str) -> Pools:
    """The pools of a group: K 1..largest, m 0..12, d 4..32, every kind in turn."""
    count, most = GROUPS[group]
    rows = [_generated(np.random.default_rng([20260628, most, b]), KINDS[b % len(KINDS)], most) for b in range(count)]
    return Pools(*(np.stack(field) for field in zip(*rows, strict=True)))


def _generated(rng, kind: str, most: int):
    K, m, d = int(rng.integers(1, most + 1)), int(rng.integers(1, MOST + 1)), int(rng.integers(4, 33))
    centres = rng.integers(-60, 61, (4, d))
    noise = lambda n, size: rng.integers(-size, size + 1, (n, d))
    pool, sub = centres[rng.integers(0, 4, K)] + noise(K, 25), centres[rng.integers(0, 4, m)] + noise(m, 20)
    query = centres.sum(0) + noise(1, 40)[0]
    if kind == "flat":
        pool, sub = 40 + noise(K, 60), 40 + noise(m, 60)
    elif kind == "silent":  # every sub-query points away from every candidate
        pool, sub = rng.integers(1, 100, (K, d)), -rng.integers(1, 100, (m, d))
    elif kind == "positive":
        pool, sub = rng.integers(0, 100, (K, d)) * rng.integers(0, 2, (K, d)), rng.integers(0, 100, (m, d))
    elif kind == "duplicates" and K > 2:
        pool[-1] = pool[0]
        if rng.integers(0, 2):
            pool[K // 2] = 2 * pool[0]
    elif kind == "no sub-queries":
        m = 0
    pool[~pool.any(1), 0] = 1
    query[0] += not query.any()
    sub[~sub.any(1), 0] = 1
    out = Pools(
        *(np.zeros(shape, np.int16) for shape in ((most, 32), (32,), (MOST, 32), (MOST, LIST))),
        np.arange(most) < K,
        np.arange(MOST) < m,
    )
    out.candidates[:K, :d], out.query[:d], out.subqueries[:m, :d] = pool, query, sub[:m]
    out.retrieved[:] = -1
    for row in out.retrieved[:m]:
        length = int(rng.integers(0, LIST + 1))
        numbers = rng.permutation(K + 3 * LIST)[:length]
        row[:length] = np.where(numbers < K, numbers, numbers - K + most)  # from `most` on: outside the pool
    return out


def digest(pools: Pools) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(x).tobytes() for x in pools)).hexdigest()


def full_width(name: str, questions: int, shared: Path = SHARED) -> Pools:
    """The first questions of a set that have sub-queries, at the width of the encoder."""
    folder = shared / name
    corpus = np.load(folder / "minilm_corpus.npz")["corpus"].astype(np.float32)
    vectors = np.load(folder / "minilm_queries.npz")
    ids = lambda file: [json.loads(line)["id"] for line in (folder / file).read_text("utf-8").splitlines()]
    position, asked = {id_: n for n, id_ in enumerate(ids("queries.jsonl"))}, ids("subqueries.jsonl")[:questions]
    rows = []
    for n, question in enumerate(asked):
        query = vectors["queries"][position[question]].astype(np.float32)
        sub = vectors["subqueries"][n].astype(np.float32)
        pool = np.argsort(-(corpus @ query), kind="stable")[:POOL]
        number = np.arange(POOL, POOL + len(corpus))
        number[pool] = np.arange(POOL)
        lists = number[np.argsort(-(sub @ corpus.T), axis=1, kind="stable")[:, :LIST]]
        rows.append(Pools(corpus[pool], query, sub, lists.astype(np.int16), np.ones(POOL, bool), np.ones(MOST, bool)))
    return Pools(*(np.stack(field) for field in zip(*rows, strict=True)))


def narrowed(pools: Pools, corpus: np.ndarray) -> Pools:
    """Projected on the corpus' leading directions and rounded to int8."""
    directions = np.linalg.svd(corpus.astype(np.float64), full_matrices=False)[2][:WIDTH].T

    def narrow(x):
        x = x @ directions
        return np.rint(127 * x / np.abs(x).max(-1, keepdims=True)).astype(np.int8)

    return pools._replace(
        candidates=narrow(pools.candidates), query=narrow(pools.query), subqueries=narrow(pools.subqueries)
    )


def oracle(pools: Pools) -> dict[str, np.ndarray]:
    """Picks, gains, margins [B, k] and weights [B, m] of every pool."""
    B = len(pools.query)
    picks, gains = np.full((B, K_PICKS), -1, np.int16), np.zeros((B, K_PICKS))
    margins, weights = np.full((B, K_PICKS), np.inf), np.zeros((B, MOST))
    for b in range(B):
        cand, query, sub, lists = pools.row(b)
        p, weight = reference.paper_demand(cand, query, sub, lists, range(len(cand)))
        unit, toward = reference.unit(cand.astype(float)), reference.unit(query.astype(float))
        S, score, margin = reference.georag_trace(unit @ unit.T, unit @ toward, p, K_PICKS)
        picks[b, : len(S)], gains[b, : len(S)], margins[b, : len(S)] = S, score, margin
        weights[b, : len(sub)] = weight
    return {"picks": picks, "gains": gains, "margins": margins.astype(np.float32), "weights": weights}


def stored(file: Path = FILE) -> tuple[Pools, dict]:
    """The real pools, and all that the file holds."""
    data = dict(np.load(file))
    B = len(data["real_query"])
    whole = np.ones((B, POOL), bool), np.ones((B, MOST), bool)
    fields = ("candidates", "query", "subqueries", "retrieved")
    return Pools(*(data[f"real_{field}"] for field in fields), *whole), data


def main() -> None:
    parts = [
        narrowed(full_width(name, QUESTIONS), np.load(SHARED / name / "minilm_corpus.npz")["corpus"]) for name in SETS
    ]
    real = Pools(*(np.concatenate(field) for field in zip(*parts, strict=True)))
    out = {f"real_{field}": getattr(real, field) for field in ("candidates", "query", "subqueries", "retrieved")}
    for name, pools in {"real": real, **{group: generated(group) for group in GROUPS}}.items():
        out |= {f"{name}_{key}": value for key, value in oracle(pools).items()}
        out[f"{name}_digest"] = np.array(digest(pools))
    np.savez_compressed(FILE, **out)


if __name__ == "__main__":
    main()
