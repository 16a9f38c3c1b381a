"""Where the column of a new candidate starts, the picks' columns being fixed: one scalar equation a candidate.

These K equations of K terms are all the work that grows with K^2 in a step of the converged solver. XLA writes a K x K
array for each pass over them; the Pallas kernel reads the costs once and keeps them in registers. JAX 0.12 announces
the end of Pallas's Triton backend, which it uses; the XLA path is the one that will always work.
"""

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from georag_jax.config import Backend
from georag_jax.kernels.numerics import HIGHEST

POLISH = 1  # Newton steps after halving
CLIP = 60.0  # exponents beyond it are 0 or 1 in a softmax of float32
TILE = 32  # candidates that one program of the Pallas kernel solves

Mean = Callable[[Float[Array, "K l"]], Float[Array, " l"]]


def start_potentials(
    scaled: Float[Array, "K K"],
    level: Float[Array, " K"],
    p: Float[Array, " K"],
    share: Float[Array, ""],
    epsilon: float,
    backend: Backend = "xla",
) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """Solves sum_i p_i sigmoid(theta - x_i) = share for every candidate; x_i = M_ic / eps + level_i.

    Args:
        scaled: [K, K] costs over epsilon, a column for each candidate.
        level: [K] log-sum-exp of the picks' columns.
        p: [K] the demand.
        share: of the demand that the new column is to hold, in 0..1.
        epsilon: > 0; says how far apart thresholds may lie.
        backend: "xla" or "pallas".

    Returns:
        theta [K], and the demand's mean of log(1 + exp(theta - x)) [K], by which the rows' levels rise there.
    """
    halvings = max(math.ceil(math.log2(1 / epsilon)), 1)  # of costs in 0..2: to an interval of a few units
    if backend == "pallas":
        return _pallas(scaled, level, p, share, halvings)
    mean = lambda terms: jnp.matmul(p, terms, precision=HIGHEST)
    return _solve(scaled + level[:, None], mean, share, halvings)


def _solve(x: Float[Array, "K l"], mean: Mean, share, halvings: int) -> tuple[Float[Array, " l"], Float[Array, " l"]]:
    """Halving on the step function that the sigmoids are from afar, then Newton's steps, damped as in ``semidual``."""

    def halve(_, interval):
        low, high = interval
        middle = (low + high) / 2
        short = mean((x < middle[None]).astype(x.dtype)) < share
        return jnp.where(short, middle, low), jnp.where(short, high, middle)

    low, high = jax.lax.fori_loop(0, halvings, halve, (x.min(0), x.max(0)))
    near = (low + high) / 2
    odds = jnp.exp(jnp.clip(near[None] - x, -CLIP, CLIP))

    def polish(_, more):
        s = jnp.exp(more)[None] * odds
        s = s / (1 + s)
        held = mean(s)
        n = (share - held) / jnp.maximum(held - mean(s * s), 1e-30)
        step = jnp.where(n < 0, -1.0, 1.0) * jnp.log1p(jnp.abs(n))
        return jnp.clip(more + step.astype(x.dtype), -CLIP / 3, CLIP / 3)

    more = jax.lax.fori_loop(0, POLISH, polish, jnp.zeros_like(near))
    # log(1 + e^(theta - x)), and the part of the exponent that was clipped
    lifted = jnp.log(1 + jnp.exp(more)[None] * odds) + jnp.maximum(near[None] - x - CLIP, 0)
    return near + more, mean(lifted)


def _pallas(scaled, level, p, share, halvings: int) -> tuple[Float[Array, " K"], Float[Array, " K"]]:
    """``_solve`` in tiles of candidates; interpreted where there is no GPU, and so slow there."""
    from jax.experimental import pallas as pl  # most never need it, and it takes long to import
    from jax.experimental.pallas import triton

    size, dtype = p.shape[0], scaled.dtype
    rows, columns = max(pl.next_power_of_2(size), 16), -(-size // TILE) * TILE
    edge = partial(jnp.pad, mode="edge")  # rows without demand, whose thresholds are among those that count
    tile = lambda rank: pl.BlockSpec((rows,) * rank, lambda j: (0,) * rank)
    call = pl.pallas_call(
        partial(_kernel, halvings=halvings),
        grid=(columns // TILE,),
        in_specs=[pl.BlockSpec((rows, TILE), lambda j: (0, j)), tile(1), tile(1), pl.BlockSpec((1,), lambda j: (0,))],
        out_specs=[pl.BlockSpec((TILE,), lambda j: (j,))] * 2,
        out_shape=[jax.ShapeDtypeStruct((columns,), dtype)] * 2,
        compiler_params=triton.CompilerParams(num_warps=4),
        interpret=jax.default_backend() != "gpu",
        name="start_potentials",
    )
    theta, lifted = call(
        edge(scaled, ((0, rows - size), (0, columns - size))),
        edge(level, (0, rows - size)),
        jnp.pad(p, (0, rows - size)),
        share[None],
    )
    return theta[:size], lifted[:size]


def _kernel(scaled, level, p, share, theta, lifted, *, halvings: int) -> None:
    weight = p[...][:, None]
    mean = lambda terms: jnp.sum(weight * terms, axis=0)
    theta[...], lifted[...] = _solve(scaled[...] + level[...][:, None], mean, share[0], halvings)
