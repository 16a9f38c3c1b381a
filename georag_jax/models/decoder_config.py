"""What ``config.json`` says about a dense decoder of the Llama, Mistral, Qwen2 or Qwen3 family."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from georag_jax.models.rope import Rope

ACTIVATIONS = ("gelu", "gelu_pytorch_tanh", "relu", "silu")

# What sets the families apart beyond their sizes: (biases of query, key and value; norms of query and key). None: as
# `attention_bias` says, which then holds for the output projection as well.
_FAMILIES: dict[str, tuple[bool | None, bool]] = {
    "llama": (None, False),
    "mistral": (False, False),
    "qwen2": (True, False),
    "qwen3": (None, True),
}

_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
)

# Fields that change the network but have one implemented value.
_ONLY: dict[str, Any] = {
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
    "quantization_config": None,
}

# Fields read here, by name.
_READ = frozenset(
    [
        *_SIZES,
        *("model_type", "num_key_value_heads", "head_dim", "hidden_act", "rms_norm_eps", "tie_word_embeddings"),
        *("attention_bias", "mlp_bias", "rope_parameters", "rope_theta", "rope_scaling"),
        *("sliding_window", "use_sliding_window", "max_window_layers", "layer_types"),
    ]
)

# Fields that do not reach the logits at inference: training, bookkeeping of the writer. `pretraining_tp` cuts the
# products of a training layout into slices that add up to the same.
_INERT = frozenset(
    [
        *("_name_or_path", "architectures", "attention_dropout", "bos_token_id", "chunk_size_feed_forward", "dtype"),
        *("eos_token_id", "finetuning_task", "gradient_checkpointing", "id2label", "initializer_range", "is_decoder"),
        *("label2id", "num_labels", "output_attentions", "output_hidden_states", "pad_token_id", "pretraining_tp"),
        *("problem_type", "return_dict", "tokenizer_class", "torch_dtype", "transformers_version", "use_cache"),
        *(
            "auto_map",
            "transformers.js_config",
            "is_llama_config",
            "rope_interleaved",
            "unsloth_fixed",
            "unsloth_version",
        ),
    ]
)


@dataclass(frozen=True)
class DecoderConfig:
    """The shape of the network.

    Attributes:
        model_type: the family: "llama", "mistral", "qwen2" or "qwen3".
        vocab_size: rows of the word embedding.
        hidden_size: width h.
        intermediate_size: width of the feed-forward layer.
        num_hidden_layers: blocks.
        num_attention_heads: heads of the queries, a multiple of ``num_key_value_heads``.
        num_key_value_heads: heads of keys and values.
        head_dim: width of a head, even; need not be h / heads.
        hidden_act: one of ``ACTIVATIONS``.
        max_position_embeddings: most tokens of prompt and answer together.
        rms_norm_eps: added to the mean square in every norm.
        tie_word_embeddings: whether the head is the word embedding.
        rope: how positions turn queries and keys.
        input_bias: whether the projections to queries, keys and values have biases.
        output_bias: whether the projection after attention has one.
        mlp_bias: whether the feed-forward layer has biases.
        head_norm: whether every head of the queries and keys is normalised.

    >>> raw = {"model_type": "qwen2", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
    ...        "num_attention_heads": 2, "max_position_embeddings": 16, "rms_norm_eps": 1e-6, "hidden_act": "silu"}
    >>> DecoderConfig.from_mapping(raw).rope
    Rope(theta=10000.0, llama3=None)
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    hidden_act: str
    max_position_embeddings: int
    rms_norm_eps: float
    tie_word_embeddings: bool
    rope: Rope
    input_bias: bool
    output_bias: bool
    mlp_bias: bool
    head_norm: bool

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> "DecoderConfig":
        """Reads a parsed ``config.json`` and refuses, all at once, whatever this decoder would not honour.

        Args:
            raw: the parsed file. Absent ``rope_parameters``, ``head_dim`` and the like stand for upstream's defaults;
                absent sizes are an error.

        Returns:
            The configuration.

        Raises:
            ValueError: a field is missing, has a value that is not implemented, or is not known here; the message names
                every such field.
        """
        problems = _problems(raw)
        rope, rope_problems = Rope.from_mapping(raw)
        if problems + rope_problems:
            raise ValueError("decoder config.json: " + "; ".join(problems + rope_problems))
        input_bias, head_norm = _FAMILIES[raw["model_type"]]
        attention_bias = bool(raw.get("attention_bias", False))
        heads = raw["num_attention_heads"]
        return cls(
            **{name: raw[name] for name in _SIZES},
            model_type=raw["model_type"],
            num_key_value_heads=raw.get("num_key_value_heads") or heads,
            head_dim=_head_dim(raw),
            hidden_act=raw["hidden_act"],
            rms_norm_eps=raw["rms_norm_eps"],
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", False)),
            rope=rope,
            input_bias=attention_bias if input_bias is None else input_bias,
            output_bias=attention_bias and input_bias is None,
            mlp_bias=bool(raw.get("mlp_bias", False)),
            head_norm=head_norm,
        )


