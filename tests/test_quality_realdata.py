"""The default reaches its targets on the development questions, and the pipeline picks what the arrays say."""

import numpy as np
import pytest

import georag_jax as gr
from benchmarks import data, published

pytestmark = [pytest.mark.realdata, pytest.mark.slow]
POOLS = {"dense": "dense", "hybrid_multi_query": "multi_query"}


@pytest.fixture(scope="module", params=published.SETS)
def questions(request, shared):
    return data.load(shared / request.param)


@pytest.fixture(scope="module")
def pools(questions):
    return {kind: data.make_pool(questions, kind) for kind in POOLS}


class Stored:
    """Encoder and source of sub-queries that look everything up."""

    fingerprint = "stored"

    def __init__(self, questions):
        texts = [*questions.texts, *(text for own in questions.subquery_texts for text in own)]
        width = questions.queries.shape[1]
        vectors = np.concatenate([questions.queries, questions.subqueries.reshape(-1, width)])
        self.vectors, self.written = dict(zip(texts, vectors, strict=True)), questions.subquery_texts

    def encode(self, texts, kind="document"):
        return np.stack([self.vectors[text] for text in texts])

    def subqueries(self, questions):
        return [self.written[int(question.id)] for question in questions]


@pytest.mark.parametrize("kind", POOLS)
def test_the_default_reaches_the_targets(questions, pools, kind):
    hits = pools[kind].found(gr.select(**pools[kind].arguments).indices)
    counts = hits[:, [1, 2, 4]].sum(0)
    assert (counts >= published.TARGETS[kind][questions.name]).all(), counts


@pytest.mark.parametrize("kind", POOLS)
def test_the_pipeline_picks_what_the_arrays_say(questions, pools, kind):
    stored, n = Stored(questions), 20
    retriever = questions.dense if kind == "dense" else questions.hybrid
    pipeline = gr.GeoRAG(retriever, stored, stored, pool=POOLS[kind])
    asked = [gr.Question(id=str(i), text=text) for i, text in enumerate(questions.texts[:n])]
    got = [[pick.document.id for pick in result.picks] for result in pipeline.run(asked)]
    first = {name: array[:n] for name, array in pools[kind].arguments.items()}
    numbers = np.take_along_axis(pools[kind].numbers[:n], gr.select(**first).indices, 1)
    assert got == [[document.id for document in questions.dense.documents(row)] for row in numbers.tolist()]


def test_the_paper_preset_runs(pools):
    few = {name: array[:4] for name, array in pools["dense"].arguments.items()}
    got = gr.select(**few, config=gr.SelectConfig.preset("paper"))
    assert all(len(set(row)) == 5 and min(row) >= 0 for row in got.indices.tolist())
    assert ((got.quality > 0).sum(1) <= 10).all()
    assert 1e-3 < got.marginal_error.max() < 0.5  # 100 iterations at eps .01 do not converge
    assert got.status[got.marginal_error.argmax()] & int(gr.Status.NOT_CONVERGED)
