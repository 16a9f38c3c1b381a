"""The dense decoder of Llama, Mistral, Qwen2 and Qwen3: pre-norm blocks of grouped attention and a gated layer.

References: Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023); Ainslie et al., "GQA:
Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints" (2023).

Dimensions: r rows, s new tokens of a row, S kept tokens, h width, c key-value heads, q queries of a key-value head, d
width of a head, v vocabulary, g groups of a cache.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from typing import NamedTuple

import jax
import jax.numpy as jnp

from georag_jax._errors import MissingExtraError
from georag_jax.models.decoder_config import DecoderConfig
from georag_jax.models.loading import NameTable, Rule
from georag_jax.models.rope import angles, turn

try:
    from flax import nnx
except ModuleNotFoundError as error:
    raise MissingExtraError("flax", "models") from error

_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_pytorch_tanh": partial(jax.nn.gelu, approximate=True),
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
}

# Checkpoints without a head lack the prefix.
_MODEL = r"(?:model\.)?"
_LAYER = _MODEL + r"layers\.(\d+)\."


def _projection(pattern: str, path: str) -> tuple[Rule, Rule]:
    return Rule(pattern + r"\.weight", path + "/weight"), Rule(pattern + r"\.bias", path + "/bias")


DECODER = NameTable(
    rules=(
        Rule(_MODEL + r"embed_tokens\.weight", "words/embedding"),
        Rule(_MODEL + r"norm\.weight", "norm/scale"),
        Rule(r"lm_head\.weight", "head/weight"),
        Rule(_LAYER + r"(input|post_attention)_layernorm\.weight", r"layers/\1/\2_norm/scale"),
        Rule(_LAYER + r"self_attn\.([qk])_norm\.weight", r"layers/\1/\2_norm/scale"),
        *_projection(_LAYER + r"self_attn\.([qkvo])_proj", r"layers/\1/\2"),
        *_projection(_LAYER + r"mlp\.(gate|up|down)_proj", r"layers/\1/\2"),
    ),
    ignored=(_LAYER + r"self_attn\.rotary_emb\.inv_freq",),  # follows from the configuration
)


# For a network without a head of its own, of which some writers store one all the same.
HEADLESS_DECODER = DECODER._replace(ignored=(*DECODER.ignored, r"lm_head\.weight"))


class Cache(NamedTuple):
    """Keys and values of tokens that rows share or own.

    The r rows of a call fall into g groups of r / g neighbours, and each group has one entry: g = 1 for what all rows
    begin with, g = r for what each row has alone. So no entry is ever copied to the rows that share it.

    Attributes:
        keys: a layer each, [c, g, S, d] in the dtype of the weights, turned by their positions.
        values: a layer each, [c, g, S, d].
        lengths: [g] int32 slots in use, from the left.
    """

    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]
    lengths: jax.Array


class _Part(NamedTuple):
    """Keys and values of one layer, and which of them each new token sees: mask [1 or g, 1 or s, S] bool."""

    keys: jax.Array
    values: jax.Array
    mask: jax.Array


class Projection(nnx.Module):
    """A linear layer with its weight as checkpoints have it, [out, in]; products are summed in float32."""

    def __init__(self, inputs: int, outputs: int, bias: bool, dtype: jnp.dtype, rngs: nnx.Rngs):
        self.weight = nnx.Param(nnx.initializers.normal(0.02)(rngs.params(), (outputs, inputs), dtype))
        self.bias = nnx.Param(jnp.zeros(outputs, dtype)) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., in] float32 to [..., out] float32."""
        y = _product(x, self.weight[...])
        return y if self.bias is None else y + self.bias[...].astype(jnp.float32)


