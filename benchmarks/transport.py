"""The paper's Algorithm 1 for one question in float64 NumPy, literally or with every transport problem converged."""

import numpy as np

SWEEPS_FIRST = 10  # sweeps that give every column mass before Newton's steps
NEWTON_STEPS = 200


def greedy_transport(
    costs: np.ndarray,
    mass: np.ndarray,
    k: int,
    epsilon: float,
    iterations: int | None,
    gate: np.ndarray | None = None,
    first: int | None = None,
    gate_losses: bool = False,
    tolerance: float = 1e-6,
) -> tuple[list[int], float]:
    """Picks, and the largest L1 marginal error of any candidate solved.

    Args:
        costs: [points, K] from each demand point to each candidate.
        mass: [points] of the demand.
        k: number of picks.
        epsilon: entropic regulariser > 0.
        iterations: of Algorithm 2; None for Newton's method on the semi-dual, until ``tolerance``.
        gate: [K, K] similarities for the gate; None for no gate.
        first: the forced first pick; None for the smallest W.
        gate_losses: whether the gate acts on a loss too.
        tolerance: L1 error of the columns' marginal at which Newton's method stops.
    """
    costs, mass = costs.astype(np.float64), mass.astype(np.float64)
    costs, mass = costs[mass > 0], mass[mass > 0] / mass.sum()
    kernel, alone = np.exp(-costs / epsilon), mass @ costs
    picks = [int(alone.argmin()) if first is None else int(first)]
    current, worst = alone[picks[0]], 0.0
    while len(picks) < k:
        free = np.setdiff1d(np.arange(costs.shape[1]), picks)
        if iterations is None:
            value, error = converged(costs, kernel, mass, picks, free, tolerance)
        else:
            value, error = swept(costs, kernel, mass, picks, free, iterations)
        loss = current - value
        if gate is not None:
            opened = 1 - gate[np.ix_(free, picks)].max(1)
            loss = loss * (opened if gate_losses else np.where(loss < 0, 1, opened))
        best = int(loss.argmax())
        worst, current = max(worst, float(error.max())), value[best]
        picks.append(int(free[best]))
    return picks, worst


def swept(costs, kernel, mass, picks, free, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """W and row error of the picks and one candidate more, for every free candidate, after Algorithm 2.

    Scaling form: the picks' columns are shared by all candidates, so a sweep is two small matrix products and no
    exponential.
    """
    rows, common, single = _sweeps(kernel, mass, picks, free, iterations)
    shared, own = kernel[:, picks], kernel[:, free]
    error = np.abs(rows * (shared @ common + own * single) - mass[:, None]).sum(0)
    paid = (shared * costs[:, picks]) @ common + own * costs[:, free] * single
    return np.einsum("pl,pl->l", rows, paid), error


def converged(costs, kernel, mass, picks, free, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """The same with the semi-dual solved by damped Newton steps; the error is that of the columns.

    The step ln(1 + d) / d, d the span of the direction, converges from anywhere (generalised self-concordance).
    """
    _, common, single = _sweeps(kernel, mass, picks, free, SWEEPS_FIRST)
    columns = np.concatenate([np.repeat(np.array(picks)[None], len(free), 0), free[:, None]], 1)
    t = columns.shape[1]
    scale = np.concatenate([common.T, single[:, None]], 1)
    value, error, left = np.empty(len(free)), np.full(len(free), np.inf), np.arange(len(free))
    lanes, paid = kernel.T[columns], costs.T[columns]
    for _ in range(NEWTON_STEPS):
        plan = lanes * scale[:, :, None]
        plan *= (mass / plan.sum(1))[:, None, :]
        reached = plan.sum(2)
        error[left] = np.abs(reached - 1 / t).sum(1)
        value[left] = np.einsum("ltp,ltp->l", plan, paid)
        going = error[left] > tolerance
        if not going.any():
            break
        left, lanes, paid, plan, scale, reached = (x[going] for x in (left, lanes, paid, plan, scale, reached))
        curved = reached[:, :, None] * np.eye(t) - np.matmul(plan / mass, plan.transpose(0, 2, 1))
        curved = curved[:, :-1, :-1] + 1e-14 * np.eye(t - 1)
        step = np.linalg.solve(curved, (1 / t - reached[:, :-1])[:, :, None])[:, :, 0]
        step = np.concatenate([step, np.zeros((len(step), 1))], 1)
        span = np.maximum(step.max(1) - step.min(1), 1e-12)[:, None]
        scale = scale * np.exp(step * np.log1p(span) / span)
    return value, error


def _sweeps(kernel, mass, picks, free, iterations):
    share, shared, own = 1 / (len(picks) + 1), kernel[:, picks], kernel[:, free]
    common, single = np.ones((len(picks), len(free))), np.ones(len(free))
    for _ in range(iterations):
        rows = mass[:, None] / (shared @ common + own * single)
        common, single = share / (shared.T @ rows), share / np.einsum("pl,pl->l", own, rows)
    return rows, common, single
