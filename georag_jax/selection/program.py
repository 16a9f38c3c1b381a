"""From the arrays of one query to its picks: the stages of the method in order."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from georag_jax._errors import Status, StopReason
from georag_jax.config import SelectConfig
from georag_jax.kernels import coverage, greedy, quality
from georag_jax.kernels.algorithm1 import greedy_sinkhorn
from georag_jax.kernels.cost import unit_cosine, unit_gram
from georag_jax.kernels.demand import demand, likelihood, retrieval_prior
from georag_jax.kernels.dpp import greedy_dpp
from georag_jax.kernels.mmr import greedy_mmr, top_relevance
from georag_jax.kernels.numerics import HIGHEST, first_best, resolution

POOL_LIST = 20  # entries of a sub-query's own list (Eq. 7) where it has to be taken from the pool
CONVERGED = {"converged": 3e-6, "algorithm2": 1e-3}  # marginal error that counts as such


class Problem(NamedTuple):
    """One query (or, with a leading axis, a batch), padded. None where the caller gave nothing.

    Vectors have length 1, or 0 where a mask leaves them out; candidates have it once multiplied by ``factors``, and may
    hold anything where that is 0.
    """

    candidates: Float[Array, "K d"]
    query: Float[Array, " d"]
    candidate_mask: Bool[Array, " K"]
    subquery_mask: Bool[Array, " m"]
    subqueries: Float[Array, "m d"] | None
    scores: Float[Array, " K"] | None
    affinity: Float[Array, "m K"] | None
    retrieved: Int[Array, "m r"] | None
    primary: Int[Array, " P"] | None
    weights: Float[Array, " m"] | None
    factors: Float[Array, " K"] | None = None


class Outcome(NamedTuple):
    """The fields of ``Selection`` that are computed on the device."""

    indices: Int[Array, " k"]
    gains: Float[Array, " k"]
    demand: Float[Array, " K"]
    coverage: Float[Array, " k"]
    quality: Float[Array, " m"]
    marginal_error: Float[Array, ""]
    status: Int[Array, ""]
    scores: Float[Array, " k"]
    stopped: Int[Array, ""]


def select_one(problem: Problem, config: SelectConfig) -> Outcome:
    """All stages for one problem."""
    valid = problem.candidate_mask
    candidates, factors = problem.candidates, problem.factors
    if factors is not None:
        candidates = jnp.where(factors[:, None] > 0, candidates * factors[:, None], 0)
    to_query = unit_cosine(candidates, problem.query[None])[:, 0]
    scores = to_query if problem.scores is None else jnp.where(valid, problem.scores, 0)
    affinity = _affinity(problem, candidates)
    weights, status = _subquery_weights(problem, affinity, config)

    alone = ~problem.subquery_mask.any()  # the query is one more sub-query, which weighs where there is no other
    affinity = jnp.concatenate([affinity, to_query[None]])
    all_weights = jnp.append(weights, alone.astype(weights.dtype))
    asking = jnp.append(weights, 0) if config.without_subqueries == "prior" else all_weights
    prior = retrieval_prior(scores, valid, config.prior_temperature)
    like = likelihood(affinity, asking, valid, config.likelihood_temperature)
    p, silent = demand(prior, like, valid, config.alpha, config.beta, config.fusion)

    gram = unit_gram(candidates) if _needs_gram(config) else None
    picked = _greedy(candidates, gram, scores, to_query, p, affinity, all_weights, valid, config)
    found = picked.indices >= 0
    to_picks = _to_picks(candidates, gram, picked)
    short = ~found.all()
    status = (
        status
        | _bit(alone, Status.NO_SUBQUERIES)
        | _bit(silent & ~(alone & (config.without_subqueries == "prior")), Status.NO_LIKELIHOOD)
        | _bit(short, Status.POOL_EXHAUSTED)
        | _bit(picked.marginal_error > CONVERGED[config.solver], Status.NOT_CONVERGED)
    )
    return Outcome(
        indices=picked.indices,
        gains=picked.gains,
        demand=p,
        coverage=coverage.prefix_coverage(to_picks, p, jnp.where(found, jnp.arange(config.k), -1)),
        quality=weights,
        marginal_error=picked.marginal_error,
        status=status,
        scores=jnp.where(found, scores[picked.indices], 0),
        stopped=jnp.where(short, StopReason.POOL_EXHAUSTED, StopReason.K_REACHED).astype(jnp.int32),
    )


def _to_picks(candidates: Float[Array, "K d"], gram, picked: greedy.Greedy) -> Float[Array, "K k"]:
    """Cosines of all candidates to the picks, computed where nothing before has."""
    if picked.cosines is not None:
        return jnp.clip(picked.cosines, -1, 1)
    return unit_cosine(candidates, candidates[picked.indices]) if gram is None else gram[:, picked.indices]


def _affinity(problem: Problem, candidates: Float[Array, "K d"]) -> Float[Array, "m K"]:
    if problem.affinity is not None:
        return problem.affinity
    if problem.subqueries is None:
        raise ValueError("subqueries: expected vectors where there is no affinity, got None")
    return unit_cosine(problem.subqueries, candidates)


def _subquery_weights(problem: Problem, affinity: Float[Array, "m K"], config: SelectConfig):
    """Stages 2 and 3: max-min filter, then the given weights or reverse validation; status bits beside them."""
    mask = problem.subquery_mask
    if config.subqueries_kept is not None and config.subqueries_kept < mask.shape[0]:
        if problem.subqueries is None:
            raise ValueError("subqueries: expected vectors for the max-min filter (subqueries_kept), got None")
        mask = quality.max_min_filter(problem.subqueries, problem.query, mask, config.subqueries_kept)
    if problem.weights is not None:
        weights, flat = quality.normalise_weights(problem.weights, mask)
        return weights, _bit(flat, Status.UNIFORM_QUALITY)
    if problem.retrieved is None:
        factors = _factors_within_pool(affinity, problem.candidate_mask, mask, config)
        assumed = mask.any() & (config.quality != "uniform")
    else:
        factors = quality.validation_factors(problem.retrieved, in_primary(problem, problem.retrieved), mask)
        assumed = jnp.zeros((), bool)
    weights, flat = quality.quality_weights(
        factors, mask, config.quality, config.quality_threshold, config.quality_saturation
    )
    weights = weights.astype(affinity.dtype)  # counts come in the widest type there is
    return weights, _bit(flat, Status.UNIFORM_QUALITY) | _bit(assumed, Status.OVERLAP_ASSUMED)


def in_primary(problem: Problem, retrieved: Int[Array, "m r"]) -> Bool[Array, "m r"]:
    """Which entries are in the query's own top-K; in the pool where that was not given."""
    if problem.primary is None:
        size = problem.candidate_mask.shape[0]
        return problem.candidate_mask[jnp.clip(retrieved, 0, size - 1)] & (retrieved < size)
    return (problem.primary[:, None, None] == retrieved).any(0)  # the long axes innermost


