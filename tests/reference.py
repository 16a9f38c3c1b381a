"""Float64 NumPy oracle of GeoRAG: small, slow and literal. The kernels are held against it.
Symbols (paper -> here): K candidates, k budget, m sub-queries, d embedding width,
G [K, K] cosine similarities of the candidates, p [K] the demand P_Q, eps the entropic regulariser.
Ties always go to the lowest index.
"""

from itertools import combinations

import numpy as np
from scipy.special import logsumexp


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


# --- sub-queries (Eq. 6-8) -------------------------------------------------------------------------
def max_min_filter(sub, query, m):
    """Indices of the m most dispersed sub-queries; starts at the one nearest the query."""
    chosen = [int(np.argmax(sub @ query))]
    while len(chosen) < min(m, len(sub)):
        distance = (1 - sub @ sub[chosen].T).min(1)
        distance[chosen] = -np.inf
        chosen.append(int(np.argmax(distance)))
    return chosen


def reverse_validation(retrieved, primary, threshold=0.05, quality="overlap_novelty"):
    """Weights [m] that sum to 1. retrieved: m sets of chunk ids, the corpus top-20 of each sub-query;
    primary: chunk ids of the query's own top-K, whatever the candidate pool is made of."""
    primary, scores = set(primary), []
    for j, own in enumerate(retrieved):
        others = set().union(*(r for i, r in enumerate(retrieved) if i != j))
        overlap, novelty = (len(own & primary) / len(own), len(own - others) / len(own)) if own else (0.0, 0.0)
        scores.append({"overlap_novelty": overlap * novelty, "overlap": overlap, "uniform": 1.0}[quality])
    scores = np.where(np.array(scores) < threshold, 0.0, scores)
    total = scores.sum()
    return scores / total if total > 0 else np.full(len(scores), 1 / len(scores))


# --- demand (Eq. 9-11) -----------------------------------------------------------------------------
def retrieval_prior(score, temperature=1.0):
    z = score / temperature
    return np.exp(z - logsumexp(z))


def likelihood(cand, sub, weight, temperature=None):
    """temperature None: Eq. 10. Otherwise each sub-query spreads its own weight over the pool by softmax."""
    sim = cand @ sub.T
    if temperature is None:
        return np.clip(sim, 0, 1) @ weight
    z = sim / temperature
    return np.exp(z - logsumexp(z, axis=0)) @ weight


def demand(prior, like, alpha=1.0, beta=1.0):
    """Eq. 11; where no candidate has likelihood the prior stands alone."""
    w = prior**alpha * like**beta
    w = w if w.sum() > 0 else prior**alpha
    return w / w.sum()


# --- entropic transport (Algorithm 2) --------------------------------------------------------------
def sinkhorn(M, p, e, eps=0.01, iters=100):
    """(W, error): M [..., K, t], p [K], e [t]; W = <pi, M> without the entropy term; error: L1 of the row marginal."""
    f = np.zeros(M.shape[:-1])
    g = np.zeros(M.shape[:-2] + M.shape[-1:])
    with np.errstate(divide="ignore"):
        log_p, log_e = np.log(p), np.log(e)
    for _ in range(iters):
        f = eps * log_p - eps * logsumexp((g[..., None, :] - M) / eps, axis=-1)
        g = eps * log_e - eps * logsumexp((f[..., :, None] - M) / eps, axis=-2)
    plan = np.exp((f[..., :, None] + g[..., None, :] - M) / eps)
    return (plan * M).sum((-1, -2)), np.abs(plan.sum(-1) - p).sum(-1)


