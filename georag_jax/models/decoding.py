"""Prompts to tokens: what runs on the device, in few shapes.

Every prompt is read once, whatever the number of its samples: its keys and values are shared by their rows, not copied.
Answers grow in step, so that their keys and values share one place to be written at; the prompts, of different lengths,
stay where they are. Decoding is bound by memory: a step reads all weights and the keys and values in use once, so that
steps a second are at most the memory's bandwidth over the bytes of both, for one row or for many.

Dimensions: p prompts, n samples of each, r = p n rows, s tokens of a padded prompt, t tokens of an answer, v
vocabulary.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from georag_jax.models.decoder import Cache, assemble
from georag_jax.models.decoder_config import DecoderConfig
from georag_jax.models.sampling import Knobs, Mode, choose

# Positions of which all logits exist at a time.
_HEAD_STEP = 8


class Answers(NamedTuple):
    """Answers in progress.

    Attributes:
        own: keys and values of the answers' tokens but the last, room for t of them.
        tokens: [r, t] int32, the end token included; -1 behind it and where nothing is yet.
        last: [r] int32 the newest token of each.
        finished: [r] bool.
    """

    own: Cache
    tokens: jax.Array
    last: jax.Array
    finished: jax.Array


@partial(jax.jit, static_argnames="config")
def read(
    leaves: list[jax.Array], ids: jax.Array, lengths: jax.Array, prefix: Cache | None, *, config: DecoderConfig
) -> tuple[Cache, jax.Array]:
    """Reads prompts.

    Args:
        leaves: the weights, in the order of the leaves of ``abstract_decoder``.
        ids: [p, s] int32 tokens, padded on the right.
        lengths: [p] int32 tokens of each; 0 for a row of padding.
        prefix: what all prompts begin with, full.
        config: the network.

    Returns:
        The prompts' keys and values, and the logits [p, v] float32 of what follows each.
    """
    decoder = assemble(config, leaves)
    hidden, kept = decoder(ids, _starts(ids.shape[0], prefix), _past(prefix))
    last = jnp.take_along_axis(hidden, jnp.maximum(lengths - 1, 0)[:, None, None], axis=1)[:, 0]
    return kept._replace(lengths=lengths), decoder.logits(last)


@partial(jax.jit, static_argnames=("samples", "room", "config", "dtype", "mode"))
def begin(
    logits: jax.Array,
    active: jax.Array,
    keys: jax.Array,
    knobs: Knobs,
    ends: jax.Array,
    *,
    samples: int,
    room: int,
    config: DecoderConfig,
    dtype: jnp.dtype,
    mode: Mode,
) -> Answers:
    """Draws the first token of every answer.

    Args:
        logits: [p, v] float32 from ``read``.
        active: [p] bool, False for a row of padding.
        keys: [r] of ``row_keys``.
        knobs: of the sampling.
        ends: [e] int32 tokens that end an answer.
        samples: n.
        room: t.
        config: the network.
        dtype: of the weights.
        mode: of the sampling.

    Returns:
        Answers of one token.
    """
    rows = logits.shape[0] * samples
    first = choose(jnp.repeat(logits, samples, axis=0), keys, jnp.int32(0), knobs, mode)
    tokens = jnp.full((rows, room), -1, jnp.int32).at[:, 0].set(first)
    shape = (config.num_key_value_heads, rows, room, config.head_dim)
    empty = lambda: tuple(jnp.zeros(shape, dtype) for _ in range(config.num_hidden_layers))
    finished = ~jnp.repeat(active, samples) | _is_end(first, ends)
    return Answers(Cache(empty(), empty(), jnp.zeros(rows, jnp.int32)), tokens, first, finished)


@partial(jax.jit, static_argnames=("config", "mode"), donate_argnames="answers")
def extend(
    leaves: list[jax.Array],
    answers: Answers,
    past: tuple[Cache, ...],
    starts: jax.Array,
    keys: jax.Array,
    knobs: Knobs,
    ends: jax.Array,
    limit: jax.Array,
    *,
    config: DecoderConfig,
    mode: Mode,
) -> Answers:
    """Draws tokens until all answers are finished or have a number of tokens, in one loop on the device.

    Args:
        leaves: the weights.
        answers: given up.
        past: prefix and prompts.
        starts: [r] int32 position of each answer's first token.
        keys: [r] of ``row_keys``.
        knobs: of the sampling.
        ends: [e] int32 tokens that end an answer.
        limit: int32 tokens, at most t.
        config: the network.
        mode: of the sampling.

    Returns:
        The answers, longer.
    """
    decoder = assemble(config, leaves)

    def unfinished(answers: Answers) -> jax.Array:
        return (answers.own.lengths[0] + 1 < limit) & ~jnp.all(answers.finished)

    def step(answers: Answers) -> Answers:
        own, tokens, last, finished = answers
        number = own.lengths[0]
        hidden, own = decoder(last[:, None], starts + number, past, own)
        new = choose(decoder.logits(hidden[:, 0]), keys, number + 1, knobs, mode)
        written = jnp.where(finished, -1, new)
        tokens = jax.lax.dynamic_update_slice_in_dim(tokens, written[:, None], number + 1, axis=1)
        return Answers(own, tokens, new, finished | _is_end(new, ends))

    return jax.lax.while_loop(unfinished, step, answers)


@partial(jax.jit, static_argnames="room")
def widen(answers: Answers, *, room: int) -> Answers:
    """The same answers with room for more tokens."""
    more = room - answers.tokens.shape[1]
    pad = lambda x: jnp.pad(x, ((0, 0), (0, 0), (0, more), (0, 0)))
    keys, values, lengths = answers.own
    own = Cache(tuple(map(pad, keys)), tuple(map(pad, values)), lengths)
    return answers._replace(own=own, tokens=jnp.pad(answers.tokens, ((0, 0), (0, more)), constant_values=-1))


@partial(jax.jit, static_argnames="config")
def log_probabilities(leaves: list[jax.Array], ids: jax.Array, *, config: DecoderConfig) -> jax.Array:
    """Log-probability of every token after the first, given those before it.

    Args:
        leaves: the weights.
        ids: [p, s] int32, s a multiple of 8; padding on the right is scored like anything else.
        config: the network.

    Returns:
        [p, s - 1] float32.
    """
    decoder = assemble(config, leaves)
    hidden, _ = decoder(ids, jnp.zeros(ids.shape[0], jnp.int32))
    next_ids = jnp.roll(ids, -1, axis=1)
    cut = lambda x: jnp.moveaxis(x.reshape(x.shape[0], -1, _HEAD_STEP, *x.shape[2:]), 1, 0)
    scored = jax.lax.map(lambda pair: _score(decoder.logits(pair[0]), pair[1]), (cut(hidden), cut(next_ids)))
    return jnp.moveaxis(scored, 0, 1).reshape(ids.shape)[:, :-1]


@partial(jax.jit, static_argnames="config")
def score_options(
    leaves: list[jax.Array],
    logits: jax.Array,
    past: tuple[Cache, ...],
    starts: jax.Array,
    options: jax.Array,
    lengths: jax.Array,
    *,
    config: DecoderConfig,
) -> jax.Array:
    """Log-probability of each option as what follows each prompt.

    Args:
        leaves: the weights.
        logits: [p, v] float32 from ``read``.
        past: prefix and prompts.
        starts: [p] int32 position of what follows each prompt.
        options: [o, l] int32 tokens, padded on the right.
        lengths: [o] int32 tokens of each, >= 1.
        config: the network.

    Returns:
        [p, o] float32, sums over the option's tokens.
    """
    prompts, (count, longest) = logits.shape[0], options.shape
    first = jax.nn.log_softmax(logits)[:, options[:, 0]]
    if longest == 1:
        return first
    decoder = assemble(config, leaves)
    rows = jnp.tile(options, (prompts, 1))
    hidden, _ = decoder(rows[:, :-1], jnp.repeat(starts, count), past)
    used = jnp.arange(1, longest) < lengths[:, None]
    rest = _score(decoder.logits(hidden), rows[:, 1:]).reshape(prompts, count, longest - 1)
    return first + jnp.sum(jnp.where(used, rest, 0.0), axis=-1)


def length_bucket(length: int) -> int:
    """The padded length: 16, or 2 or 3 times a power of two, so that few shapes are compiled.

    >>> [length_bucket(length) for length in (1, 17, 25, 33, 49, 65)]
    [16, 24, 32, 48, 64, 96]
    """
    bucket = 16
    while bucket < length:
        bucket *= 2
    return bucket // 4 * 3 if bucket > 16 and length <= bucket // 4 * 3 else bucket


def pad_right(rows: Sequence[Sequence[int]], count: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [count, length] int32, 0 where there are none, and the lengths [count] int32."""
    ids, lengths = np.zeros((count, length), np.int32), np.zeros(count, np.int32)
    for number, row in enumerate(rows):
        ids[number, : len(row)], lengths[number] = row, len(row)
    return ids, lengths


def _starts(rows: int, prefix: Cache | None) -> jax.Array:
    return jnp.full(rows, 0 if prefix is None else prefix.keys[0].shape[2], jnp.int32)


def _past(prefix: Cache | None) -> tuple[Cache, ...]:
    return () if prefix is None else (prefix,)


def _is_end(tokens: jax.Array, ends: jax.Array) -> jax.Array:
    return jnp.any(tokens[:, None] == ends, axis=-1)


def _score(logits: jax.Array, ids: jax.Array) -> jax.Array:
    picked = jnp.take_along_axis(logits, ids[..., None], axis=-1)[..., 0]
    return picked - jax.nn.logsumexp(logits, axis=-1)
