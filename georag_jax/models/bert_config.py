"""What ``config.json`` says of a BERT-like encoder, and which of it is implemented."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import jax


def _gelu(x: jax.Array) -> jax.Array:
    # As upstream writes it; jax.nn.gelu goes by erfc, which takes three times as long on a CPU and is the more exact
    # only where the result is next to 0.
    return 0.5 * x * (1 + jax.lax.erf(x * math.sqrt(0.5)))


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": _gelu,
    "gelu_new": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}

# They differ in how positions are counted, and in where a checkpoint keeps the layers of a head.
FAMILIES = ("bert", "roberta", "xlm-roberta")

# Fields that change the network but have one implemented value.
_ONLY: dict[str, Any] = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
    "quantization_config": None,
}

# Fields that do not reach the output at inference: training, names of a head's outputs, bookkeeping of the writer.
_INERT = frozenset(
    [
        "_name_or_path",
        "_num_labels",
        "architectures",
        "attention_probs_dropout_prob",
        "bos_token_id",
        "chunk_size_feed_forward",
        "classifier_dropout",
        "directionality",
        "dtype",
        "eos_token_id",
        "finetuning_task",
        "gradient_checkpointing",
        "hidden_dropout_prob",
        "id2label",
        "initializer_range",
        "label2id",
        "num_labels",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
        "problem_type",
        "return_dict",
        "sbert_ce_default_activation_function",
        "sentence_transformers",
        "sep_token_id",
        "tie_word_embeddings",
        "tokenizer_class",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    ]
)


@dataclass(frozen=True)
class BertConfig:
    """The fields of ``config.json`` that shape the network, under their upstream names.

    Attributes:
        model_type: one of ``FAMILIES``.
        vocab_size: rows of the word embedding.
        hidden_size: width h, a multiple of ``num_attention_heads``.
        num_hidden_layers: blocks.
        num_attention_heads: heads a.
        intermediate_size: width of the feed-forward layer.
        hidden_act: a key of ``ACTIVATIONS``.
        max_position_embeddings: rows of the position embedding.
        type_vocab_size: rows of the segment embedding.
        layer_norm_eps: added to the variance in every layer norm.
        pad_token_id: in the RoBERTa families the token that takes no position, after whose number positions start; 0,
            without effect, for "bert".

    >>> BertConfig("bert", vocab_size=8, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
    ...            hidden_act="gelu", max_position_embeddings=16, type_vocab_size=2, layer_norm_eps=1e-12).longest
    16
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    hidden_act: str
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float
    pad_token_id: int = 0

    @property
    def longest(self) -> int:
        """Tokens of the longest text."""
        return self.max_position_embeddings - (0 if self.model_type == "bert" else self.pad_token_id + 1)

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> "BertConfig":
        """Reads a parsed ``config.json`` and refuses, all at once, whatever this encoder would not honour.

        Args:
            raw: the parsed file. Absent ``position_embedding_type`` and the like stand for what is implemented; an
                absent family or size is an error.

        Returns:
            The configuration.

        Raises:
            ValueError: a field is missing, has a value that is not implemented, or is not known here; the message names
                every such field.
        """
        if raw.get("model_type") == "bert":
            raw = {**raw, "pad_token_id": 0}
        names = [field.name for field in fields(cls)]
        problems = [f"{name} is missing" for name in names if name not in raw]
        problems += [
            f"{name}={raw[name]!r} is not implemented (only {only!r} is)"
            for name, only in _ONLY.items()
            if name in raw and raw[name] != only
        ]
        problems += [
            f"{name}={raw[name]!r} is not known to this encoder and might change its output"
            for name in sorted(set(raw) - set(names) - set(_ONLY) - _INERT)
        ]
        for name, known in (("model_type", FAMILIES), ("hidden_act", ACTIVATIONS)):
            if raw.get(name) not in known and name in raw:
                problems.append(f"{name}={raw[name]!r} is not implemented (only {sorted(known)} are)")
        width, heads = raw.get("hidden_size", 0), raw.get("num_attention_heads", 1)
        if heads < 1 or width % heads:
            problems.append(f"hidden_size={width} is not a multiple of num_attention_heads={heads}")
        padding, last = raw.get("pad_token_id", 0), raw.get("max_position_embeddings", math.inf) - 1
        if not isinstance(padding, int) or not 0 <= padding < last:
            problems.append(f"pad_token_id={padding!r} is not a number below max_position_embeddings - 1 = {last}")
        if problems:
            raise ValueError("config.json of an encoder: " + "; ".join(problems))
        return cls(**{name: raw[name] for name in names})
