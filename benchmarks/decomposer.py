"""The pipeline with the decomposer, which needs no language model: sub-queries from the question's own words."""

from dataclasses import replace
from typing import Any

import numpy as np

import georag_jax as gr
from benchmarks import published
from benchmarks.data import QuestionSet, all_gold
from benchmarks.published import SETS
from benchmarks.rows import DEFAULT, POINTS, K, counts

CONFIGS = {
    "decomposer, preset default": replace(DEFAULT, k=K),
    "decomposer, points, power 4, discount .6": replace(POINTS, service_discount=0.6, k=K),
}


def rows(sets: list[QuestionSet]) -> list[dict[str, Any]] | None:
    """Counts on the hybrid multi-query pool; None where the encoder's weights cannot be had."""
    from georag_jax.models import ModelNotFoundError, SentenceEncoder, resolve
    from georag_jax.models.subqueries import Decomposer

    try:
        encoder = SentenceEncoder.from_directory(resolve("minilm"))
    except ModelNotFoundError:
        return None
    out = []
    for questions in sets:
        asked = [gr.Question(id=str(i), text=text) for i, text in enumerate(questions.texts)]
        for label, config in CONFIGS.items():
            results = gr.GeoRAG(questions.hybrid, encoder, Decomposer(), config=config).run(asked)
            picked = [[pick.document.id for pick in result.picks] for result in results]
            row = {"set": questions.name, "selector": label, "counts": counts(_found(picked, questions))}
            row["subqueries"] = round(float(np.mean([len(result.subqueries) for result in results])), 1)
            if questions.name in SETS:
                row["target"] = list(published.DECOMPOSER[questions.name])
            out.append(row)
    return out


def _found(picked: list[list[str]], questions: QuestionSet) -> np.ndarray:
    documents = questions.dense.documents(np.arange(questions.dense.size))
    number = {document.id: n for n, document in enumerate(documents)}
    return all_gold(np.array([[number[id_] for id_ in row] for row in picked]), questions.gold)
