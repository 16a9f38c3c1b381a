"""Encoders of the BERT family: post-norm transformer blocks over word, position and segment embeddings.

References: Devlin, Chang, Lee, Toutanova, "BERT: Pre-training of Deep Bidirectional Transformers" (2019); Liu et al.,
"RoBERTa: A Robustly Optimized BERT Pretraining Approach" (2019); Conneau et al., "Unsupervised Cross-lingual
Representation Learning at Scale" (2020), XLM-RoBERTa. RoBERTa differs in its numbering of positions and in where its
checkpoints keep the layers of a head.

Dimensions: n texts, l tokens of a padded text, h width, a heads, c outputs of a classification head.
"""

from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp

from georag_jax._errors import MissingExtraError, require
from georag_jax.models.bert_config import ACTIVATIONS, BertConfig
from georag_jax.models.loading import NameTable, Rule, linear_rules, norm_rules

try:
    from flax import nnx
except ModuleNotFoundError as error:
    raise MissingExtraError("flax", "models") from error

# Matrix products stay in full float32 on accelerators whose default rounds the factors.
_HIGHEST = jax.lax.Precision.HIGHEST

_PREFIX = r"(?:(?:bert|roberta)\.)?"  # checkpoints of a model with a head on top carry it


def _encoder_rules(place: str) -> tuple[Rule, ...]:
    embeddings, layer = rf"{_PREFIX}embeddings\.", rf"{_PREFIX}encoder\.layer\.(\d+)\."
    return (
        Rule(embeddings + r"word_embeddings\.weight", place + "words/embedding"),
        Rule(embeddings + r"position_embeddings\.weight", place + "positions/embedding"),
        Rule(embeddings + r"token_type_embeddings\.weight", place + "segments/embedding"),
        *norm_rules(embeddings + "LayerNorm", place + "norm"),
        *linear_rules(layer + r"attention\.self\.query", place + r"layers/\1/query"),
        *linear_rules(layer + r"attention\.self\.key", place + r"layers/\1/key"),
        *linear_rules(layer + r"attention\.self\.value", place + r"layers/\1/value"),
        *linear_rules(layer + r"attention\.output\.dense", place + r"layers/\1/attention_output"),
        *norm_rules(layer + r"attention\.output\.LayerNorm", place + r"layers/\1/attention_norm"),
        *linear_rules(layer + r"intermediate\.dense", place + r"layers/\1/intermediate"),
        *linear_rules(layer + r"output\.dense", place + r"layers/\1/output"),
        *norm_rules(layer + r"output\.LayerNorm", place + r"layers/\1/output_norm"),
    )


_COUNTERS = _PREFIX + r"embeddings\.(?:position_ids|token_type_ids)"  # that older writers stored
_POOLER = _PREFIX + r"pooler\.dense"

# Tensors of the encoder alone; the pooler feeds heads, not sentence vectors.
BERT = NameTable(rules=_encoder_rules(""), ignored=(_COUNTERS, _POOLER + r"\.(?:weight|bias)"))

# Tensors of ``PooledBert``.
POOLED = NameTable(
    rules=(*_encoder_rules("encoder/"), *linear_rules(_POOLER, "pooler")),
    ignored=(_COUNTERS,),
)


