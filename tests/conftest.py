import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# The benchmarks are not installed; behind the installed package, so that this is what is tested.
sys.path.append(str(Path(__file__).resolve().parents[1]))

settings.register_profile(
    "deterministic", derandomize=True, deadline=None, max_examples=15, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("deterministic")

# One table: how far a result in a dtype may be from the float64 oracle. Transport multiplies an error in a cost by
# 1 / epsilon = 100, hence its own row.
TOLERANCE = {
    "float32": {"rtol": 1e-5, "atol": 2e-6},
    "float64": {"rtol": 1e-11, "atol": 1e-12},
    "transport float32": {"rtol": 1e-4, "atol": 2e-5},
    "transport float64": {"rtol": 1e-9, "atol": 1e-10},
}


@pytest.fixture(scope="session")
def close():
    """Asserts that an array is what the oracle says, within the tolerance of the array's dtype."""

    def check(got, want, kind=""):
        got = np.asarray(got)
        np.testing.assert_allclose(got, want, **TOLERANCE[f"{kind} {got.dtype.name}".strip()])

    return check


@pytest.fixture(scope="session")
def shared():
    """The question sets in ../shared/data beside the checkout."""
    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if not (folder / "hotpotqa" / "minilm_corpus.npz").exists():
        pytest.skip("needs the question sets in ../shared/data beside the checkout")
    return folder
