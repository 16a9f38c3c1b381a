"""Cosines and the transport cost M = 1 - G."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from georag_jax.kernels.numerics import HIGHEST, unit


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


def cost(gram: Float[Array, "n l"]) -> Float[Array, "n l"]:
    """M = 1 - G, in 0..2."""
    return 1 - gram
