"""The BERT encoder: post-norm transformer blocks over word, position and segment embeddings.

Reference: Devlin, Chang, Lee, Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers" (2019).

Dimensions: n texts, l tokens of a padded text, h width, a heads.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp

from georag_jax._errors import MissingExtraError, require
from georag_jax.models.loading import NameTable, Rule, linear_rules, norm_rules

try:
    from flax import nnx
except ModuleNotFoundError as error:
    raise MissingExtraError("flax", "models") from error

# Matrix products stay in full float32 on accelerators whose default rounds the factors.
_HIGHEST = jax.lax.Precision.HIGHEST

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_new": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}

# Fields that change the network but have one implemented value.
_ONLY: dict[str, Any] = {
    "model_type": "bert",
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "is_encoder_decoder": False,
    "add_cross_attention": False,
    "pruned_heads": {},
    "quantization_config": None,
}

# Fields that do not reach the hidden states at inference: training, heads on top, bookkeeping of the writer.
_INERT = frozenset(
    [
        "_name_or_path",
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
        "pad_token_id",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
        "problem_type",
        "return_dict",
        "sep_token_id",
        "tie_word_embeddings",
        "tokenizer_class",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    ]
)

# Checkpoints of a model with a head on top carry the prefix.
_EMBEDDINGS, _LAYER = r"(?:bert\.)?embeddings\.", r"(?:bert\.)?encoder\.layer\.(\d+)\."

BERT = NameTable(
    rules=(
        Rule(_EMBEDDINGS + r"word_embeddings\.weight", "words/embedding"),
        Rule(_EMBEDDINGS + r"position_embeddings\.weight", "positions/embedding"),
        Rule(_EMBEDDINGS + r"token_type_embeddings\.weight", "segments/embedding"),
        *norm_rules(_EMBEDDINGS + "LayerNorm", "norm"),
        *linear_rules(_LAYER + r"attention\.self\.query", r"layers/\1/query"),
        *linear_rules(_LAYER + r"attention\.self\.key", r"layers/\1/key"),
        *linear_rules(_LAYER + r"attention\.self\.value", r"layers/\1/value"),
        *linear_rules(_LAYER + r"attention\.output\.dense", r"layers/\1/attention_output"),
        *norm_rules(_LAYER + r"attention\.output\.LayerNorm", r"layers/\1/attention_norm"),
        *linear_rules(_LAYER + r"intermediate\.dense", r"layers/\1/intermediate"),
        *linear_rules(_LAYER + r"output\.dense", r"layers/\1/output"),
        *norm_rules(_LAYER + r"output\.LayerNorm", r"layers/\1/output_norm"),
    ),
    ignored=(
        _EMBEDDINGS + r"(?:position_ids|token_type_ids)",  # counters that older writers stored
        r"(?:bert\.)?pooler\.dense\.(?:weight|bias)",  # feeds classification heads, not sentence vectors
    ),
)


@dataclass(frozen=True)
class BertConfig:
    """The fields of ``config.json`` that shape the network, under their upstream names.

    Attributes:
        vocab_size: rows of the word embedding.
        hidden_size: width h, a multiple of ``num_attention_heads``.
        num_hidden_layers: blocks.
        num_attention_heads: heads a.
        intermediate_size: width of the feed-forward layer.
        hidden_act: a key of ``ACTIVATIONS``.
        max_position_embeddings: longest text in tokens.
        type_vocab_size: rows of the segment embedding.
        layer_norm_eps: added to the variance in every layer norm.

    >>> BertConfig(vocab_size=8, hidden_size=4, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
    ...            hidden_act="gelu", max_position_embeddings=16, type_vocab_size=2, layer_norm_eps=1e-12).hidden_size
    4
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    intermediate_size: int
    hidden_act: str
    max_position_embeddings: int
    type_vocab_size: int
    layer_norm_eps: float

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> "BertConfig":
        """Reads a parsed ``config.json`` and refuses, all at once, whatever this encoder would not honour.

        Args:
            raw: the parsed file. Absent ``position_embedding_type`` and the like stand for what is implemented; absent
                sizes are an error.

        Returns:
            The configuration.

        Raises:
            ValueError: a field is missing, has a value that is not implemented, or is not known here; the message names
                every such field.
        """
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
        if raw.get("hidden_act", "gelu") not in ACTIVATIONS:
            problems.append(f"hidden_act={raw['hidden_act']!r} is not implemented (only {sorted(ACTIVATIONS)} are)")
        width, heads = raw.get("hidden_size", 0), raw.get("num_attention_heads", 1)
        if heads < 1 or width % heads:
            problems.append(f"hidden_size={width} is not a multiple of num_attention_heads={heads}")
        if problems:
            raise ValueError("BERT config.json: " + "; ".join(problems))
        return cls(**{name: raw[name] for name in names})


