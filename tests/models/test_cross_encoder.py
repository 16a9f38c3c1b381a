"""Cross-encoders: parity with upstream, batches, segments, labels, and what is refused."""

import json
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from georag_jax._types import Reranker
from georag_jax.models.bert import abstract_classifier, classifier_table
from georag_jax.models.bert_config import BertConfig
from georag_jax.models.cross_encoder import NLI, CrossEncoder, pair_logits
from georag_jax.models.loading import load_state

PARITY = {"rtol": 0, "atol": 1e-5}
NAMES = ["bert_reranker", "bert_nli", "xlm_reranker"]


@pytest.fixture(scope="module")
def encoders(data):
    return {name: CrossEncoder.from_directory(data / name) for name in NAMES}


@pytest.fixture(scope="module")
def goldens(data):
    found = {}
    for name in NAMES:
        with np.load(data / f"{name}.npz") as arrays:
            found[name] = dict(arrays)
        found[name]["pairs"] = [tuple(pair) for pair in found[name]["pairs"].tolist()]
    return found


@pytest.fixture
def changed(data, tmp_path):
    """Makes a copy of a directory in which one JSON file has other fields; None removes a field."""

    def changed(name, file, **fields):
        home = shutil.copytree(data / name, tmp_path / name, dirs_exist_ok=True)
        raw = json.loads((home / file).read_text()) | fields
        (home / file).write_text(json.dumps({key: value for key, value in raw.items() if value is not None}))
        return home

    return changed


@pytest.mark.parametrize("name", NAMES)
def test_hidden_states_and_logits_are_upstreams_with_padding_in_odd_places(data, goldens, name):
    golden, home = goldens[name], data / name
    raw = json.loads((home / "config.json").read_text())
    config = BertConfig.from_mapping(raw)
    graph, abstract = abstract_classifier(config, len(raw["id2label"]))
    model = nnx.merge(graph, load_state(home / "model.safetensors", abstract, classifier_table(config)))
    inputs = [jnp.asarray(golden[key]) for key in ("ids", "mask", "segments")]
    mask = golden["mask"]
    np.testing.assert_allclose(np.asarray(model.encoder(*inputs))[mask], golden["hidden"][mask], **PARITY)
    np.testing.assert_allclose(np.asarray(model(*inputs)), golden["logits"], **PARITY)


@pytest.mark.parametrize("name", NAMES)
def test_pairs_score_as_upstream(encoders, goldens, name):
    golden = goldens[name]
    np.testing.assert_allclose(encoders[name].logits(golden["pairs"]), golden["pair_logits"], **PARITY)
    assert golden["pair_logits"].std(0).min() > 0.1


def test_the_golden_pairs_are_cut_and_empty_and_foreign(encoders, goldens):
    pairs = goldens["bert_reranker"]["pairs"]
    lengths = [tokens.shape[1] for tokens in encoders["bert_reranker"]._tokenise(pairs)]
    assert max(lengths) == 30
    assert lengths.count(30) > 3
    assert any(not first for first, _ in pairs)
    assert any(not second for _, second in pairs)
    assert any("🌧️" in first + second for first, second in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_a_score_does_not_depend_on_its_batch(data, encoders, goldens, name):
    pairs = goldens[name]["pairs"][3:9]
    alone = np.concatenate([encoders[name].logits([pair]) for pair in pairs])
    np.testing.assert_allclose(encoders[name].logits(pairs[::-1])[::-1], alone, **PARITY)
    small = CrossEncoder.from_directory(data / name, batch_tokens=96)
    np.testing.assert_allclose(small.logits(pairs), alone, **PARITY)


def test_a_second_call_compiles_nothing(encoders, goldens):
    pairs = goldens["bert_nli"]["pairs"]
    encoders["bert_nli"].logits(pairs)
    compiled = pair_logits._cache_size()
    encoders["bert_nli"].logits(pairs[::-1])
    assert pair_logits._cache_size() == compiled


def test_logits_are_calibrated_by_choice(data, encoders, goldens):
    pairs, logits = goldens["xlm_reranker"]["pairs"], goldens["xlm_reranker"]["pair_logits"]
    np.testing.assert_allclose(encoders["xlm_reranker"].probabilities(pairs), 1 / (1 + np.exp(-logits)), **PARITY)
    np.testing.assert_allclose(encoders["xlm_reranker"].score(pairs), 1 / (1 + np.exp(-logits[:, 0])), **PARITY)
    raw = CrossEncoder.from_directory(data / "xlm_reranker", calibrated=False)
    np.testing.assert_allclose(raw.score(pairs), logits[:, 0], **PARITY)
    assert raw.score(pairs).dtype == encoders["xlm_reranker"].score(pairs).dtype == np.float32
    assert raw.fingerprint != encoders["xlm_reranker"].fingerprint


def test_several_logits_become_a_softmax(encoders, goldens):
    logits = goldens["bert_nli"]["pair_logits"].astype(float)
    wanted = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    found = encoders["bert_nli"].probabilities(goldens["bert_nli"]["pairs"])
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, **PARITY)


