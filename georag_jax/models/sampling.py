"""Drawing the next token: temperature, the k likeliest, the likeliest of mass p, and an inverse distribution function.

Reference for the mass p: Holtzman, Buys, Du, Forbes, Choi, "The Curious Case of Neural Text Degeneration" (2020).

Dimensions: r rows, v vocabulary.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from georag_jax.models.chat import Sampling

Mode = Literal["greedy", "all", "some"]

# Entries whose weights are added up at once before one among them is looked for.
_BLOCK = 512

# Halvings of the interval of bit patterns from 0 to that of 1.0.
_HALVINGS = 30


class Knobs(NamedTuple):
    """The numbers of a ``Sampling`` as arguments of a compiled function, so that other numbers compile nothing."""

    temperature: ArrayLike
    top_p: ArrayLike
    top_k: ArrayLike

    @classmethod
    def of(cls, sampling: Sampling) -> "Knobs":
        """The knobs of a sampling."""
        return cls(np.float32(sampling.temperature), np.float32(sampling.top_p), np.int32(sampling.top_k))


def mode_of(sampling: Sampling) -> Mode:
    """Which tokens can be drawn: the likeliest alone, all, or some.

    >>> mode_of(Sampling(temperature=0.0)), mode_of(Sampling()), mode_of(Sampling(top_p=0.9))
    ('greedy', 'all', 'some')
    """
    if sampling.temperature == 0:
        return "greedy"
    return "some" if sampling.top_p < 1 or sampling.top_k > 0 else "all"


def row_keys(seed: int, samples: np.ndarray) -> jax.Array:
    """A key for each row: of the seed and the number of the sample among those of its prompt, and nothing else.

    Args:
        seed: >= 0.
        samples: [r] int32.

    Returns:
        [r] keys. What a row draws is thus the same whatever prompts it is computed with.
    """
    return _row_keys(np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32 & 0xFFFFFFFF), samples)


@jax.jit
def _row_keys(low: jax.Array, high: jax.Array, samples: jax.Array) -> jax.Array:
    key = jax.random.fold_in(jax.random.key(low), high)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, samples)


def choose(logits: jax.Array, keys: jax.Array, step: jax.Array, knobs: Knobs, mode: Mode) -> jax.Array:
    """The next token of every row.

    Args:
        logits: [r, v] float32.
        keys: [r] of ``row_keys``.
        step: int32 number of the token within the answer.
        knobs: temperature and filters; the k likeliest are taken first and the mass p is of what they have.
        mode: of the same sampling.

    Returns:
        [r] int32. Greedy ties go to the lowest token; tokens as likely as the least likely one kept are kept too.
    """
    if mode == "greedy":
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    scaled = (logits - jnp.max(logits, axis=-1, keepdims=True)) / knobs.temperature
    weights = jnp.exp(scaled)
    if mode == "some":
        weights = _likeliest_of_mass(_likeliest(weights, knobs.top_k), knobs.top_p)
    uniform = jax.vmap(lambda key: jax.random.uniform(jax.random.fold_in(key, step)))(keys)
    return _invert(weights, uniform)


def _likeliest(weights: jax.Array, top_k: ArrayLike) -> jax.Array:
    count = lambda kept: jnp.sum(kept > 0, axis=-1).astype(jnp.float32)
    needed = jnp.full(weights.shape[0], top_k, jnp.float32)
    cut = lambda weights: _cut(weights, count, needed)
    return jax.lax.cond(jnp.greater(top_k, 0), cut, lambda weights: weights, weights)


def _likeliest_of_mass(weights: jax.Array, top_p: ArrayLike) -> jax.Array:
    mass = lambda kept: jnp.sum(kept, axis=-1)
    cut = lambda weights: _cut(weights, mass, jnp.asarray(top_p) * mass(weights))
    return jax.lax.cond(jnp.less(top_p, 1), cut, lambda weights: weights, weights)


def _cut(weights: jax.Array, measure: Callable[[jax.Array], jax.Array], needed: jax.Array) -> jax.Array:
    """Sets to 0 the weights [r, v] in 0..1 below the highest bound that leaves a measure of at least ``needed``.

    The bound is found by halving: floats >= 0 are ordered as their bit patterns are. Sorting a vocabulary costs more.
    """
    bits = jax.lax.bitcast_convert_type(weights, jnp.int32)
    keep = lambda bound: jnp.where(bits >= bound[:, None], weights, 0.0)

    def halve(_: int, interval: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = interval
        middle = low + (high - low) // 2
        enough = measure(keep(middle)) >= needed
        return jnp.where(enough, middle, low), jnp.where(enough, high, middle)

    rows = weights.shape[0]
    one = jnp.full(rows, np.float32(1.0).view(np.int32) + 1, jnp.int32)
    return keep(jax.lax.fori_loop(0, _HALVINGS, halve, (jnp.zeros(rows, jnp.int32), one))[0])


def _invert(weights: jax.Array, uniform: jax.Array) -> jax.Array:
    """The entry at which the running sum of weights [r, v] passes ``uniform`` [r] in 0..1 times the whole."""
    rows, entries = weights.shape
    blocks = jnp.pad(weights, ((0, 0), (0, -entries % _BLOCK))).reshape(rows, -1, _BLOCK)
    sums = jnp.sum(blocks, axis=-1)
    block, before = _pass(sums, uniform * jnp.sum(sums, axis=-1))
    inside = jnp.take_along_axis(blocks, block[:, None, None], axis=1)[:, 0]
    entry, _ = _pass(inside, before)
    return (block * _BLOCK + entry).astype(jnp.int32)


def _pass(weights: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The first entry at which the running sum exceeds the target, and by how much the target exceeds the sum before.

    An entry of weight 0 is never given: where rounding lets the target reach the whole, it is the last one above 0.
    """
    running = jnp.cumsum(weights, axis=-1)
    last = weights.shape[-1] - 1 - jnp.argmax(weights[:, ::-1] > 0, axis=-1)
    entry = jnp.minimum(jnp.sum(running <= target[:, None], axis=-1), last)
    before = jnp.take_along_axis(running - weights, entry[:, None], axis=-1)[:, 0]
    return entry, target - before
