import json
import re
from pathlib import Path

import numpy as np
import pytest

from georag_jax.models.decoder_config import DecoderConfig
from georag_jax.models.rope import Llama3, Rope

DATA = Path(__file__).parent / "data" / "decoders"


def raw_config(name):
    return json.loads((DATA / name / "config.json").read_text())


def old_style(raw):
    """As older writers wrote it."""
    raw = dict(raw)
    scaling = dict(raw.pop("rope_parameters"))
    return raw | {"rope_theta": scaling.pop("rope_theta"), "rope_scaling": scaling, "torch_dtype": "float32"}


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2", "qwen3"])
def test_old_and_new_files_say_the_same(name):
    raw = raw_config(name)
    config = DecoderConfig.from_mapping(raw)
    assert DecoderConfig.from_mapping(old_style(raw)) == config
    assert config.rope.theta == raw["rope_parameters"]["rope_theta"]


def test_what_the_families_have():
    configs = {name: DecoderConfig.from_mapping(raw_config(name)) for name in ("llama", "mistral", "qwen2", "qwen3")}
    seen = {
        name: (config.input_bias, config.output_bias, config.mlp_bias, config.head_norm, config.tie_word_embeddings)
        for name, config in configs.items()
    }
    assert seen == {
        "llama": (True, True, True, False, True),
        "mistral": (False, False, False, False, False),
        "qwen2": (True, False, False, False, False),
        "qwen3": (True, True, False, True, True),
    }
    assert configs["llama"].rope.llama3 == Llama3(4.0, 0.7, 5.0, 64)
    assert configs["qwen2"].head_dim == 8


def test_absent_fields_stand_for_upstreams_defaults():
    raw = raw_config("llama")
    for name in ("rope_parameters", "num_key_value_heads", "head_dim", "attention_bias", "mlp_bias"):
        del raw[name]
    config = DecoderConfig.from_mapping(raw)
    assert config.rope == Rope(10000.0)
    assert (config.num_key_value_heads, config.head_dim) == (6, 6)
    assert not config.input_bias
    raw = raw_config("qwen3")
    del raw["head_dim"]
    assert DecoderConfig.from_mapping(raw).head_dim == 128


@pytest.mark.parametrize(
    "name, changes, message",
    [
        ("llama", {"model_type": "gpt2"}, "model_type='gpt2' is not implemented (only ['llama', 'mistral', 'qwen2'"),
        ("llama", {"hidden_act": "quick_gelu"}, "hidden_act='quick_gelu' is not implemented"),
        ("llama", {"quantization_config": {"bits": 4}}, "quantization_config={'bits': 4} is not implemented"),
        ("llama", {"num_experts": 8}, "num_experts=8 is not known to this decoder and might change its output"),
        ("llama", {"num_key_value_heads": 4}, "num_attention_heads=6 is not a multiple of num_key_value_heads=4"),
        ("llama", {"head_dim": None, "hidden_size": 37}, "hidden_size=37 is not a multiple of num_attention_heads=6"),
        ("llama", {"head_dim": 7}, "head_dim is odd"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}}, "rope_type='yarn' is not implemented"),
        ("llama", {"rope_parameters": {"rope_type": "llama3"}}, "high_freq_factor of the rope scaling is missing"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5 of the rope scaling"),
        ("mistral", {"sliding_window": 64}, "sliding_window=64 is not implemented (only full attention is)"),
        ("mistral", {"attention_bias": True}, "attention_bias=True is not implemented (only False is)"),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 64}, "sliding_window=64 is not implemented"),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types=['sliding_attention'] are"),
        ("qwen3", {"mlp_bias": True}, "mlp_bias=True is not implemented"),
    ],
)
def test_values_that_are_not_honoured_are_refused(name, changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        DecoderConfig.from_mapping(raw_config(name) | changes)


def test_all_faults_are_reported_together():
    raw = raw_config("llama") | {"hidden_act": "mish", "novel": 1, "rope_parameters": {"rope_type": "linear"}}
    del raw["vocab_size"]
    with pytest.raises(ValueError, match="vocab_size is missing; novel=1 .*; hidden_act='mish' .*; rope_type='linear'"):
        DecoderConfig.from_mapping(raw)


@pytest.mark.parametrize(
    "name, changes",
    [
        ("mistral", {"sliding_window": 4096}),  # longer than any text
        ("qwen2", {"use_sliding_window": False, "sliding_window": 16, "max_window_layers": 1}),
        ("llama", {"pretraining_tp": 2, "use_cache": False, "attention_dropout": 0.5}),
    ],
)
def test_values_without_effect_are_accepted(name, changes):
    assert DecoderConfig.from_mapping(raw_config(name) | changes) == DecoderConfig.from_mapping(raw_config(name))


def test_the_tiny_checkpoints_have_no_field_at_its_default():
    defaults = {"rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 2048, "hidden_size": 4096}
    for name in ("llama", "mistral", "qwen2", "qwen3"):
        raw = raw_config(name)
        raw |= raw["rope_parameters"]
        assert not [field for field, value in defaults.items() if raw[field] == value]
    assert {raw_config(name)["hidden_act"] for name in ("llama", "mistral", "qwen2", "qwen3")} == {
        "gelu",
        "relu",
        "gelu_pytorch_tanh",
        "silu",
    }


def test_frequencies_without_scaling_fall_geometrically():
    got = Rope(500.0).frequencies(8)
    np.testing.assert_allclose(got, 500.0 ** -(np.arange(4) / 4), rtol=1e-6)
    assert got.dtype == np.float32