def test_far_logits_stay_finite(encoders, monkeypatch):
    far = np.array([[-1e4], [1e4]], np.float32)
    monkeypatch.setattr(encoders["bert_reranker"], "logits", lambda *_: far)
    np.testing.assert_array_equal(encoders["bert_reranker"].score([("a", "b")] * 2), [0, 1])


def test_a_cross_encoder_with_one_label_is_a_reranker(encoders):
    assert isinstance(encoders["bert_reranker"], Reranker)
    assert encoders["bert_reranker"].labels == ("LABEL_0",)
    with pytest.raises(ValueError, match="score: expected a model with one label, got .'CONTRADICTION'"):
        encoders["bert_nli"].score([("a", "b")])


def test_no_pairs(encoders):
    assert encoders["bert_nli"].logits([]).shape == (0, 3)
    assert encoders["bert_reranker"].score([]).shape == (0,)


def test_odd_texts_are_defined(encoders):
    scores = encoders["xlm_reranker"].score([("\ud800", "a"), ("?", "a"), ("\x00", "word " * 1000)])
    assert np.isfinite(scores).all()
    assert scores[0] == scores[1]


def test_progress_counts_the_pairs_done(data, goldens):
    seen = []
    encoder = CrossEncoder.from_directory(data / "bert_reranker", batch_tokens=200)
    encoder.score(goldens["bert_reranker"]["pairs"], progress=seen.append)
    assert seen == sorted(set(seen))
    assert len(seen) > 1
    assert seen[-1] == len(goldens["bert_reranker"]["pairs"])


@pytest.mark.parametrize(
    "pairs, message",
    [
        ([("a", "b"), ("a", 3)], r"pairs\[1\]: expected two str, got \('a', 3\)"),
        ([("a",)], r"pairs\[0\]: expected two str, got \('a',\)"),
        (["ab"], r"pairs\[0\]: expected two str, got 'ab'"),
        ([None], r"pairs\[0\]: expected two str, got None"),
        (("question", "passage"), r"pairs\[0\]: expected two str, got 'question'"),
    ],
)
def test_what_is_not_a_pair_is_refused(encoders, pairs, message):
    with pytest.raises(TypeError, match=message):
        encoders["bert_reranker"].score(pairs)


def test_batch_tokens_must_be_positive(data):
    with pytest.raises(ValueError, match="batch_tokens: expected at least 1, got 0"):
        CrossEncoder.from_directory(data / "bert_reranker", batch_tokens=0)


def test_nli_goes_by_the_names_of_the_labels(data, encoders, goldens):
    golden = goldens["bert_nli"]
    found = NLI.from_directory(data / "bert_nli").judge(golden["pairs"])
    probabilities = np.asarray(jax.nn.softmax(golden["pair_logits"], axis=1))
    np.testing.assert_allclose(found.contradiction, probabilities[:, 0], **PARITY)
    np.testing.assert_allclose(found.entailment, probabilities[:, 1], **PARITY)
    np.testing.assert_allclose(found.neutral, probabilities[:, 2], **PARITY)
    assert NLI(encoders["bert_nli"]).fingerprint == encoders["bert_nli"].fingerprint


@pytest.mark.parametrize("labels", [["LABEL_0", "LABEL_1", "LABEL_2"], ["entailment", "not_entailment", "neutral"]])
def test_nli_refuses_labels_that_it_cannot_map(changed, labels):
    home = changed("bert_nli", "config.json", id2label=dict(enumerate(labels)))
    with pytest.raises(ValueError, match=r"expected the names \['entailment', 'neutral', 'contradiction'\], got") as e:
        NLI.from_directory(home)
    assert labels[0] in str(e.value)


