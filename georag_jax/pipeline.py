"""From a question to the chunks that cover it: retrieve, build the pool, weigh the sub-queries, select."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from georag_jax._errors import Status, require
from georag_jax._types import Encoder, Reranker, Retriever, SubQuerySource
from georag_jax.config import SelectConfig
from georag_jax.documents import Pick, Question, Result, Selection, SubQuery
from georag_jax.retrieval.pool import fuse
from georag_jax.retrieval.store import Index
from georag_jax.selection import select

Pool = Literal["dense", "multi_query"]
Similarity = Literal["dense", "hybrid"]
Preset = Literal["default", "paper"]
OWN_LIST = 20  # R_j of Eq. 7: entries of a sub-query's own list
BLOCK = 64  # questions that are worked on together
RERANKED_BLOCK = 4  # the same with a reranker, which reads K chunks for each: results shall not be long in coming


class _Asked(NamedTuple):
    """One question with its sub-queries, their vectors and lists, and its pool."""

    question: Question
    texts: list[str]
    vector: np.ndarray
    vectors: np.ndarray
    primary: np.ndarray
    own: np.ndarray
    pool: np.ndarray
    candidates: np.ndarray
    affinity: np.ndarray
    scores: np.ndarray | None


class GeoRAG:
    """The pipeline over a retriever, an encoder and a source of sub-queries, each a small Protocol.

    Args:
        retriever: gives lists and the similarity of sub-queries to candidates. A retriever with an attribute
            ``dense`` (as the hybrid one) is validated against that one; any other against itself.
        encoder: must be the one that made the retriever's vectors.
        subqueries: a source of sub-queries.
        config: of the selector; default: the "default" preset.
        pool: "dense", the question's own top list (paper), or "multi_query", its reciprocal-rank fusion with the
            sub-queries' lists.
        candidates: K, the size of the pool, >= 1.
        reranker: scores the question against each chunk of its pool; the selector then reads these scores in place of
            the cosine to the question. Calibrated ones in 0..1 suit it: they are on the cosine's scale, for which the
            prior's temperature and the relevance weight of "mmr" and "dpp" are set; raw logits would leave the prior
            on a few chunks. It costs K readings a question.

    Raises:
        ValueError: an unknown pool, K < 1, or a reranker for a selector that reads no scores.
    """

    def __init__(
        self,
        retriever: Retriever,
        encoder: Encoder,
        subqueries: SubQuerySource,
        *,
        config: SelectConfig | None = None,
        pool: Pool = "multi_query",
        candidates: int = 200,
        reranker: Reranker | None = None,
    ):
        require(pool in get_args(Pool), "pool", f"one of {list(get_args(Pool))}", repr(pool))
        require(candidates >= 1, "candidates", "a pool size >= 1", candidates)
        self.retriever, self.encoder, self.subqueries = retriever, encoder, subqueries
        self.dense: Retriever = getattr(retriever, "dense", retriever)
        self.config = SelectConfig() if config is None else config
        self.pool, self.candidates, self.reranker = pool, candidates, reranker
        if reranker is not None:
            check_scores_are_read(self.config, "reranker")

    @classmethod
    def over_index(
        cls,
        index: Index,
        encoder: Encoder,
        subqueries: SubQuerySource,
        *,
        preset: Preset = "default",
        config: SelectConfig | None = None,
        pool: Pool | None = None,
        similarity: Similarity | None = None,
        candidates: int = 200,
        reranker: Reranker | None = None,
    ) -> "GeoRAG":
        """The pipeline over an index on disk, with the pool and the similarity that belong to a preset.

        Args:
            index: from ``retrieval.open_index``.
            encoder: the one that made the index.
            subqueries: a source of sub-queries.
            preset: "default": the multi-query pool on the hybrid similarity; "paper": the dense one on cosine.
            config: of the selector; default: the preset's.
            pool: instead of the preset's.
            similarity: "dense" (cosine) or "hybrid" (cosine and BM25), instead of the preset's.
            candidates: K, the size of the pool, >= 1.
            reranker: as for ``GeoRAG``.

        Raises:
            ValueError: an unknown preset, pool or similarity, K < 1, or a reranker for a selector that reads no scores.
        """
        config = SelectConfig.preset(preset) if config is None else config
        pool = pool or ("dense" if preset == "paper" else "multi_query")
        similarity = similarity or ("dense" if preset == "paper" else "hybrid")
        require(similarity in get_args(Similarity), "similarity", f"one of {list(get_args(Similarity))}", similarity)
        retriever = index.hybrid if similarity == "hybrid" else index.dense
        return cls(retriever, encoder, subqueries, config=config, pool=pool, candidates=candidates, reranker=reranker)

    def ask(self, question: str) -> Result:
        """The result of one question."""
        return self.run([Question(id="question", text=question)])[0]

    def run(self, questions: Sequence[Question]) -> list[Result]:
        """Results in the order of the questions; an empty list for none.

        Raises:
            ValueError: a blank question; the message names its id.
        """
        return [result for block in self.stream(questions) for result in block]

    def stream(self, questions: Sequence[Question]) -> Iterator[list[Result]]:
        """The same in blocks of questions, as they are done."""
        for question in questions:
            require(bool(question.text.strip()), "questions", "text", f"a blank question with id {question.id!r}")
        size = BLOCK if self.reranker is None else RERANKED_BLOCK
        for start in range(0, len(questions), size):
            asked = self._retrieve(questions[start : start + size])
            found = [one for one in asked if len(one.pool)]
            results = iter(self._describe(found, self._select(found)) if found else [])
            yield [next(results) if len(one.pool) else _nothing_found(one) for one in asked]

    def _retrieve(self, questions: Sequence[Question]) -> list[_Asked]:
        written = self.subqueries.subqueries(questions)
        ends = np.cumsum([len(own) for own in written])
        rows = [slice(end - len(own), end) for own, end in zip(written, ends, strict=True)]
        asked, texts = [question.text for question in questions], [text for own in written for text in own]
        vectors = self.encoder.encode([*asked, *texts], kind="query")
        mine = vectors[len(asked) :]
        primary = self.dense.search(asked, vectors[: len(asked)], self.candidates).numbers
        own = self.dense.search(texts, mine, OWN_LIST).numbers
        if self.pool == "dense":
            pools = [numbers[numbers >= 0] for numbers in primary]
        else:
            lists = self.retriever.search([*asked, *texts], vectors, self.candidates).numbers
            theirs = lists[len(asked) :]
            pools = [fuse(np.vstack([lists[i], theirs[rows[i]]]), self.candidates) for i in range(len(asked))]
        scores = self._rerank(asked, pools)
        return [
            _Asked(
                question=question,
                texts=texts[part],
                vector=vectors[i],
                vectors=mine[part],
                primary=primary[i],
                own=own[part],
                pool=pools[i],
                candidates=self._candidates(pools[i], vectors.shape[1]),
                affinity=self._affinity(texts[part], mine[part], pools[i]),
                scores=scores[i],
            )
            for i, (question, part) in enumerate(zip(questions, rows, strict=True))
        ]

    def _candidates(self, pool: np.ndarray, width: int) -> np.ndarray:
        return self.retriever.embeddings(pool) if len(pool) else np.zeros((0, width), np.float32)

    def _affinity(self, texts: list[str], vectors: np.ndarray, pool: np.ndarray) -> np.ndarray:
        if not texts or not len(pool):
            return np.zeros((len(texts), len(pool)), np.float32)
        return self.retriever.similarity(texts, vectors, pool)

    def _rerank(self, asked: list[str], pools: list[np.ndarray]) -> list[np.ndarray] | list[None]:
        """Scores of each question's pool; None where there is no reranker."""
        if self.reranker is None:
            return [None] * len(asked)
        pairs = [
            (question, document.full_text)
            for question, pool in zip(asked, pools, strict=True)
            for document in self.retriever.documents(pool.tolist())
        ]
        scores = self.reranker.score(pairs)
        require(scores.shape == (len(pairs),), "reranker", f"{len(pairs)} scores", f"shape {scores.shape}")
        return np.split(scores, np.cumsum([len(pool) for pool in pools])[:-1])

    def _select(self, asked: list[_Asked]) -> Selection:
        numbers = lambda of, a: pool_numbers(of, a.pool, len(a.pool))
        return select(
            [a.candidates for a in asked],
            np.stack([a.vector for a in asked]),
            [a.vectors for a in asked],
            scores=[a.scores for a in asked if a.scores is not None] or None,
            affinity=[a.affinity for a in asked],
            retrieved=[numbers(a.own, a) for a in asked],
            primary=[numbers(a.primary, a) for a in asked],
            config=self.config,
        )

    def _describe(self, asked: list[_Asked], selection: Selection) -> list[Result]:
        of_one = lambda i: Selection._make(None if field is None else field[i] for field in selection)
        return [self._result(one, of_one(i)) for i, one in enumerate(asked)]

    def _result(self, asked: _Asked, chosen: Selection) -> Result:
        indices = chosen.indices[chosen.indices >= 0]
        to_picks = asked.candidates @ asked.candidates[indices].T
        mass = np.bincount(to_picks.argmax(1), chosen.demand[: len(asked.pool)], minlength=len(indices))
        weights = chosen.quality[: len(asked.texts)]
        best = asked.affinity[:, indices].argmax(1) if asked.texts else np.zeros(0, int)
        picks = [
            Pick(
                document=document,
                gain=float(chosen.gains[t]),
                score=float(chosen.scores[t]),
                serves=tuple(
                    (text, float(asked.affinity[j, indices[t]]))
                    for j, text in enumerate(asked.texts)
                    if best[j] == t and weights[j] > 0
                ),
                mass=float(mass[t]),
            )
            for t, document in enumerate(self.retriever.documents(asked.pool[indices].tolist()))
        ]
        nearest = asked.primary[asked.primary >= 0][: self.config.k]
        return Result(
            question=asked.question,
            picks=tuple(picks),
            subqueries=tuple(SubQuery(t, float(w)) for t, w in zip(asked.texts, weights, strict=True)),
            coverage=tuple(chosen.coverage[: len(indices)].tolist()),
            redundancy=_redundancy(to_picks[indices]),
            pool_ids=tuple(self.retriever.ids(asked.pool.tolist())),
            cosine=tuple(self.retriever.documents(nearest.tolist())),
            status=int(chosen.status),
            marginal_error=float(chosen.marginal_error),
        )


