"""GGUF files: read and unpacked once into a directory in the usual layout, which is kept in the cache.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

import json
import logging
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from georag_jax._errors import MissingExtraError
from georag_jax.models.rope import Llama3, Rope
from georag_jax.models.weights import cache_directory, sha256

try:
    from gguf import GGMLQuantizationType, GGUFReader, ReaderTensor, dequantize
    from safetensors.numpy import save_file
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
except ModuleNotFoundError as error:
    raise MissingExtraError((error.name or "gguf").partition(".")[0], "models") from error

_logger = logging.getLogger(__name__)

# Counts the changes to what is written: directories of another count are not read.
_FORMAT = 1

_ARCHITECTURES = ("llama", "qwen2", "qwen3")

# Our name of each field of the architecture; a field that is not here, and not known to be harmless, is refused.
_FIELDS = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_CHECKED = ("attention.value_length", "rope.dimension_count", "rope.scaling.type", "vocab_size")

_TENSORS = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_DIVISORS = "rope_freqs.weight"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

_CONTROL, _USER_DEFINED = 3, 4


class _Split(NamedTuple):
    """How one family cuts text before pairs are merged: a pattern, or the rule of GPT-2."""

    pattern: str | None
    digits: bool = False  # whether every digit stands alone first
    composed: bool = False  # whether characters are composed (NFC) first
    whole: bool = False  # whether a word that is a token is one, whatever the merges


_SPLITS = {
    "gpt-2": _Split(None),
    "llama-bpe": _Split(_CONTRACTIONS + _WORDS % "{1,3}", whole=True),
    "qwen2": _Split(_CONTRACTIONS + _WORDS % "", composed=True),
    "smollm": _Split(None, digits=True),
}


class GgufError(ValueError):
    """A GGUF file holds something that is not implemented; the message names all of it."""


def convert(file: Path) -> Path:
    """Unpacks a GGUF file, unless that was done before.

    Args:
        file: the file; architectures llama (also Mistral's), qwen2 and qwen3, with a byte-level tokenizer.

    Returns:
        A directory with config.json, generation_config.json, model.safetensors, tokenizer.json and
        tokenizer_config.json, in the cache under the file's sha256. About 10 s and 4 bytes a weight.

    Raises:
        FileNotFoundError: there is no such file.
        GgufError: the file holds something that is not implemented.
    """
    home = cache_directory() / "gguf" / f"{sha256(file)}-{_FORMAT}"
    if home.is_dir():
        return home
    _logger.info("unpacking %s into %s", file, home)
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".unpack-") as scratch:
        arrived = Path(scratch) / "model"
        arrived.mkdir()
        _write(GGUFReader(file), arrived)
        try:  # a directory appears whole or not at all
            os.replace(arrived, home)
        except OSError:
            if not home.is_dir():  # else another process was faster and wrote the same
                raise
    return home


def _write(reader: GGUFReader, target: Path) -> None:
    metadata = {name: field.contents() for name, field in reader.fields.items()}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    config, problems = _config(metadata, tensors)
    problems += [f"tensor {name} is not known" for name in tensors if _place(name) is None and name != _ROPE_DIVISORS]
    tokenizer, tokenizer_problems = _tokenizer(metadata)
    if tokenizer is None or problems + tokenizer_problems:
        raise GgufError("GGUF file: " + "; ".join(problems + tokenizer_problems))
    tokenizer.save(str(target / "tokenizer.json"))
    files = {
        "config.json": config,
        "generation_config.json": {"eos_token_id": _ends(metadata)},
        "tokenizer_config.json": _tokenizer_config(metadata),
    }
    for name, content in files.items():
        (target / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
    save_file(dict(_arrays(tensors, config)), target / "model.safetensors")


def _config(metadata: Mapping[str, Any], tensors: Mapping[str, ReaderTensor]) -> tuple[dict[str, Any], list[str]]:
    """The fields of config.json, and what is not implemented."""
    family = metadata.get("general.architecture")
    if family not in _ARCHITECTURES:
        return {}, [f"architecture {family!r} is not implemented (only {', '.join(_ARCHITECTURES)} are)"]
    given = {
        name.removeprefix(f"{family}."): value for name, value in metadata.items() if name.startswith(f"{family}.")
    }
    problems = [
        f"{name}={given[name]!r} is not known" for name in given if name not in _FIELDS and name not in _CHECKED
    ]
    config: dict[str, Any] = {ours: given[theirs] for theirs, ours in _FIELDS.items() if theirs in given}
    head = config.setdefault("head_dim", config["hidden_size"] // config["num_attention_heads"])
    for name in ("attention.value_length", "rope.dimension_count"):
        if given.get(name, head) != head:
            problems.append(f"{name}={given[name]!r} is not implemented (only the width of a head, {head}, is)")
    if given.get("rope.scaling.type", "none") != "none":
        problems.append(f"rope.scaling.type={given['rope.scaling.type']!r} is not implemented")
    rope, rope_problems = _rope(config.pop("rope_theta", 10000.0), head, tensors)
    config |= {
        "model_type": family,
        "hidden_act": "silu",
        "vocab_size": int(tensors["token_embd.weight"].shape[1]),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_output.bias" in tensors,  # Qwen2's are without saying
        "mlp_bias": "blk.0.ffn_gate.bias" in tensors,
        "rope_parameters": rope,
    }
    return config, problems + rope_problems


def _rope(theta: float, width: int, tensors: Mapping[str, ReaderTensor]) -> tuple[dict[str, Any], list[str]]:
    """The rotation. The file holds not the numbers of Llama 3.1's scaling but what each frequency is divided by."""
    if _ROPE_DIVISORS not in tensors:
        return {"rope_theta": theta, "rope_type": "default"}, []
    divisors = tensors[_ROPE_DIVISORS].data
    scaling = Llama3(factor=float(divisors.max()), low=1.0, high=4.0, length=8192)
    if not np.allclose(Rope(theta, scaling).llama3_divisors(width), divisors, rtol=1e-3):
        return {}, [f"the factors {_ROPE_DIVISORS} are not those of Llama 3.1"]
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    return {"rope_theta": theta, "rope_type": "llama3", **dict(zip(names, scaling, strict=True))}, []


def _place(name: str) -> str | None:
    """Our name of a tensor, or None."""
    stem, _, kind = name.rpartition(".")
    if not stem.startswith("blk."):
        return f"{_TENSORS[stem]}.{kind}" if stem in _TENSORS else None
    _, layer, part = stem.split(".", 2)
    return f"model.layers.{layer}.{_TENSORS[part]}.{kind}" if part in _TENSORS else None


def _arrays(tensors: Mapping[str, ReaderTensor], config: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Names and weights as the usual layout has them."""
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for name, tensor in tensors.items():
        place = _place(name)
        if place is None:
            continue
        array = _unpack(tensor)
        part = name.split(".")[-2]
        if config["model_type"] == "llama" and part in heads:
            array = _unpair(array, heads[part])
        yield place, np.ascontiguousarray(array)


def _unpack(tensor: ReaderTensor) -> np.ndarray:
    # The exact value is kept: rounding it to 16 bits is seen in the likelihood of a text.
    if tensor.tensor_type == GGMLQuantizationType.F32:
        return np.asarray(tensor.data)
    return dequantize(tensor.data, tensor.tensor_type).astype(np.float32)


def _unpair(array: np.ndarray, heads: int) -> np.ndarray:
    """Undoes the order in which this architecture stores a head's rows: entry i next to i + width / 2."""
    return array.reshape(heads, -1, 2, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def _tokenizer(metadata: Mapping[str, Any]) -> tuple[Tokenizer | None, list[str]]:
    """The tokenizer, or what of it is not implemented."""
    kind, split_name = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != "gpt2":
        return None, [f"tokenizer {kind!r} is not implemented (only byte-level pairs, 'gpt2', are)"]
    if split_name not in _SPLITS:
        known = ", ".join(sorted(_SPLITS))
        return None, [f"tokenizer.ggml.pre={split_name!r} is not implemented (only {known} are)"]
    split = _SPLITS[split_name]
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(pair.split(" ")) for pair in metadata["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=split.whole))
    if split.composed:
        tokenizer.normalizer = normalizers.NFC()
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if split.digits else []
    if split.pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(split.pattern), behavior="isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split.pattern is None))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    kinds = metadata["tokenizer.ggml.token_type"]
    added = [(token, kind) for token, kind in zip(tokens, kinds, strict=True) if kind in (_CONTROL, _USER_DEFINED)]
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=kind == _CONTROL) for token, kind in added])
    tokenizer.post_processor = _ends_of_text(metadata, tokens)
    return tokenizer, []


def _ends_of_text(metadata: Mapping[str, Any], tokens: list[str]) -> Any:
    """What is put around a text."""
    around = {
        side: metadata[f"tokenizer.ggml.{side}_token_id"]
        for side in ("bos", "eos")
        if metadata.get(f"tokenizer.ggml.add_{side}_token")
    }
    names = {side: tokens[number] for side, number in around.items()}
    template = [*([names["bos"]] if "bos" in names else []), "$A", *([names["eos"]] if "eos" in names else [])]
    special = [(names[side], number) for side, number in around.items()]
    return processors.TemplateProcessing(single=template, special_tokens=special)


def _ends(metadata: Mapping[str, Any]) -> list[int]:
    """Tokens that end an answer."""
    names = [f"tokenizer.ggml.{kind}_token_id" for kind in ("eos", "eot", "eom")]
    return sorted({metadata[name] for name in names if name in metadata})


def _tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    tokens = metadata["tokenizer.ggml.tokens"]
    numbers = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    given = {ours: metadata.get(f"tokenizer.ggml.{theirs}_token_id") for ours, theirs in numbers.items()}
    config = {f"{ours}_token": tokens[number] for ours, number in given.items() if number is not None}
    template = metadata.get("tokenizer.chat_template")
    return config if template is None else config | {"chat_template": template}