class RootMeanSquareNorm(nnx.Module):
    """x / sqrt(mean(x^2) + eps) * scale, in float32."""

    def __init__(self, width: int, epsilon: float, dtype: jnp.dtype):
        self.scale = nnx.Param(jnp.ones(width, dtype))
        self.epsilon = epsilon

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., width] float32 to the same."""
        mean_square = jnp.mean(x * x, axis=-1, keepdims=True)
        return x * jax.lax.rsqrt(mean_square + self.epsilon) * self.scale[...].astype(jnp.float32)


class DecoderLayer(nnx.Module):
    """One block: attention, then the gated layer, each of the normalised input and added to the input."""

    def __init__(self, config: DecoderConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        width, inner, head = config.hidden_size, config.intermediate_size, config.head_dim
        queries, groups = config.num_attention_heads * head, config.num_key_value_heads * head
        linear = partial(Projection, dtype=dtype, rngs=rngs)
        norm = partial(RootMeanSquareNorm, epsilon=config.rms_norm_eps, dtype=dtype)
        self.head_dim, self.activation = head, config.hidden_act
        self.input_norm, self.post_attention_norm = norm(width), norm(width)
        self.q = linear(width, queries, config.input_bias)
        self.k, self.v = linear(width, groups, config.input_bias), linear(width, groups, config.input_bias)
        self.o = linear(queries, width, config.output_bias)
        self.q_norm, self.k_norm = (norm(head), norm(head)) if config.head_norm else (None, None)
        self.gate, self.up = linear(width, inner, config.mlp_bias), linear(width, inner, config.mlp_bias)
        self.down = linear(inner, width, config.mlp_bias)

    def __call__(
        self, hidden: jax.Array, rotation: tuple[jax.Array, jax.Array], see: Callable[..., list[_Part]]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Hidden states [r, s, h] float32 after the block, and the newest part's keys and values.

        ``see`` makes of the new keys and values [c, r, s, d] all the parts that the new tokens see, the newest last.
        """
        normed = self.input_norm(hidden)
        heads = [self._split(projection(normed)) for projection in (self.q, self.k, self.v)]
        if self.q_norm is not None and self.k_norm is not None:
            heads[:2] = self.q_norm(heads[0]), self.k_norm(heads[1])
        query, key, value = turn(heads[0], *rotation), turn(heads[1], *rotation), heads[2]
        parts = see(*(x.astype(self.k.weight.dtype).transpose(2, 0, 1, 3) for x in (key, value)))
        hidden = hidden + self.o(attend(query, parts))
        normed = self.post_attention_norm(hidden)
        hidden = hidden + self.down(_ACTIVATIONS[self.activation](self.gate(normed)) * self.up(normed))
        return hidden, parts[-1].keys, parts[-1].values

    def _split(self, x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:-1], -1, self.head_dim)


class Decoder(nnx.Module):
    """Token ids to hidden states and logits.

    Args:
        config: the shape of the network.
        dtype: of the weights, float32 or bfloat16; norms, rotation and softmax are float32 in any case.
        rngs: keys for the random initial weights, which a checkpoint replaces.
    """

    def __init__(self, config: DecoderConfig, dtype: jnp.dtype, rngs: nnx.Rngs):
        self.config = config
        self.words = nnx.Embed(config.vocab_size, config.hidden_size, param_dtype=dtype, rngs=rngs)
        self.layers = nnx.List([DecoderLayer(config, dtype, rngs) for _ in range(config.num_hidden_layers)])
        self.norm = RootMeanSquareNorm(config.hidden_size, config.rms_norm_eps, dtype)
        tied = config.tie_word_embeddings
        self.head = None if tied else Projection(config.hidden_size, config.vocab_size, False, dtype, rngs)

    def __call__(
        self, ids: jax.Array, starts: jax.Array, past: Sequence[Cache] = (), own: Cache | None = None
    ) -> tuple[jax.Array, Cache]:
        """Hidden states after the last norm.

        Args:
            ids: [r, s] int32 new tokens; token i of a row is at position ``starts`` + i.
            starts: [r] int32.
            past: what the new tokens see besides themselves, all of it before them.
            own: room for the new tokens, [c, r, S, d] a layer: they are written behind ``own.lengths``, which must be
                the same in every row, and see what is there. None: they see past and themselves.

        Returns:
            [r, s, h] float32, and ``own`` with the new tokens, or a cache of them alone, whose lengths are all s.
        """
        new = ids.shape[1]
        rotation = angles(self.config.rope, starts[:, None] + jnp.arange(new), self.config.head_dim)
        hidden = self.words(ids).astype(jnp.float32)
        keys, values = [], []
        for number, layer in enumerate(self.layers):
            hidden, key, value = layer(hidden, rotation, partial(_see, number, past, own))
            keys.append(key)
            values.append(value)
        before = jnp.zeros(ids.shape[0], jnp.int32) if own is None else own.lengths
        return self.norm(hidden), Cache(tuple(keys), tuple(values), before + new)

    def logits(self, hidden: jax.Array) -> jax.Array:
        """[..., v] float32 of hidden states [..., h]; a tied head is the word embedding itself, not a copy."""
        return _product(hidden, self.words.embedding[...]) if self.head is None else self.head(hidden)