def check_scores_are_read(config: SelectConfig, argument: str) -> None:
    """Refuses a selector for which scores would change no pick, so that none are computed in vain."""
    in_demand = config.alpha > 0 and config.service.demand_points == "candidates"
    require(
        config.objective in ("cosine", "mmr", "dpp") or in_demand,
        argument,
        'settings that read scores: the "paper" preset, objective "cosine", "mmr" or "dpp", or alpha > 0 with '
        'demand_points "candidates"',
        f"objective {config.objective!r} with alpha {config.alpha}, where it would change no pick",
    )


def pool_numbers(numbers: np.ndarray, pool: np.ndarray, size: int) -> np.ndarray:
    """Corpus numbers as ``select`` wants them: the pool position, or size + the number outside the pool, or -1."""
    order = np.argsort(pool)
    at = order[np.minimum(np.searchsorted(pool, numbers, sorter=order), len(pool) - 1)]
    return np.where(numbers < 0, -1, np.where(pool[at] == numbers, at, size + numbers))


def _nothing_found(asked: _Asked) -> Result:
    """The result where the retriever gave no chunk."""
    return Result(
        question=asked.question,
        picks=(),
        subqueries=tuple(SubQuery(text, 0.0) for text in asked.texts),
        coverage=(),
        redundancy=(),
        pool_ids=(),
        cosine=(),
        status=int(Status.POOL_EXHAUSTED),
        marginal_error=0.0,
    )


def _redundancy(gram: np.ndarray) -> tuple[float, ...]:
    """Mean cosine of the pairs among the first j picks, for every j."""
    pairs = np.tril(gram, -1).sum(1).cumsum()
    count = np.arange(len(gram))
    return tuple((pairs / np.maximum(count * (count + 1) / 2, 1)).tolist())