# --- the same problem, converged -------------------------------------------------------------------
def transport_converged(M, p, e, eps=0.01, tolerance=1e-12):
    """(W, error) of ``sinkhorn`` in the limit; error: L1 of the column marginal, the rows are exact.

    Maximises sum_j e_j g_j - eps sum_i p_i lse_j((g_j - M_ij) / eps): epsilon is halved down to its value, and at each
    one damped Newton steps alternate with Sinkhorn's update of g. Fails where that does not converge.
    """
    t, shape = M.shape[-1], M.shape[:-2]
    M, p = np.swapaxes(M.reshape(-1, *M.shape[-2:]), 1, 2), p / p.sum()  # [n, t, K]
    g, value, error = np.zeros(M.shape[:2]), np.zeros(len(M)), np.full(len(M), np.inf)
    for at in eps * 2.0 ** np.arange(max(np.ceil(np.log2(1 / eps)), 0), -1, -1):
        todo, enough = np.arange(len(M)), tolerance if at == eps else 1e-3
        for _ in range(300):
            z = (g[todo, :, None] - M[todo]) / at
            s = np.exp(z - z.max(1, keepdims=True))
            s /= s.sum(1, keepdims=True)
            held = s @ p
            error[todo], value[todo] = np.abs(held - e).sum(1), (p * s * M[todo]).sum((1, 2))
            going = error[todo] > enough
            todo, s, held = todo[going], s[going], held[going]
            if not len(todo):
                break
            laplacian = -(s * p) @ np.swapaxes(s, 1, 2)
            laplacian[:, range(t), range(t)] = 0
            laplacian[:, range(t), range(t)] = -laplacian.sum(2)
            newton = (np.linalg.pinv(laplacian, hermitian=True) @ (e - held)[:, :, None])[..., 0]
            span = np.ptp(newton, axis=1, keepdims=True)
            g[todo] += at * newton * np.log1p(span) / np.maximum(span, 1e-300)
            z = (g[todo, :, None] - M[todo]) / at
            log_s = z - logsumexp(z, axis=1, keepdims=True)
            g[todo] += at * (np.log(e) - logsumexp(log_s, axis=2, b=p))
    assert error.max() <= max(1e-10, tolerance), error.max()
    return value.reshape(shape), error.reshape(shape)


# --- coverage (Eq. 4 and its kin) ------------------------------------------------------------------
def facility_location(G, p, S):
    return float(p @ np.maximum(G[:, list(S)], 0).max(1)) if len(S) else 0.0


def discounted_facility_location(sim, weight, S, discount=0.0, power=1.0):
    """sum_i weight_i sum_r discount^(r-1) (r-th best sim[i, S])^power; sim [points, K], clipped at 0."""
    if not len(S):
        return 0.0
    served = -np.sort(-(np.maximum(sim[:, list(S)], 0) ** power), axis=1)
    return float(weight @ (served * discount ** np.arange(len(S))).sum(1))


def entropic_facility_location(G, p, S, eps):
    """eps sum_i p_i log(1 + sum_s (exp(sim_is/eps) - 1)): monotone submodular for every eps > 0, Eq. 4 for one pick."""
    if not len(S):
        return 0.0
    z = np.maximum(G[:, list(S)], 0) / eps
    top = z.max(1)
    return float(eps * (p @ (top + np.log(np.exp(z - top[:, None]).sum(1) + (1 - len(S)) * np.exp(-top)))))


def best_set(value, n, k):
    return max(combinations(range(n), k), key=value)


def greedy(value, n, k, start=()):
    S = list(start)
    while len(S) < min(k, n):
        gain = [-np.inf if i in S else value(S + [i]) for i in range(n)]
        S.append(int(np.argmax(gain)))
    return S


# --- Algorithm 1 -----------------------------------------------------------------------------------
def georag(G, query_sim, p, k=5, eps=0.01, iters=100, gate=True, delta_w=True):
    """Picks in order and the score of each; the first is the cold start, scored 1 - W (no set counts as W = 1)."""
    M, S = 1 - G, [int(np.argmax(query_sim))]
    current = float(p @ M[:, S[0]])
    scores = [1 - current]
    for t in range(2, min(k, len(p)) + 1):
        rest = np.array([i for i in range(len(p)) if i not in S])
        W, _ = sinkhorn(np.stack([M[:, S + [i]] for i in rest]), p, np.full(t, 1 / t), eps, iters)
        score = (1 - G[np.ix_(rest, S)].max(1) if gate else 1.0) * ((current - W) if delta_w else 1.0)
        best = int(np.argmax(score))
        scores.append(float(score[best]))
        S.append(int(rest[best]))
        current = float(W[best])
    return S, scores