def _factors_within_pool(affinity, valid, mask, config: SelectConfig) -> quality.Factors:
    """Without corpus lists R_j is the top of the pool: overlap 1, novelty between the sub-queries alone."""
    ones = jnp.ones(mask.shape, affinity.dtype)
    if config.quality != "overlap_novelty":
        return quality.Factors(ones, ones)
    length = min(POOL_LIST, valid.shape[0])
    top, numbers = jax.lax.top_k(jnp.where(valid, affinity, -jnp.inf), length)
    return quality.validation_factors(jnp.where(jnp.isfinite(top), numbers, -1), jnp.isfinite(top), mask)


def _needs_gram(config: SelectConfig) -> bool:
    """Whether the objective compares all candidates with each other."""
    return config.objective not in ("mmr", "dpp", "cosine") and config.service.demand_points == "candidates"


def _greedy(candidates, gram, scores, to_query, p, affinity, weights, valid, config: SelectConfig) -> greedy.Greedy:
    if config.objective == "cosine" or config.objective in ("mmr", "dpp") and config.relevance_weight == 1:
        return top_relevance(scores, valid, config.k)
    if config.objective == "mmr":
        return greedy_mmr(candidates, scores, valid, config.k, config.relevance_weight)
    if config.objective == "dpp":
        return greedy_dpp(candidates, scores, valid, config.k, config.relevance_weight)
    first = first_best(to_query, valid, resolution(to_query.dtype)) if config.first_pick == "query" else -1
    points, discount, power, ownership, consensus = config.service
    if points == "subqueries":
        mean = jnp.matmul(weights, affinity, precision=HIGHEST)
        blended = jnp.where(valid, (1 - consensus) * jnp.maximum(affinity, 0) + consensus * jnp.maximum(mean, 0), 0)
        return greedy.greedy_facility_location(blended, weights, valid, config.k, discount, power, ownership, first)
    if config.objective == "sinkhorn":
        rule = (config.epsilon, config.solver, config.iterations, config.gate, config.gate_losses)
        return greedy_sinkhorn(gram, p, valid, config.k, *rule, first, config.backend)
    if config.objective == "entropic_facility_location":
        return greedy.greedy_entropic_facility_location(gram, p, valid, config.k, config.epsilon, first)
    return greedy.greedy_facility_location(gram, p, valid, config.k, discount, power, ownership, first)


def _bit(condition, status: Status):
    return jnp.where(condition, int(status), 0).astype(jnp.int32)