class BertLayer(nnx.Module):
    """One block: self-attention, then feed-forward, each added to its input and normalised after."""

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        width, inner = config.hidden_size, config.intermediate_size
        linear = partial(nnx.Linear, precision=_HIGHEST, rngs=rngs)
        self.heads = config.num_attention_heads
        self.activation = config.hidden_act
        self.query, self.key, self.value = linear(width, width), linear(width, width), linear(width, width)
        self.attention_output = linear(width, width)
        self.attention_norm = _layer_norm(config, rngs)
        self.intermediate, self.output = linear(width, inner), linear(inner, width)
        self.output_norm = _layer_norm(config, rngs)

    def __call__(self, hidden: jax.Array, mask: jax.Array) -> jax.Array:
        """Hidden states [n, l, h] float32 after the block; ``mask`` [n, l] bool is True where there is a token."""
        hidden = self.attention_norm(hidden + self.attention_output(self._attend(hidden, mask)))
        inner = ACTIVATIONS[self.activation](self.intermediate(hidden))
        return self.output_norm(hidden + self.output(inner))

    def _attend(self, hidden: jax.Array, mask: jax.Array) -> jax.Array:
        n, length, width = hidden.shape
        split = lambda x: x.reshape(n, length, self.heads, width // self.heads)
        query, key, value = split(self.query(hidden)), split(self.key(hidden)), split(self.value(hidden))
        logits = jnp.einsum("nqad,nkad->naqk", query, key, precision=_HIGHEST) * (width // self.heads) ** -0.5
        # The lowest finite value, not -inf: a row without any token then averages its padding instead of giving NaN.
        logits = jnp.where(mask[:, None, None, :], logits, jnp.finfo(logits.dtype).min)
        mixed = jnp.einsum("naqk,nkad->nqad", jax.nn.softmax(logits, axis=-1), value, precision=_HIGHEST)
        return mixed.reshape(n, length, width)


class BertEncoder(nnx.Module):
    """Token ids to hidden states, without pooler and heads.

    Args:
        config: the shape of the network.
        rngs: keys for the random initial weights, which a checkpoint replaces.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        embed = lambda rows: nnx.Embed(rows, config.hidden_size, rngs=rngs)
        self.config = config
        self.words = embed(config.vocab_size)
        self.positions = embed(config.max_position_embeddings)
        self.segments = embed(config.type_vocab_size)
        self.norm = _layer_norm(config, rngs)
        self.layers = nnx.List([BertLayer(config, rngs=rngs) for _ in range(config.num_hidden_layers)])

    def __call__(self, ids: jax.Array, mask: jax.Array, segments: jax.Array | None = None) -> jax.Array:
        """Hidden states of the last block.

        Args:
            ids: [n, l] int32 token ids, l at most ``max_position_embeddings``.
            mask: [n, l] bool, True where there is a token; other positions influence no token. Padding may stand on
                either side only if positions are to be counted from the left edge, as upstream counts them.
            segments: [n, l] int32 segment of each token; all 0 when None.

        Returns:
            [n, l, h] float32; finite at padding, without meaning.

        Raises:
            ValueError: ids, mask and segments differ in shape, or the texts are too long.
        """
        require(ids.shape == mask.shape, "mask", f"the shape of ids, {ids.shape}", mask.shape)
        longest = self.config.max_position_embeddings
        require(ids.shape[1] <= longest, "ids", f"at most {longest} tokens a text", ids.shape[1])
        if segments is None:
            segments = jnp.zeros_like(ids)
        require(ids.shape == segments.shape, "segments", f"the shape of ids, {ids.shape}", segments.shape)
        embedded = self.words(ids) + self.segments(segments) + self.positions(jnp.arange(ids.shape[1]))
        hidden = self.norm(embedded)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return hidden


@cache  # every compilation asks again
def abstract_bert(config: BertConfig) -> tuple[nnx.GraphDef, nnx.State]:
    """The encoder's structure and the shapes of its weights, without allocating any.

    Args:
        config: the shape of the network.

    Returns:
        The graph definition and a state of ``jax.ShapeDtypeStruct``; ``nnx.merge`` of the first with a state of arrays
        is the encoder.
    """
    return nnx.split(nnx.eval_shape(lambda: BertEncoder(config, rngs=nnx.Rngs(0))))


def _layer_norm(config: BertConfig, rngs: nnx.Rngs) -> nnx.LayerNorm:
    # The fast variance E[x^2] - E[x]^2 loses digits where the mean is large.
    return nnx.LayerNorm(config.hidden_size, epsilon=config.layer_norm_eps, use_fast_variance=False, rngs=rngs)
