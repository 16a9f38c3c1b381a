"""Evidence with a language model's sub-queries: ``python -m benchmarks.subqueries --data DIR --llm PATH --out FILE``.

DIR is that of ``benchmarks.quality``. On the hybrid multi-query pool with the default preset: the question's own words,
the model's sub-queries alone, both joined, joined under the guard, cut to ten by max-min or by nearness, and the stored
ones of a large model; beside them cosine. What the model writes is kept in FILE.answers.jsonl, so that a run that was
stopped goes on where it was.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import georag_jax as gr
from benchmarks.data import QuestionSet, all_gold, load
from benchmarks.environment import environment
from benchmarks.markdown import slashes, table
from benchmarks.rows import DEFAULT, SHOWN, K, counts
from georag_jax import metrics
from georag_jax.models import SentenceEncoder, resolve
from georag_jax.models.chat import ChatModel
from georag_jax.models.kept import KeptModel
from georag_jax.models.subqueries import (
    Decomposer,
    GeneratedSubQueries,
    GuardedSubQueries,
    JoinedSubQueries,
    NearestSubQueries,
    TwoRoundSubQueries,
)

FREE, JOINED = "the question's own words", "the model's and the question's own"
CONFIG, KEPT = replace(DEFAULT, k=K), 10


class Given:
    """Sub-queries that are there already, in the order of the questions."""

    def __init__(self, lists: list[list[str]]):
        self._lists = lists

    def subqueries(self, questions) -> list[list[str]]:
        """Those of the questions, whose ids are their numbers."""
        return [self._lists[int(question.id)] for question in questions]


def measure(sets: list[QuestionSet], model: ChatModel, encoder: SentenceEncoder, most: int, rounds: int, n: int):
    """The rows of every set, and what became of the model's answers."""
    rows: list[dict[str, Any]] = []
    generation: dict[str, Any] = {}
    for questions in sets:
        asked = [gr.Question(id=str(i), text=text) for i, text in enumerate(questions.texts[:most])]
        start, source = time.perf_counter(), GeneratedSubQueries(model, n=n, encoder=encoder)
        written = _written(source, asked)
        generation[questions.name] = {**source.total_report._asdict(), "seconds": round(time.perf_counter() - start, 1)}
        generated = Given(written)
        guard = GuardedSubQueries(generated, Decomposer(), questions.dense, encoder)
        sources = {
            FREE: (Decomposer(), CONFIG),
            "the model's alone": (generated, CONFIG),
            "the model's alone, max-min to 10": (generated, replace(CONFIG, subqueries_kept=KEPT)),
            "the model's alone, nearest 10": (NearestSubQueries(generated, encoder, KEPT), CONFIG),
            JOINED: (JoinedSubQueries([generated, Decomposer()]), CONFIG),
            f"{JOINED}, guarded": (JoinedSubQueries([guard, Decomposer()]), CONFIG),
        }
        if rounds == 2:
            second = Given(_written(TwoRoundSubQueries(source, questions.dense, encoder), asked))
            sources[f"{JOINED}, two rounds"] = (JoinedSubQueries([second, Decomposer()]), CONFIG)
        sources["stored, of a large model"] = (Given(questions.subquery_texts), CONFIG)
        rows += _rows(questions, asked, encoder, sources)
        generation[questions.name] |= {"guarded": guard.fallen_back, "agreements": _rounded(guard.agreements)}
    return rows, generation


def _written(source, asked: list[gr.Question]) -> list[list[str]]:
    """One question at a time: what was answered is kept, and the bar moves."""
    from tqdm import tqdm

    return [source.subqueries([question])[0] for question in tqdm(asked, unit=" questions", disable=None)]


def _rows(questions: QuestionSet, asked: list[gr.Question], encoder, sources: dict[str, tuple]) -> list[dict[str, Any]]:
    documents = questions.dense.documents(np.arange(questions.dense.size))
    number, gold = {document.id: n for n, document in enumerate(documents)}, questions.gold[: len(asked)]
    found, many = {}, {}
    for label, (source, config) in sources.items():
        results = gr.GeoRAG(questions.hybrid, encoder, source, config=config).run(asked)
        found["cosine top-k"] = all_gold(np.array([[number[d.id] for d in r.cosine] for r in results]), gold)
        found[label] = all_gold(np.array([[number[p.document.id] for p in r.picks] for r in results]), gold)
        many[label] = round(float(np.mean([len(r.subqueries) for r in results])), 1)
    at = [k - 1 for k in SHOWN]
    return [
        {"set": questions.name, "subqueries": label, "of_each": many.get(label), "questions": len(asked)}
        | {"counts": counts(hits)}
        | {"minus_free": [_rounded(metrics.interval(hits[:, j].astype(float) - found[FREE][:, j])) for j in at]}
        for label, hits in found.items()
    ]


def _rounded(values) -> list[float]:
    return [round(float(value), 3) for value in values]


def page(rows: list[dict[str, Any]]) -> str:
    """The rows as a table."""
    head = ["set", "sub-queries", "a question", "all gold at 2 / 3 / 5", "of", "minus the question's own, at 5"]
    cells = [
        [row["set"], row["subqueries"], str(row["of_each"] or "-"), slashes(row["counts"]), str(row["questions"])]
        + ["{:+.3f} [{:+.3f}, {:+.3f}]".format(*row["minus_free"][-1])]
        for row in rows
    ]
    return "\n".join(table(head, cells))


def main(words: list[str] | None = None) -> None:
    """Measures and writes the file."""
    from georag_jax.models import LanguageModel

    parser = argparse.ArgumentParser(prog="python -m benchmarks.subqueries", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the question sets")
    parser.add_argument("--llm", required=True, help="a known name, a directory or a GGUF file")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["hotpotqa", "musique"])
    parser.add_argument("--questions", type=int, default=120, help="of each set, the first ones")
    parser.add_argument("--samples", type=int, default=20, help="answers, and most sub-queries, a question")
    parser.add_argument("--rounds", type=int, choices=(1, 2), default=1)
    options = parser.parse_args(words)
    model = LanguageModel.from_path(options.llm)
    kept = KeptModel(model, f"{options.out}.answers.jsonl")
    sets = [load(options.data / name) for name in options.sets]
    encoder = SentenceEncoder.from_directory(resolve("minilm"))
    rows, generation = measure(sets, kept, encoder, options.questions, options.rounds, options.samples)
    settings = {"llm": model.fingerprint, "samples": options.samples, "rounds": options.rounds}
    result = {"environment": environment(), "settings": settings, "generation": generation, "rows": rows}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(page(rows))
    print(
        {name: {k: v for k, v in own.items() if k != "agreements"} for name, own in generation.items()}, file=sys.stderr
    )


if __name__ == "__main__":
    main()
