"""The two solvers of the transport objective, as ``select`` has them."""

from dataclasses import replace

import numpy as np
import pytest
from instances import instance

from georag_jax import SelectConfig, Status, select
from georag_jax.selection.program import CONVERGED

B, K, M, D = 40, 10, 4, 5
EXACT = SelectConfig(k=3, objective="sinkhorn", first_pick="query")
ROUGH = replace(EXACT, k=2, solver="algorithm2", iterations=1)


@pytest.fixture(scope="module")
def arrays():
    cases = [instance(seed, K, M, D) for seed in range(B)]
    return {name: np.stack([getattr(case, name) for case in cases]) for name in ("candidates", "query", "subqueries")}


def test_the_solver_is_the_default():
    assert EXACT.solver == "converged"
    assert SelectConfig.preset("paper").solver == "algorithm2"


def test_converged_always_is(arrays):
    got = select(**arrays, config=EXACT)
    assert not (got.status & Status.NOT_CONVERGED).any()
    assert (got.marginal_error <= CONVERGED["converged"]).all()


def test_one_iteration_is_not(arrays):
    got = select(**arrays, config=ROUGH)
    assert (got.status & Status.NOT_CONVERGED != 0).tolist() == (got.marginal_error > CONVERGED["algorithm2"]).tolist()
    assert (got.status & Status.NOT_CONVERGED).all()


def test_iterations_are_not_read_by_converged(arrays):
    got, want = (select(**arrays, config=replace(EXACT, k=2, epsilon=0.2, iterations=n)) for n in (100, 7))
    np.testing.assert_array_equal(got.gains, want.gains)


def test_both_agree_where_the_iterations_suffice(arrays):
    """A wide epsilon: there a few hundred updates leave little to converge."""
    wide = replace(EXACT, k=2, epsilon=0.2)
    exact, iterated = (select(**arrays, config=c) for c in (wide, replace(wide, solver="algorithm2", iterations=300)))
    assert not (iterated.status & Status.NOT_CONVERGED).any()
    np.testing.assert_array_equal(iterated.indices, exact.indices)
    np.testing.assert_allclose(iterated.gains, exact.gains, atol=1e-3)  # what that status lets pass