def attend(query: jax.Array, parts: Sequence[_Part]) -> jax.Array:
    """Softmax attention over several parts as if they stood in one row.

    Each part is reduced by itself to a maximum, a sum and a weighted sum, and these are then combined.

    Args:
        query: [r, s, c q, d] float32.
        parts: at least one; every new token must see something in the last part.

    Returns:
        [r, s, c q d] float32.
    """
    rows, new, heads, width = query.shape
    groups = parts[0].keys.shape[0]
    # Key-value heads in front: the rows of a group are then neighbours, and grouping them is free.
    query = (query * width**-0.5).reshape(rows, new, groups, -1, width).transpose(2, 0, 1, 3, 4)
    reduced = [_reduce(query, part) for part in parts]
    most = reduce(jnp.maximum, [highest for highest, _, _ in reduced])
    scales = [jnp.exp(highest - most) for highest, _, _ in reduced]
    add = partial(reduce, jnp.add)
    total = add([scale * weight for scale, (_, weight, _) in zip(scales, reduced, strict=True)])
    mixed = add([scale * mixed for scale, (_, _, mixed) in zip(scales, reduced, strict=True)]) / total
    return mixed.transpose(1, 2, 0, 3, 4).reshape(rows, new, heads * width)


def _reduce(query: jax.Array, part: _Part) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Maximum, sum of exponentials and weighted sum of values; query [c, r, s, q, d], results [c, r, s, q, 1 or d]."""
    heads, rows, new, queries, width = query.shape
    owners = part.keys.shape[1]
    grouped = query.reshape(heads, owners, -1, width).astype(part.keys.dtype)
    multiply = partial(jnp.einsum, precision=jax.lax.Precision.HIGHEST, preferred_element_type=jnp.float32)
    logits = multiply("cgqd,cgsd->cgqs", grouped, part.keys)
    by_token = logits.reshape(heads, owners, rows // owners, new, queries, -1)
    # The lowest finite value, not -inf: a part without any seen token then counts for nothing instead of giving NaN.
    lowest = jnp.finfo(logits.dtype).min
    by_token = jnp.where(part.mask[None, :, None, :, None], by_token, lowest)
    logits = by_token.reshape(logits.shape)
    most = jnp.max(logits, axis=-1, keepdims=True)
    weights = jnp.exp(logits - most)
    mixed = multiply("cgqs,cgsd->cgqd", weights.astype(part.values.dtype), part.values)
    back = lambda x: x.reshape(heads, rows, new, queries, -1)
    return back(most), back(jnp.sum(weights, axis=-1, keepdims=True)), back(mixed)


def _see(layer: int, past: Sequence[Cache], own: Cache | None, key: jax.Array, value: jax.Array) -> list[_Part]:
    """The parts that new tokens with these keys and values [c, r, s, d] see in one layer."""
    parts = []
    for part in past:
        keys = part.keys[layer]
        used = jnp.arange(keys.shape[2]) < part.lengths[:, None, None]
        parts.append(_Part(keys, part.values[layer], used))
    before = jnp.int32(0)
    new = key.shape[2]
    if own is not None:
        before = own.lengths[0]
        key = jax.lax.dynamic_update_slice_in_dim(own.keys[layer], key, before, axis=2)
        value = jax.lax.dynamic_update_slice_in_dim(own.values[layer], value, before, axis=2)
    seen = jnp.arange(key.shape[2]) <= before + jnp.arange(new)[:, None]
    return [*parts, _Part(key, value, seen[None])]


@cache  # every compilation asks again
def abstract_decoder(config: DecoderConfig, dtype: jnp.dtype) -> tuple[nnx.GraphDef, nnx.State]:
    """The decoder's structure and the shapes of its weights, without allocating any.

    Args:
        config: the shape of the network.
        dtype: of the weights.

    Returns:
        The graph definition and a state of ``jax.ShapeDtypeStruct``; ``nnx.merge`` of the first with a state of arrays
        is the decoder.
    """
    return nnx.split(nnx.eval_shape(lambda: Decoder(config, dtype, nnx.Rngs(0))))


def default_dtype() -> jnp.dtype:
    """The dtype of weights unless another is asked for: float32 on a CPU, where bfloat16 is slower; else bfloat16."""
    return jnp.dtype(jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16)


def assemble(config: DecoderConfig, leaves: Sequence[jax.Array]) -> Decoder:
    """The decoder with these weights, in the order of the leaves of ``abstract_decoder``."""
    graph, abstract = abstract_decoder(config, leaves[0].dtype)
    return nnx.merge(graph, jax.tree.unflatten(jax.tree.structure(abstract), leaves))


def _product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """Multiplies x [..., in] by weight [out, in], the factors in the weight's dtype, the sum in float32."""
    contract = (((x.ndim - 1,), (1,)), ((), ()))
    return jax.lax.dot_general(
        x.astype(weight.dtype),
        weight,
        contract,
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
