import json
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from georag_jax.models import weights
from georag_jax.models.decoder_config import DecoderConfig
from georag_jax.models.gguf import _TENSORS, GgufError, convert
from georag_jax.models.rope import Llama3, Rope
from georag_jax.models.tokenizer import ChatTokenizer
from georag_jax.models.weights import ModelNotFoundError, UnknownModelError, resolve_language_model, sha256

DATA = Path(__file__).parent / "data" / "decoders"
TEXTS = [entry["text"] for entry in json.loads((DATA / "tokens.json").read_text("utf-8"))["texts"]]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("GEORAG_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "gguf"


def pair(array, heads):
    """As the llama architecture stores queries and keys: entry i of a head next to entry i + width / 2."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def stored_name(name):
    kinds = {ours: theirs for theirs, ours in _TENSORS.items()}
    stem, _, kind = name.rpartition(".")
    if not stem.startswith("model.layers."):
        return f"{kinds[stem]}.{kind}"
    layer, part = stem.removeprefix("model.layers.").split(".", 1)
    return f"blk.{layer}.{kinds[part]}.{kind}"


@pytest.fixture
def write(tmp_path):
    """Writes a family's tiny checkpoint as a GGUF file, with other fields (None leaves one out) and more tensors."""

    def write(family, fields=(), tensors=(), quantised=None, name="model.gguf"):
        raw = json.loads((DATA / family / "config.json").read_text())
        vocabulary = json.loads((DATA / family / "tokenizer.json").read_text("utf-8"))["model"]
        tokens = sorted(vocabulary["vocab"], key=vocabulary["vocab"].get)
        values = {
            f"{family}.block_count": raw["num_hidden_layers"],
            f"{family}.context_length": raw["max_position_embeddings"],
            f"{family}.embedding_length": raw["hidden_size"],
            f"{family}.feed_forward_length": raw["intermediate_size"],
            f"{family}.attention.head_count": raw["num_attention_heads"],
            f"{family}.attention.head_count_kv": raw["num_key_value_heads"],
            f"{family}.attention.layer_norm_rms_epsilon": raw["rms_norm_eps"],
            f"{family}.rope.freq_base": raw["rope_parameters"]["rope_theta"],
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3 if token.startswith("<") and len(token) > 1 else 1 for token in tokens],
            "tokenizer.ggml.merges": [" ".join(pair) for pair in vocabulary["merges"]],
            "tokenizer.ggml.bos_token_id": 3,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.ggml.add_bos_token": True,
            "tokenizer.chat_template": (DATA / family / "chat_template.jinja").read_text(),
        }
        if raw.get("head_dim"):
            values |= {f"{family}.attention.key_length": raw["head_dim"]}
        writer = gguf.GGUFWriter(tmp_path / name, family)
        for key, value in (values | dict(fields)).items():
            add(writer, key, value)
        for theirs, array in (arrays(family, raw) | dict(tensors)).items():
            if quantised is not None and array.ndim == 2 and array.shape[1] % 32 == 0:
                packed = gguf.quantize(array, quantised)
                writer.add_tensor(theirs, packed, raw_dtype=quantised)
            else:
                writer.add_tensor(theirs, array)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return tmp_path / name

    return write


def add(writer, key, value):
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
    if isinstance(value, list):
        writer.add_array(key, value)
    elif value is not None:
        kinds[type(value)](key, value)


def arrays(family, raw):
    heads = {"attn_q": raw["num_attention_heads"], "attn_k": raw["num_key_value_heads"]}
    stored = {}
    for name, array in load_file(DATA / family / "model.safetensors").items():
        theirs = stored_name(name)
        part = theirs.split(".")[-2]
        stored[theirs] = pair(array, heads[part]) if family == "llama" and part in heads else array
    return stored


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_weights_and_configuration_come_back(write, family):
    made = convert(write(family))
    want = load_file(DATA / family / "model.safetensors")
    got = load_file(made / "model.safetensors")
    assert got.keys() == want.keys()
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array, err_msg=name)
    raw = json.loads((DATA / family / "config.json").read_text())
    theta = raw["rope_parameters"]["rope_theta"]
    raw |= {"hidden_act": "silu", "rope_parameters": {"rope_type": "default", "rope_theta": theta}}
    expected, found = (
        DecoderConfig.from_mapping(config) for config in (raw, json.loads((made / "config.json").read_text()))
    )
    for field in DecoderConfig.__dataclass_fields__:
        assert getattr(found, field) == pytest.approx(getattr(expected, field)), field


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0"])
def test_packed_weights_are_unpacked_exactly(write, kind):
    quantised = gguf.GGMLQuantizationType[kind]
    got = load_file(convert(write("qwen3", quantised=quantised)) / "model.safetensors")
    want = load_file(DATA / "qwen3" / "model.safetensors")
    name = "model.layers.1.mlp.gate_proj.weight"
    unpacked = gguf.dequantize(gguf.quantize(want[name], quantised), quantised)
    np.testing.assert_array_equal(got[name], unpacked)
    assert 0 < np.abs(got[name] - want[name]).max() < 0.2


