"""Relevance alone, and maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998).

A candidate with a number that is not finite is never picked. A zero row has cosine 0 to everything.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from georag_jax.kernels.greedy import Greedy, filled, nothing
from georag_jax.kernels.numerics import HIGHEST, first_best, resolution


def top_relevance(relevance: Float[Array, " K"], mask: Bool[Array, " K"], k: int) -> Greedy:
    """The k most relevant candidates, best first; each gains its relevance.

    Args:
        relevance: [K], higher is better.
        mask: [K] candidates that may be picked.
        k: number of picks.

    Cost: O(k K); memory K.

    >>> top_relevance(jnp.array([0.25, 0.75, 0.5]), jnp.array([True, True, True]), 2).indices.tolist()
    [1, 2]
    """
    slots = jnp.arange(mask.shape[0])
    if slots.size == 0:
        return nothing(k, relevance.dtype)
    valid = mask & jnp.isfinite(relevance)
    tie = resolution(relevance.dtype) * top_size(relevance, valid)

    def pick(free, _):
        best = first_best(relevance, free, tie)
        return free & (slots != best), (best, jnp.where(best >= 0, relevance[best], 0))

    _, (picks, gains) = jax.lax.scan(pick, valid, length=min(k, slots.size))
    return filled(picks, gains, k)


def greedy_mmr(
    candidates: Float[Array, "K d"],
    relevance: Float[Array, " K"],
    mask: Bool[Array, " K"],
    k: int,
    relevance_weight: float,
) -> Greedy:
    """Maximal marginal relevance: each step picks the largest w r_i - (1 - w) max_{j in S} cos(i, j).

    The maximum is over all picks so far and signed: where every cosine to the picks is negative it adds. The first
    pick is the most relevant candidate, whatever w, and gains w r_i. With w = 1 this is ``top_relevance``.

    Args:
        candidates: [K, d] unit rows; zero rows where invalid.
        relevance: [K], on the scale of a cosine, higher is better.
        mask: [K] candidates that may be picked.
        k: number of picks.
        relevance_weight: w in 0..1; 1 is relevance alone.

    Cost: O(k K d), one column of cosines per pick; memory k K beside the candidates.

    >>> rows = jnp.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> greedy_mmr(rows, jnp.array([0.75, 0.75, 0.25]), jnp.array([True, True, True]), 2, 0.5).indices.tolist()
    [0, 2]
    """
    if min(k, mask.shape[0]) == 0:
        return top_relevance(relevance, mask, k)
    slots, valid = jnp.arange(mask.shape[0]), mask & jnp.isfinite(squared_length(candidates)) & jnp.isfinite(relevance)
    size = top_size(relevance, valid)
    # cosines are sums of products of size 1, whatever the size of the relevances
    tie = resolution(candidates.dtype) * (relevance_weight * size + 1 - relevance_weight)

    to = lambda i: jnp.matmul(candidates, candidates[i], precision=HIGHEST)

    def pick(state, _):
        nearest, free, last = state
        column = to(last)
        nearest = jnp.maximum(nearest, column)
        score = relevance_weight * relevance - (1 - relevance_weight) * nearest
        best = first_best(score, free, tie)
        return (nearest, free & (slots != best), best), (best, jnp.where(best >= 0, score[best], 0), column)

    first = first_best(relevance, valid, resolution(relevance.dtype) * size)
    alone = jnp.where(first >= 0, relevance_weight * relevance[first], 0)
    start = jnp.full(slots.size, -jnp.inf, candidates.dtype), valid & (slots != first), first
    end, (picks, gains, columns) = jax.lax.scan(pick, start, length=min(k, slots.size) - 1)  # compiled once, whatever k
    cosines = jnp.pad(jnp.append(columns, to(end[2])[None], 0), ((0, max(k - slots.size, 0)), (0, 0))).T
    return filled(jnp.append(first, picks), jnp.append(alone, gains), k)._replace(cosines=cosines)


def squared_length(candidates: Float[Array, "K d"]) -> Float[Array, " K"]:
    """Of each row: 0 for a zero row, not finite where one of its numbers is not.

    A row that is not finite must not be picked: it would spoil the score of every other.
    """
    return (candidates * candidates).sum(-1)


def top_size(relevance: Float[Array, " K"], valid: Bool[Array, " K"]) -> Float[Array, ""]:
    """|largest valid relevance|, 0 without one: not the largest size, which may be a stand-in for minus infinity."""
    return jnp.abs(jnp.where(valid.any(), jnp.max(jnp.where(valid, relevance, -jnp.inf)), 0))