# --- the same, faster and with more to say ---------------------------------------------------------
def transport_with_each(M, p, S, rest, eps=0.01, iters=100):
    """W [n] of S and each of rest: ``sinkhorn`` in its scaling form, u = exp(f / eps), which float64 can hold here."""
    t, kernel = len(S) + 1, np.exp(-M / eps)
    shared, own = kernel[:, S], kernel[:, rest]
    v, w = np.ones((t - 1, len(rest))), np.ones(len(rest))
    for _ in range(iters):
        u = p[:, None] / (shared @ v + own * w)
        v, w = 1 / t / (shared.T @ u), 1 / t / (own * u).sum(0)
    return (u * ((shared * M[:, S]) @ v + own * M[:, rest] * w)).sum(0)


def georag_trace(G, query_sim, p, k=5, eps=0.01, iters=100):
    """Picks, scores and margins (best minus second best) of ``georag``; within 1e-12 the lowest index wins.

    The two are compared in the tests; this one takes a hundredth of the time.
    """
    M, S, scores, margins, current = 1 - G, [], [], [], None
    while len(S) < min(k, len(p)):
        rest = np.array([i for i in range(len(p)) if i not in S])
        if S:
            W = transport_with_each(M, p, S, rest, eps, iters)
            score = (1 - G[np.ix_(rest, S)].max(1)) * (current - W)
        else:
            W, score = p @ M, query_sim
        best = int(np.argmax(score >= score.max() - 1e-12))
        scores.append(float(score[best] if S else 1 - W[best]))
        margins.append(float(score[best] - np.delete(score, best).max(initial=-np.inf)))
        S.append(int(rest[best]))
        current = W[best]
    return S, scores, margins


def georag_converged(G, first, p, k=5, eps=0.01, gate=True, gate_losses=True):
    """Picks, scores and margins of Algorithm 1 over converged transport; ``first`` None for the smallest W alone."""
    M, alone = 1 - G, p @ G
    S, scores, margins = [int(np.argmax(alone)) if first is None else first], [], [np.inf]
    current = float(p @ M[:, S[0]])
    scores.append(1 - current)
    while len(S) < min(k, len(p)):
        rest = np.array([i for i in range(len(p)) if i not in S])
        e = np.full(len(S) + 1, 1 / (len(S) + 1))
        W, _ = transport_converged(np.stack([M[:, [*S, i]] for i in rest]), p, e, eps)
        closed = 1 - G[np.ix_(rest, S)].max(1) if gate else np.ones(len(rest))
        score = (current - W) * np.where((current - W < 0) & (not gate_losses), 1, closed)
        best = int(np.argmax(score >= score.max() - 1e-12))
        margins.append(float(score[best] - np.delete(score, best).max(initial=-np.inf)))
        scores.append(float(score[best]))
        S.append(int(rest[best]))
        current = W[best]
    return S, scores, margins


def paper_demand(cand, query, sub, retrieved, primary, kept=10):
    """(demand [K], weights [m]) of the paper preset from vectors of any length; retrieved: m sets of chunk numbers."""
    cand, query = unit(np.asarray(cand, float)), unit(np.asarray(query, float))
    prior = retrieval_prior(cand @ query)
    if not len(sub):
        return prior, np.zeros(0)
    sub, weight = unit(np.asarray(sub, float)), np.zeros(len(sub))
    keep = sorted(max_min_filter(sub, query, kept))
    weight[keep] = reverse_validation([retrieved[j] for j in keep], primary)
    return demand(prior, likelihood(cand, sub, weight)), weight