def test_the_tokenizer_and_the_template_come_back(write):
    made = ChatTokenizer.from_directory(convert(write("qwen3")))
    want = ChatTokenizer.from_directory(DATA / "qwen3")
    for text in TEXTS:
        assert made.encode(text) == want.encode(text)
        assert made.decode(made.encode(text)) == want.decode(want.encode(text))
    chat = [{"role": "user", "content": "hello"}]
    assert made.specials == {"bos_token": "<s>", "eos_token": "<|im_end|>"}
    assert made.render(chat) == want.render(chat)


def test_each_family_cuts_words_its_own_way(write):
    cut = {}
    for name in ("gpt-2", "llama-bpe", "qwen2", "smollm"):
        made = convert(write("qwen3", {"tokenizer.ggml.pre": name}, name=f"{name}.gguf"))
        tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
        text = "It's 12345  cafe\u0301\n\n\nI'LL"
        normalised = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
        cut[name] = [piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normalised)]
    assert "Ġ12345" in cut["gpt-2"]
    assert cut["llama-bpe"][:6] == ["It", "'s", "Ġ", "123", "45", "Ġ"]
    assert cut["qwen2"][:9] == ["It", "'s", "Ġ", "1", "2", "3", "4", "5", "Ġ"]
    assert cut["smollm"][:8] == ["It", "'s", "Ġ", "1", "2", "3", "4", "5"]
    assert "ĠcafÃ©" in cut["qwen2"]
    assert "ĠcafÃ©" not in cut["llama-bpe"]
    assert cut["qwen2"][-2:] == ["I", "'LL"]
    assert cut["gpt-2"][-3:] == ["I", "'", "LL"]


def test_the_scaling_of_llama_is_found_again(write):
    scaling = Llama3(32.0, 1.0, 4.0, 8192)
    divisors = Rope(5e5, scaling).llama3_divisors(10)
    file = write("llama", {"llama.rope.freq_base": 5e5}, {"rope_freqs.weight": divisors})
    config = json.loads((convert(file) / "config.json").read_text())
    assert DecoderConfig.from_mapping(config).rope.llama3 == scaling


def test_a_file_is_converted_once(write, home, monkeypatch):
    file = write("qwen2")
    made = convert(file)
    assert made.parent == home
    assert made.name.startswith(sha256(file))
    monkeypatch.setattr("georag_jax.models.gguf._write", None)
    assert convert(file) == made


def test_nothing_is_left_of_a_conversion_that_failed(write, home, monkeypatch):
    def fail(reader, target):
        (target / "config.json").write_text("{}")
        raise OSError("disk full")

    monkeypatch.setattr("georag_jax.models.gguf._write", fail)
    with pytest.raises(OSError, match="disk full"):
        convert(write("qwen2"))
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    "fields, tensors, message",
    [
        ({"qwen3.expert_count": 8}, {}, "expert_count=8 is not known"),
        ({"qwen3.rope.scaling.type": "yarn"}, {}, "rope.scaling.type='yarn' is not implemented"),
        ({"qwen3.rope.dimension_count": 6}, {}, "rope.dimension_count=6 is not implemented"),
        ({"tokenizer.ggml.pre": "tekken"}, {}, "tokenizer.ggml.pre='tekken' is not implemented .only gpt-2, llama"),
        ({"tokenizer.ggml.model": "llama"}, {}, "tokenizer 'llama' is not implemented"),
        ({}, {"blk.0.attn_sinks.weight": np.ones(4, np.float32)}, "tensor blk.0.attn_sinks.weight is not known"),
        ({}, {"rope_freqs.weight": np.arange(1, 8, dtype=np.float32)}, "not those of Llama 3.1"),
    ],
)
def test_what_is_not_implemented_is_refused(write, fields, tensors, message):
    with pytest.raises(GgufError, match=message):
        convert(write("qwen3", fields, tensors))


def test_an_architecture_that_is_not_implemented_is_refused(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.add_tensor("token_embd.weight", np.ones((2, 2), np.float32))
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    with pytest.raises(GgufError, match="architecture 'mamba' is not implemented .*; tokenizer None"):
        convert(tmp_path / "m.gguf")


def test_where_a_language_model_is_looked_for(write, tmp_path, monkeypatch):
    file = write("qwen2")
    assert resolve_language_model(file) == file
    assert resolve_language_model(str(tmp_path)) == file
    assert resolve_language_model(DATA / "qwen2") == DATA / "qwen2"
    write("qwen3", name="other.gguf")
    with pytest.raises(UnknownModelError, match="no config.json, and 2 GGUF files"):
        resolve_language_model(tmp_path)
    with pytest.raises(UnknownModelError, match=r"'none' is neither a path nor a known model \(smollm2\)"):
        resolve_language_model("none")
    monkeypatch.setattr(weights, "_fetch", lambda name, model, offline: tmp_path / name)
    assert resolve_language_model("smollm2") == tmp_path / "smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_other_names_are_looked_for_on_the_hub(tmp_path, monkeypatch):
    import sys
    import types

    def download(name, allow_patterns, local_files_only):
        if local_files_only:
            raise OSError("not there")
        return str(tmp_path / name)

    hub = types.ModuleType("huggingface_hub")
    hub.snapshot_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert resolve_language_model("org/model") == tmp_path / "org" / "model"
    with pytest.raises(ModelNotFoundError, match="no path 'org/model', and the model hub did not give it: not there"):
        resolve_language_model("org/model", offline=True)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelNotFoundError, match=r"pip install 'georag-jax\[hub\]'"):
        resolve_language_model("org/model")
