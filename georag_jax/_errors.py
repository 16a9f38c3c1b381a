"""Errors, argument checks and the status bits that a selection carries."""

from enum import IntEnum, IntFlag

import numpy as np


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str):
        super().__init__(f"{package} is needed here and is not installed: pip install 'georag-jax[{extra}]'")
        self.package, self.extra = package, extra


class Status(IntFlag):
    """What is to be known about one selection beyond its picks; 0 is fine."""

    OVERLAP_ASSUMED = 1
    UNIFORM_QUALITY = 2
    NO_SUBQUERIES = 4
    NO_LIKELIHOOD = 8
    POOL_EXHAUSTED = 16
    NOT_CONVERGED = 32


class StopReason(IntEnum):
    """Why a selection holds the number of picks it holds."""

    K_REACHED = 0
    POOL_EXHAUSTED = 1


_MESSAGES = {
    Status.OVERLAP_ASSUMED: "no corpus lists (`retrieved`) were given: every sub-query's overlap was taken as 1",
    Status.UNIFORM_QUALITY: "no sub-query reached the quality threshold: all of them weigh the same",
    Status.NO_SUBQUERIES: "there were no sub-queries: the demand comes from the query alone",
    Status.NO_LIKELIHOOD: "no candidate has any likelihood under the sub-queries: the prior stands alone",
    Status.POOL_EXHAUSTED: "the pool held fewer than k candidates: all were picked, the rest is -1",
    Status.NOT_CONVERGED: "the transport iterations stopped short of convergence: see marginal_error",
}


def describe(status: "int | np.integer") -> str:
    """Says in words what one status bit field means.

    Args:
        status: one element of ``Selection.status``.

    Returns:
        One sentence a bit, joined by "; "; "fine" for 0.

    Raises:
        ValueError: a bit that no status has.

    >>> describe(0)
    'fine'
    """
    value = int(status)
    if value < 0 or value & ~sum(Status):
        raise ValueError(f"status: expected a bit field of {[int(s) for s in Status]}, got {value}")
    return "; ".join(_MESSAGES[s] for s in Status if value & s) or "fine"


def require(condition: "bool | np.bool_", argument: str, expected: str, got: object) -> None:
    """Raises ValueError "argument: expected ..., got ..." unless the condition holds."""
    if not condition:
        raise ValueError(f"{argument}: expected {expected}, got {got}")
