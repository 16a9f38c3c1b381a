"""Masked reductions with defined values where nothing is valid."""

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

HIGHEST = jax.lax.Precision.HIGHEST


def unit(x: Float[Array, "*n d"]) -> Float[Array, "*n d"]:
    """Rows of length 1; a zero row stays zero. Scaled first, so that no length over- or underflows."""
    x = x / jnp.maximum(jnp.abs(x).max(-1, keepdims=True), jnp.finfo(x.dtype).tiny)
    norm = jnp.sqrt((x * x).sum(-1, keepdims=True))
    return x / jnp.where(norm > 0, norm, 1)


def safe_divide(x: Float[Array, "*n"], total: Float[Array, "*#n"]) -> Float[Array, "*n"]:
    """X / total, and 0 where the total is not positive."""
    return jnp.where(total > 0, x / jnp.where(total > 0, total, 1), 0)


def masked_softmax(x: Float[Array, "*n K"], mask: Bool[Array, "*n K"]) -> Float[Array, "*n K"]:
    """Softmax over the last axis among the valid entries; zeros where there are none."""
    top = jnp.where(mask, x, -jnp.inf).max(-1, keepdims=True)
    weight = jnp.where(mask, jnp.exp(x - jnp.where(jnp.isfinite(top), top, 0)), 0)
    return safe_divide(weight, weight.sum(-1, keepdims=True))


def logsumexp(x: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """Log sum exp over an axis of which at least one entry is finite."""
    top = x.max(axis, keepdims=True)
    return jnp.squeeze(top, axis) + jnp.log(jnp.exp(x - top).sum(axis))


def resolution(dtype: DTypeLike) -> float:
    """Four last bits of a number of size 1: sums of rounded products differ by about that much for equal inputs."""
    return 4 * float(jnp.finfo(dtype).eps)


def first_best(
    score: Float[Array, " K"], valid: Bool[Array, " K"], tied_within: Float[Array, ""] | float = 0.0
) -> Int[Array, ""]:
    """The lowest valid index whose score is the largest, or -1 where none is valid. NaN is never chosen.

    Scores closer to the best than ``tied_within`` count as equal: two copies of one vector can leave a matrix product
    with different last bits, and a tie has to go to the first of them all the same.
    """
    valid &= ~jnp.isnan(score)
    score = jnp.where(valid, score, -jnp.inf)
    best = jnp.argmax((score >= score.max() - tied_within) & valid)
    return jnp.where(valid.any(), best, -1).astype(jnp.int32)
