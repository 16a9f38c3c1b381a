import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from georag_jax.models.bert import BERT, abstract_bert
from georag_jax.models.bert_config import ACTIVATIONS, BertConfig
from georag_jax.models.loading import load_state

PARITY = {"rtol": 0, "atol": 1e-5}


@pytest.fixture(scope="module")
def config(tiny_config):
    return BertConfig.from_mapping(tiny_config)


@pytest.fixture(scope="module")
def state(tiny, config):
    return load_state(tiny / "model.safetensors", abstract_bert(config)[1], BERT)


def run(config, state, ids, mask, segments=None):
    return np.asarray(nnx.merge(abstract_bert(config)[0], state)(jnp.asarray(ids), jnp.asarray(mask), segments))


def test_hidden_states_are_upstreams(config, state, golden):
    hidden = run(config, state, golden["ids"], golden["mask"], jnp.asarray(golden["segments"]))
    np.testing.assert_allclose(hidden[golden["mask"]], golden["hidden"][golden["mask"]], **PARITY)


@pytest.mark.parametrize(
    "field, value", [("hidden_act", "gelu"), ("layer_norm_eps", 1e-12), ("num_attention_heads", 2)]
)
def test_the_golden_states_depend_on_every_field_that_shapes_do_not_fix(config, state, golden, field, value):
    other = dataclasses.replace(config, **{field: value})
    hidden = run(other, state, golden["ids"], golden["mask"], jnp.asarray(golden["segments"]))
    assert np.abs(hidden - golden["hidden"])[golden["mask"]].max() > 1e-4


def test_the_tiny_checkpoint_has_no_size_at_its_default(tiny_config):
    defaults = {
        "vocab_size": 30522,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "hidden_act": "gelu",
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
    assert defaults.keys() == {field.name for field in dataclasses.fields(BertConfig)} - {"model_type", "pad_token_id"}
    assert not [name for name, value in defaults.items() if tiny_config[name] == value]


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_are_upstreams(golden, name):
    np.testing.assert_allclose(ACTIVATIONS[name](golden["grid"]), golden[f"activation_{name}"], rtol=0, atol=2e-6)


def test_segments_default_to_the_first(config, state, golden):
    ids, mask = golden["ids"], golden["mask"]
    np.testing.assert_array_equal(
        run(config, state, ids, mask), run(config, state, ids, mask, jnp.zeros_like(golden["ids"]))
    )


def test_masked_positions_influence_no_token(config, state, golden):
    ids, mask = golden["ids"], golden["mask"]
    scrambled = np.where(mask, ids, (ids + 13) % config.vocab_size)
    np.testing.assert_array_equal(run(config, state, ids, mask)[mask], run(config, state, scrambled, mask)[mask])


def test_a_row_without_tokens_is_finite(config, state, golden):
    assert np.isfinite(run(config, state, golden["ids"], np.zeros_like(golden["mask"]))).all()


def test_jit_is_eager(config, state, golden):
    graph = abstract_bert(config)[0]
    jitted = jax.jit(lambda state, ids, mask: nnx.merge(graph, state)(ids, mask))
    got = np.asarray(jitted(state, golden["ids"], golden["mask"]))
    np.testing.assert_allclose(got, run(config, state, golden["ids"], golden["mask"]), **PARITY)


def test_strict_promotion(config, state, golden):
    with jax.numpy_dtype_promotion("strict"):
        assert run(config, state, golden["ids"], golden["mask"]).dtype == np.float32


@pytest.mark.parametrize(
    "ids, mask, segments, message",
    [
        ((1, 4), (1, 5), None, r"mask: expected the shape of ids, \(1, 4\), got \(1, 5\)"),
        ((1, 4), (1, 4), (2, 4), r"segments: expected the shape of ids, \(1, 4\), got \(2, 4\)"),
        ((1, 41), (1, 41), None, "ids: expected at most 40 tokens a text, got 41"),
    ],
)
def test_wrong_shapes_are_refused(config, state, ids, mask, segments, message):
    segments = None if segments is None else jnp.zeros(segments, jnp.int32)
    with pytest.raises(ValueError, match=message):
        run(config, state, np.zeros(ids, np.int32), np.ones(mask, bool), segments)


@pytest.mark.parametrize(
    "field, value",
    [
        ("model_type", "electra"),
        ("position_embedding_type", "relative_key"),
        ("is_decoder", True),
        ("is_encoder_decoder", True),
        ("add_cross_attention", True),
        ("pruned_heads", {"0": [1]}),
        ("quantization_config", {"bits": 8}),
        ("hidden_act", "quick_gelu"),
        ("rope_theta", 1e4),
    ],
)
def test_values_that_are_not_honoured_are_refused(tiny_config, field, value):
    with pytest.raises(ValueError, match=re.escape(f"{field}={value!r} is not")) as caught:
        BertConfig.from_mapping(tiny_config | {field: value})
    assert ";" not in str(caught.value)


@pytest.mark.parametrize("heads", [0, 5])
def test_heads_that_do_not_divide_the_width_are_refused(tiny_config, heads):
    with pytest.raises(ValueError, match=f"hidden_size=32 is not a multiple of num_attention_heads={heads}"):
        BertConfig.from_mapping(tiny_config | {"num_attention_heads": heads})


def test_all_faults_of_a_config_are_reported_together(tiny_config):
    raw = {name: value for name, value in tiny_config.items() if name != "vocab_size"}
    fields = {"model_type": "roberta", "is_decoder": True, "novel": 1, "hidden_act": "mish", "pad_token_id": 39}
    with pytest.raises(
        ValueError, match="vocab_size is missing; is_decoder=True .*; novel=1 .*; hidden_act='mish'"
    ) as e:
        BertConfig.from_mapping(raw | fields)
    assert str(e.value).endswith("pad_token_id=39 is not a number below max_position_embeddings - 1 = 39")


def test_a_config_without_family_or_sizes_is_told_so():
    with pytest.raises(ValueError, match="model_type is missing; vocab_size is missing; .*; pad_token_id is missing"):
        BertConfig.from_mapping({})


def test_values_without_effect_are_accepted(tiny_config):
    raw = tiny_config | {"hidden_dropout_prob": 0.7, "position_embedding_type": "absolute", "torch_dtype": "float16"}
    assert BertConfig.from_mapping(raw) == BertConfig.from_mapping(tiny_config)