def test_nli_refuses_a_reranker(data):
    with pytest.raises(ValueError, match="labels of config.json: expected the names .*, got .'LABEL_0'."):
        NLI.from_directory(data / "bert_reranker")


@pytest.mark.parametrize(
    "name, file, fields, message",
    [
        ("bert_nli", "config.json", {"is_decoder": True}, "is_decoder=True is not implemented"),
        ("bert_nli", "config.json", {"id2label": None}, "does not fit the network: misshapen tensor classifier.bias"),
        (
            "bert_nli",
            "config.json",
            {"id2label": {"0": "a", "2": "b"}},
            "id2label: expected the numbers 0, 1, 2, ..",
        ),
        ("bert_nli", "config.json", {"problem_type": "multi_label_classification"}, "a problem_type with one label"),
        ("bert_nli", "config.json", {"vocab_size": 50}, "tokenizer: expected at most 50 tokens, got 94"),
        ("xlm_reranker", "sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case False, got True"),
        ("xlm_reranker", "sentence_bert_config.json", {"transformer_task": "fill-mask"}, "sequence-classification"),
        ("xlm_reranker", "config_sentence_transformers.json", {"default_prompt_name": "q"}, "no default_prompt_name"),
    ],
)
def test_what_is_not_honoured_is_refused(changed, name, file, fields, message):
    with pytest.raises(ValueError, match=message):
        CrossEncoder.from_directory(changed(name, file, **fields))


def test_modules_after_the_network_are_refused(changed):
    home = changed("xlm_reranker", "config.json")
    modules = json.loads((home / "modules.json").read_text())
    (home / "modules.json").write_text(json.dumps([*modules, {"type": "upstream.LogitScore", "path": "1"}]))
    with pytest.raises(ValueError, match="modules.json: expected one Transformer .*'LogitScore'"):
        CrossEncoder.from_directory(home)


def test_a_tokeniser_with_more_segments_than_the_network_is_refused(changed):
    home = changed("bert_reranker", "config.json", type_vocab_size=1)
    tensors = load_file(home / "model.safetensors")
    name = "bert.embeddings.token_type_embeddings.weight"
    save_file(tensors | {name: tensors[name][:1].copy()}, home / "model.safetensors")
    with pytest.raises(ValueError, match="tokenizer: expected 1 segments, got 2"):
        CrossEncoder.from_directory(home).score([("the cat", "a dog")])


def test_roberta_is_never_told_segments(changed, encoders, goldens):
    home = changed("xlm_reranker", "config.json")
    raw = json.loads((home / "tokenizer.json").read_text())
    for piece in raw["post_processor"]["pair"][-2:]:
        next(iter(piece.values()))["type_id"] = 1
    (home / "tokenizer.json").write_text(json.dumps(raw))
    pairs = goldens["xlm_reranker"]["pairs"][:5]
    np.testing.assert_array_equal(CrossEncoder.from_directory(home).score(pairs), encoders["xlm_reranker"].score(pairs))


def test_the_pooler_of_the_pretrained_roberta_is_left_out(changed, encoders, goldens):
    home = changed("xlm_reranker", "config.json")
    tensors = load_file(home / "model.safetensors")
    pooler = {"weight": np.ones((32, 32), np.float32), "bias": np.ones(32, np.float32)}
    save_file(
        tensors | {f"roberta.pooler.dense.{name}": array for name, array in pooler.items()}, home / "model.safetensors"
    )
    pairs = goldens["xlm_reranker"]["pairs"][:5]
    np.testing.assert_array_equal(CrossEncoder.from_directory(home).score(pairs), encoders["xlm_reranker"].score(pairs))


def test_the_length_is_the_tokenisers_and_at_most_the_networks(changed, data):
    length = lambda home: CrossEncoder.from_directory(home).fingerprint.split(":")[2]
    assert length(data / "bert_reranker") == "30"
    assert length(changed("bert_reranker", "tokenizer_config.json", model_max_length=int(1e30))) == "44"
    home = changed("bert_reranker", "config.json")
    (home / "tokenizer_config.json").unlink()
    assert length(home) == "44"


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(changed, file):
    home = changed("bert_reranker", "config.json")
    (home / file).unlink()
    with pytest.raises(FileNotFoundError, match=file):
        CrossEncoder.from_directory(home)