def classifier_table(config: BertConfig) -> NameTable:
    """Tensors of ``BertClassifier``: in RoBERTa the pooler belongs to the head."""
    if config.model_type == "bert":
        pooler, outputs, ignored = _POOLER, "classifier", (_COUNTERS,)
    else:
        pooler, outputs = r"classifier\.dense", r"classifier\.out_proj"
        ignored = (_COUNTERS, _POOLER + r"\.(?:weight|bias)")  # of the pretrained model, which the head replaced
    rules = (*_encoder_rules("encoder/"), *linear_rules(pooler, "pooler"), *linear_rules(outputs, "outputs"))
    return NameTable(rules, ignored)


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
        # Heads come before tokens: products that are batched over leading axes take a third of the time on a CPU.
        split = lambda x: x.reshape(n, length, self.heads, width // self.heads).swapaxes(1, 2)
        scale = (width // self.heads) ** -0.5
        query, key, value = split(self.query(hidden) * scale), split(self.key(hidden)), split(self.value(hidden))
        logits = jnp.einsum("naqd,nakd->naqk", query, key, precision=_HIGHEST)
        # The lowest finite value, not -inf: a row without any token then averages its padding instead of giving NaN.
        logits = jnp.where(mask[:, None, None, :], logits, jnp.finfo(logits.dtype).min)
        # The softmax is divided by its sum after the product, which has fewer numbers than the weights.
        weights = jnp.exp(logits - logits.max(axis=-1, keepdims=True))
        mixed = jnp.einsum("naqk,nakd->naqd", weights, value, precision=_HIGHEST)
        mixed /= weights.sum(axis=-1, keepdims=True)
        return mixed.swapaxes(1, 2).reshape(n, length, width)


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
            ids: [n, l] int32 token ids, l at most ``config.longest``.
            mask: [n, l] bool, True where there is a token; other positions influence no token. Padding may stand on
                either side only if positions are to be counted as upstream counts them: from the left edge, or, in the
                RoBERTa families, over the ids that are not ``pad_token_id``, whatever the mask says.
            segments: [n, l] int32 segment of each token; all 0 when None.

        Returns:
            [n, l, h] float32; finite at padding, without meaning.

        Raises:
            ValueError: ids, mask and segments differ in shape, or the texts are too long.
        """
        require(ids.shape == mask.shape, "mask", f"the shape of ids, {ids.shape}", mask.shape)
        longest = self.config.longest
        require(ids.shape[1] <= longest, "ids", f"at most {longest} tokens a text", ids.shape[1])
        if segments is None:
            segments = jnp.zeros_like(ids)
        require(ids.shape == segments.shape, "segments", f"the shape of ids, {ids.shape}", segments.shape)
        embedded = self.words(ids) + self.segments(segments) + self.positions(_positions(ids, self.config))
        hidden = self.norm(embedded)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return hidden


class PooledBert(nnx.Module):
    """The encoder and its pooler: a dense layer and tanh over the first token.

    Args:
        config: the shape of the network.
        rngs: keys for the random initial weights.
    """

    def __init__(self, config: BertConfig, *, rngs: nnx.Rngs):
        self.encoder = BertEncoder(config, rngs=rngs)
        self.pooler = nnx.Linear(config.hidden_size, config.hidden_size, precision=_HIGHEST, rngs=rngs)

    def __call__(self, ids: jax.Array, mask: jax.Array, segments: jax.Array | None = None) -> jax.Array:
        """Pooled output [n, h] float32 in -1..1; arguments and errors are those of ``BertEncoder``."""
        return jnp.tanh(self.pooler(self.encoder(ids, mask, segments)[:, 0]))


class BertClassifier(PooledBert):
    """The encoder with a classification head: the pooler and a linear layer.

    Args:
        config: the shape of the network.
        outputs: c, logits of the head.
        rngs: keys for the random initial weights.
    """

    def __init__(self, config: BertConfig, outputs: int, *, rngs: nnx.Rngs):
        super().__init__(config, rngs=rngs)
        self.outputs = nnx.Linear(config.hidden_size, outputs, precision=_HIGHEST, rngs=rngs)

    def __call__(self, ids: jax.Array, mask: jax.Array, segments: jax.Array | None = None) -> jax.Array:
        """Logits [n, c] float32; arguments and errors are those of ``BertEncoder``."""
        return self.outputs(super().__call__(ids, mask, segments))


def abstract_bert(config: BertConfig) -> tuple[nnx.GraphDef, nnx.State]:
    """The encoder's structure and the shapes of its weights, without allocating any.

    Args:
        config: the shape of the network.

    Returns:
        The graph definition and a state of ``jax.ShapeDtypeStruct``; ``nnx.merge`` of the first with a state of arrays
        is the encoder.
    """
    return _abstract(BertEncoder, config)


def abstract_pooled(config: BertConfig) -> tuple[nnx.GraphDef, nnx.State]:
    """The same of ``PooledBert``."""
    return _abstract(PooledBert, config)


def abstract_classifier(config: BertConfig, outputs: int) -> tuple[nnx.GraphDef, nnx.State]:
    """The same of ``BertClassifier`` with so many outputs."""
    return _abstract(BertClassifier, config, outputs)


@cache  # every compilation asks again
def _abstract(network: Callable[..., nnx.Module], *shape: BertConfig | int) -> tuple[nnx.GraphDef, nnx.State]:
    return nnx.split(nnx.eval_shape(lambda: network(*shape, rngs=nnx.Rngs(0))))


def _positions(ids: jax.Array, config: BertConfig) -> jax.Array:
    """Rows [l] or [n, l] of the position embedding."""
    if config.model_type == "bert":
        return jnp.arange(ids.shape[1])
    counted = ids != config.pad_token_id
    return jnp.where(counted, jnp.cumsum(counted, axis=1), 0) + config.pad_token_id


def _layer_norm(config: BertConfig, rngs: nnx.Rngs) -> nnx.LayerNorm:
    # The fast variance E[x^2] - E[x]^2 loses digits where the mean is large.
    return nnx.LayerNorm(config.hidden_size, epsilon=config.layer_norm_eps, use_fast_variance=False, rngs=rngs)
