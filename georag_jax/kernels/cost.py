"""Cosines and the transport cost M = 1 - G."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from georag_jax.kernels.numerics import HIGHEST, unit

LANES = 8  # numbers that a CPU multiplies at once


def cosine(x: Float[Array, "n d"], y: Float[Array, "l d"]) -> Float[Array, "n l"]:
    """Cosine of every row of x [n, d] to every row of y [l, d]; 0 for a zero row.

    >>> cosine(jnp.eye(2), jnp.array([[2.0, 0.0]])).tolist()
    [[1.0], [0.0]]
    """
    return unit_cosine(unit(x), unit(y))


def unit_cosine(x: Float[Array, "n d"], y: Float[Array, "l d"]) -> Float[Array, "n l"]:
    """``cosine`` of rows of length 1, or 0.

    Full-precision products: at epsilon = 0.01 an error of 1e-3 in a cosine changes exp(-M / epsilon) by a tenth, which
    is what reduced-precision matrix units would do.
    """
    return jnp.clip(jnp.matmul(x, y.T, precision=HIGHEST), -1, 1)


def unit_gram(x: Float[Array, "n d"]) -> Float[Array, "n n"]:
    """``unit_cosine`` of rows with each other.

    On a CPU, whose time goes with the multiplications, only the blocks on and above the diagonal are computed.
    """
    return jax.lax.platform_dependent(x, cpu=_upper_blocks, default=lambda x: unit_cosine(x, x))


def _upper_blocks(x: Float[Array, "n d"]) -> Float[Array, "n n"]:
    """Two thirds of the product of ``unit_gram``, in three blocks a side."""
    if x.shape[0] <= 3 * LANES:
        return unit_cosine(x, x)
    size = -(-x.shape[0] // (3 * LANES)) * LANES
    rows = [x[i : i + size] for i in range(0, x.shape[0], size)]
    upper = {(i, j): unit_cosine(rows[i], rows[j]) for j in range(len(rows)) for i in range(j + 1)}
    block = lambda i, j: upper[i, j] if i < j else upper[j, i].T
    return jnp.block([[block(i, j) for j in range(len(rows))] for i in range(len(rows))])


def cost(gram: Float[Array, "n l"]) -> Float[Array, "n l"]:
    """M = 1 - G, in 0..2."""
    return 1 - gram