def _head_dim(raw: Mapping[str, Any]) -> int:
    # Qwen3 alone has a default of its own; the others divide the width among the heads.
    if raw.get("head_dim"):
        return raw["head_dim"]
    return 128 if raw["model_type"] == "qwen3" else raw["hidden_size"] // raw["num_attention_heads"]


def _problems(raw: Mapping[str, Any]) -> list[str]:
    family = raw.get("model_type")
    needed = [*_SIZES, "model_type", "hidden_act", "rms_norm_eps"]
    problems = [f"{name} is missing" for name in needed if name not in raw]
    only = {name: value for name, value in _ONLY.items() if name in raw}
    if family in ("mistral", "qwen2"):  # upstream ignores it there
        only |= {name: False for name in ("attention_bias", "mlp_bias") if name in raw}
    elif family == "qwen3":
        only |= {name: False for name in ("mlp_bias",) if name in raw}
    problems += [
        f"{name}={raw[name]!r} is not implemented (only {value!r} is)"
        for name, value in only.items()
        if raw[name] != value
    ]
    problems += [
        f"{name}={raw[name]!r} is not known to this decoder and might change its output"
        for name in sorted(set(raw) - _READ - set(_ONLY) - _INERT)
    ]
    for name, known in (("model_type", tuple(_FAMILIES)), ("hidden_act", ACTIVATIONS)):
        if name in raw and raw[name] not in known:
            problems.append(f"{name}={raw[name]!r} is not implemented (only {sorted(known)} are)")
    return problems + _window_problems(raw) + _head_problems(raw)


def _window_problems(raw: Mapping[str, Any]) -> list[str]:
    """Attention to the last tokens only is not implemented; a window that is switched off is harmless."""
    problems = []
    if raw.get("model_type") == "mistral":
        # Upstream's default is a window; a file that means none says so.
        window = raw.get("sliding_window", 4096)
    else:
        window = raw.get("sliding_window") if raw.get("use_sliding_window", False) else None
    if window is not None and window < raw.get("max_position_embeddings", 0):
        problems.append(f"sliding_window={window!r} is not implemented (only full attention is)")
    layers = [kind for kind in raw.get("layer_types") or [] if kind != "full_attention"]
    if layers and not problems:
        problems.append(f"layer_types={sorted(set(layers))} are not implemented (only 'full_attention' is)")
    return problems


def _head_problems(raw: Mapping[str, Any]) -> list[str]:
    width, heads = raw.get("hidden_size", 0), raw.get("num_attention_heads", 1)
    groups = raw.get("num_key_value_heads") or heads
    if heads < 1 or heads % groups:
        return [f"num_attention_heads={heads} is not a multiple of num_key_value_heads={groups}"]
    divided = not raw.get("head_dim") and raw.get("model_type") != "qwen3"
    if divided and width % heads:
        return [f"hidden_size={width} is not a multiple of num_attention_heads={heads}"]
    if (raw.get("head_dim") or (width // heads if divided else 128)) % 2:
        return ["head_dim is odd: positions turn pairs"]
    return []
