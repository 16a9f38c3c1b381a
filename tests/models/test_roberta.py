"""RoBERTa encoders: positions that skip padding, checkpoints of their own names, sentence vectors."""

import dataclasses
import json
import re
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from safetensors.numpy import load_file, save_file

from georag_jax.models.bert import BERT, POOLED, abstract_bert, abstract_pooled
from georag_jax.models.bert_config import BertConfig
from georag_jax.models.encoder import SentenceEncoder
from georag_jax.models.loading import CheckpointError, load_state

PARITY = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def home(data):
    return data / "roberta"


@pytest.fixture(scope="module")
def upstream(data):
    with np.load(data / "roberta.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def raw(home):
    return json.loads((home / "config.json").read_text())


@pytest.fixture(scope="module")
def config(raw):
    return BertConfig.from_mapping(raw)


@pytest.fixture
def copy(home, tmp_path):
    return shutil.copytree(home, tmp_path / "model")


def hidden(home, config, arrays):
    state = load_state(home / "model.safetensors", abstract_bert(config)[1], BERT)
    model = nnx.merge(abstract_bert(config)[0], state)
    return np.asarray(model(jnp.asarray(arrays["ids"]), jnp.asarray(arrays["mask"])))


def test_hidden_states_are_upstreams_with_padding_in_odd_places(home, config, upstream):
    mask = upstream["mask"]
    np.testing.assert_allclose(hidden(home, config, upstream)[mask], upstream["hidden"][mask], **PARITY)


def test_the_pooled_output_is_upstreams(home, config, upstream):
    graph, abstract = abstract_pooled(config)
    model = nnx.merge(graph, load_state(home / "model.safetensors", abstract, POOLED))
    pooled = np.asarray(model(jnp.asarray(upstream["ids"]), jnp.asarray(upstream["mask"])))
    np.testing.assert_allclose(pooled, upstream["pooled"], **PARITY)


def test_positions_are_not_counted_as_in_bert(home, config, upstream):
    other = hidden(home, dataclasses.replace(config, model_type="bert"), upstream)
    assert np.abs(other - upstream["hidden"])[upstream["mask"]].max() > 1e-2


@pytest.mark.parametrize("padding", [1, 2])
def test_the_padding_token_matters(home, config, upstream, padding):
    other = hidden(home, dataclasses.replace(config, pad_token_id=padding), upstream)
    assert np.abs(other - upstream["hidden"])[upstream["mask"]].max() > 1e-2


def test_the_two_families_of_roberta_are_one_network(home, raw, config, upstream):
    other = BertConfig.from_mapping(raw | {"model_type": "xlm-roberta"})
    np.testing.assert_array_equal(hidden(home, other, upstream), hidden(home, config, upstream))


def test_positions_end_before_the_table_does(home, config):
    assert config.longest == 60 - 3 - 1
    full = {"ids": np.full((1, 56), 7, np.int32), "mask": np.ones((1, 56), bool)}
    assert np.isfinite(hidden(home, config, full)).all()
    long = {name: np.repeat(array, 2, axis=1) for name, array in full.items()}
    with pytest.raises(ValueError, match="ids: expected at most 56 tokens a text, got 112"):
        hidden(home, config, long)


@pytest.mark.parametrize("value", [None, -1, 59, "3"])
def test_a_padding_token_that_leaves_no_positions_is_refused(raw, value):
    with pytest.raises(ValueError, match=re.escape(f"pad_token_id={value!r} is not a number below")):
        BertConfig.from_mapping(raw | {"pad_token_id": value})


def test_a_prefixed_checkpoint_is_the_same(home, config, upstream, tmp_path):
    tensors = load_file(home / "model.safetensors")
    save_file({f"roberta.{name}": tensor for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(hidden(tmp_path, config, upstream), hidden(home, config, upstream))


def test_a_checkpoint_without_pooler_cannot_pool(home, config, tmp_path):
    tensors = load_file(home / "model.safetensors")
    without = {name: tensor for name, tensor in tensors.items() if "pooler" not in name}
    save_file(without, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="missing tensor for pooler/bias; missing tensor for pooler/kernel"):
        load_state(tmp_path / "model.safetensors", abstract_pooled(config)[1], POOLED)


@pytest.mark.parametrize("mode, written", [("mean", "mean"), ("cls", ["cls"])])
def test_sentence_vectors_are_upstreams(copy, upstream, mode, written):
    pooling = json.loads((copy / "1_Pooling" / "config.json").read_text()) | {"pooling_mode": written}
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    encoder = SentenceEncoder.from_directory(copy)
    np.testing.assert_allclose(encoder.encode(upstream["texts"].tolist()), upstream[f"{mode}_vectors"], **PARITY)
    assert re.fullmatch(f"roberta:[0-9a-f]{{12}}:{mode}:48", encoder.fingerprint)


def test_pooled_sentence_vectors_are_upstreams(copy, data, upstream):
    for file, content in json.loads((data / "roberta_pooled.json").read_text()).items():
        (copy / file).write_text(json.dumps(content))
    encoder = SentenceEncoder.from_directory(copy)
    np.testing.assert_allclose(encoder.encode(upstream["texts"].tolist()), upstream["pooled_vectors"], **PARITY)
    assert ":pooled:" in encoder.fingerprint


def test_without_a_pooling_module_the_pooler_must_be_asked_for(copy, data):
    modules = json.loads((data / "roberta_pooled.json").read_text())["modules.json"]
    (copy / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="sentence_bert_config.json: expected the modality_config .*pooler_output"):
        SentenceEncoder.from_directory(copy)


@pytest.mark.parametrize(
    "mode", ["max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken", ["mean", "cls"], [], "other"]
)
def test_other_poolings_are_refused(copy, mode):
    pooling = json.loads((copy / "1_Pooling" / "config.json").read_text()) | {"pooling_mode": mode}
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(ValueError, match="pooling: expected one mode, mean or cls, got"):
        SentenceEncoder.from_directory(copy)
