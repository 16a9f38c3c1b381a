"""The Information Demand Proxy P_Q (Definition 2, Eq. 9-11)."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from georag_jax.config import Fusion
from georag_jax.kernels.numerics import HIGHEST, masked_softmax, safe_divide


def retrieval_prior(score: Float[Array, " K"], mask: Bool[Array, " K"], temperature: float = 1.0) -> Float[Array, " K"]:
    """R = softmax(score / temperature) over the valid candidates (Eq. 9)."""
    best = jnp.max(jnp.where(mask, score, -jnp.inf), initial=-jnp.inf)
    below = jnp.where(mask, score - best, 0)  # <= 0: a small temperature cannot make it infinite
    return masked_softmax(below / temperature, mask)


def likelihood(
    affinity: Float[Array, "m K"],
    weight: Float[Array, " m"],
    mask: Bool[Array, " K"],
    temperature: float | None = None,
) -> Float[Array, " K"]:
    """How much the weighted sub-queries ask for each candidate.

    temperature None: L_i = sum_j w_j clip(affinity_ji, 0, 1) (Eq. 10). Otherwise the mixture
    L_i = sum_j w_j softmax_i(affinity_ji / temperature): each sub-query owns the mass w_j and spreads it over the pool.

    Args:
        affinity: [m, K] similarity of each sub-query to each candidate.
        weight: [m] weights that sum to 1.
        mask: [K] valid candidates.
        temperature: None, or > 0.
    """
    if temperature is None:
        spread = jnp.where(mask, jnp.clip(affinity, 0, 1), 0)
    else:
        spread = masked_softmax(affinity / temperature, jnp.broadcast_to(mask, affinity.shape))
    return jnp.matmul(weight, spread, precision=HIGHEST)


def demand(
    prior: Float[Array, " K"],
    like: Float[Array, " K"],
    mask: Bool[Array, " K"],
    alpha: float = 1.0,
    beta: float = 1.0,
    fusion: Fusion = "product",
) -> tuple[Float[Array, " K"], Bool[Array, ""]]:
    """P_Q over the valid candidates, and whether the prior had to stand alone.

    product: r^alpha L^beta / sum (Eq. 11), or r^alpha / sum where no candidate has likelihood.
    linear: alpha r + beta L / sum(L), normalised: the paper's ablation with both terms as distributions.

    Args:
        prior: [K] r, sums to 1 over the valid candidates.
        like: [K] L, >= 0.
        mask: [K] valid candidates.
        alpha: >= 0; 0 leaves the prior out.
        beta: >= 0; 0 leaves the likelihood out.
        fusion: "product" or "linear".

    Returns:
        p [K], 0 for an invalid candidate, and whether the likelihood said nothing though it was asked.
    """
    if fusion == "linear":
        weight = jnp.where(mask, alpha * prior + beta * safe_divide(like, like.sum()), 0)
        alone = ~(weight.sum() > 0) if alpha == 0 else (beta > 0) & ~(like > 0).any()
        weight = jnp.where(weight.sum() > 0, weight, prior)
        return safe_divide(weight, weight.sum()), alone & mask.any()
    # logarithms: a product of a small prior and a small likelihood would underflow
    log_prior = alpha * jnp.log(prior) if alpha > 0 else jnp.zeros_like(prior)
    both = log_prior + beta * jnp.log(like) if beta > 0 else log_prior
    alone = ~(mask & jnp.isfinite(both)).any()
    log_weight = jnp.where(alone, log_prior, both)
    return masked_softmax(log_weight, mask & jnp.isfinite(log_weight)), alone & mask.any()
