"""What a reader answers from different picks: ``python -m benchmarks.reading --data DIR --llm PATH --out FILE``.

DIR is that of ``benchmarks.quality``. Five chunks of the hybrid multi-query pool, made with the stored sub-queries, are
chosen by cosine, MMR, SubQ-MaxCos and the default preset; a language model of this machine answers from each choice.
Exact match and F1 by HotpotQA's rules, and their paired differences from cosine. What the model answers is kept in
FILE.answers.jsonl, so that a run that was stopped goes on where it was.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import georag_jax as gr
from benchmarks import baselines, published
from benchmarks.data import Pool, QuestionSet, load, make_pool
from benchmarks.environment import environment
from benchmarks.markdown import table
from benchmarks.rows import DEFAULT, K, choose
from georag_jax import metrics
from georag_jax.models.answers import Reader
from georag_jax.models.chat import ChatModel
from georag_jax.models.kept import KeptModel

KIND = "hybrid_multi_query"
CHOICES = {
    published.COSINE: baselines.cosine,
    published.MMR: baselines.mmr,
    published.MAX: baselines.subquery_max,
    "preset default": lambda pool, k: choose(pool, DEFAULT, k),
}


def measure(questions: QuestionSet, accepted: list[list[str]], model: ChatModel) -> list[dict[str, Any]]:
    """One row for every choice of chunks."""
    pool = make_pool(questions, KIND)
    asked = [
        gr.Question(str(i), text, tuple(own))
        for i, (text, own) in enumerate(zip(questions.texts, accepted, strict=True))
    ]
    scores = {label: _scores(questions, pool, rule(pool, K), asked, model) for label, rule in CHOICES.items()}
    first = scores[published.COSINE]
    return [
        {"set": questions.name, "chunks": label, "questions": len(asked)}
        | {name: _rounded(metrics.interval(values)) for name, values in own.items()}
        | {f"{name}_minus_cosine": _rounded(metrics.interval(own[name] - first[name])) for name in ("exact", "f1")}
        for label, own in scores.items()
    ]


def _scores(
    questions: QuestionSet, pool: Pool, indices: np.ndarray, asked: list[gr.Question], model: ChatModel
) -> dict[str, np.ndarray]:
    from tqdm import tqdm

    numbers = np.take_along_axis(pool.numbers, indices, 1)
    reader, answers = Reader(model), []
    for question, row in zip(tqdm(asked, unit=" answers", disable=None), numbers.tolist(), strict=True):
        answers += reader.answer([question], [questions.dense.documents(row)])
    column = lambda value: np.array([value(q, a) for q, a in zip(asked, answers, strict=True)], float)
    return {
        "exact": column(lambda q, a: metrics.exact_match(a.text, q.answers)),
        "f1": column(lambda q, a: metrics.f1(a.text, q.answers)),
        "refused": column(lambda q, a: a.refused),
        "cited": column(lambda q, a: bool(a.citations)),
        "all_gold": pool.found(indices)[:, -1].astype(float),
    }


def _rounded(values) -> list[float]:
    return [round(float(value), 3) for value in values]


def first(questions: QuestionSet, most: int) -> QuestionSet:
    """The set with its first questions alone."""
    fields = ("texts", "subquery_texts", "queries", "subqueries", "gold")
    return replace(questions, **{field: getattr(questions, field)[:most] for field in fields})


def read_answers(folder: Path) -> list[list[str]]:
    """Accepted answers of the questions that have stored sub-queries, in the order of those."""
    records = lambda name: [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]
    accepted = {row["id"]: row["answers"] for row in records("queries.jsonl")}
    return [accepted[row["id"]] for row in records("subqueries.jsonl")]


def page(rows: list[dict[str, Any]]) -> str:
    """The rows as a table."""
    shown = "{:.3f} [{:.3f}, {:.3f}]".format
    gain = "{:+.3f} [{:+.3f}, {:+.3f}]".format
    head = ["set", "chunks", "exact match", "F1", "F1 minus cosine's", "refused", "with a citation", "all gold"]
    cells = [
        [row["set"], row["chunks"], shown(*row["exact"]), shown(*row["f1"]), gain(*row["f1_minus_cosine"])]
        + [f"{row[name][0]:.2f}" for name in ("refused", "cited", "all_gold")]
        for row in rows
    ]
    return "\n".join(table(head, cells))


def main(words: list[str] | None = None) -> None:
    """Measures and writes the file."""
    from georag_jax.models import LanguageModel

    parser = argparse.ArgumentParser(prog="python -m benchmarks.reading", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the question sets")
    parser.add_argument("--llm", required=True, help="a known name, a directory or a GGUF file")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["hotpotqa", "musique"])
    parser.add_argument("--questions", type=int, default=60, help="of each set, the first ones")
    options = parser.parse_args(words)
    model = LanguageModel.from_path(options.llm)
    kept, rows = KeptModel(model, f"{options.out}.answers.jsonl"), []
    for name in options.sets:
        accepted = read_answers(options.data / name)[: options.questions]
        rows += measure(first(load(options.data / name), options.questions), accepted, kept)
    settings = {"llm": model.fingerprint, "pool": KIND, "k": K}
    result = {"environment": environment(), "settings": settings, "rows": rows}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(page(rows))


if __name__ == "__main__":
    main()
