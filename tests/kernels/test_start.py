import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from instances import instance
from scipy.special import expit

from georag_jax.kernels import start
from georag_jax.kernels.algorithm1 import greedy_sinkhorn
from georag_jax.kernels.start import start_potentials

solve = jax.jit(start_potentials, static_argnames=("epsilon", "backend"))
BACKENDS = pytest.mark.parametrize("backend", ["xla", "pallas"])
K = 12


def problem(seed, epsilon, pick=0):
    case = instance(seed, K)
    scaled = jnp.float32((1 - case.gram) / epsilon)
    return scaled, -scaled[:, pick], jnp.float32(case.p)


@BACKENDS
@given(seed=st.integers(0, 10**6), epsilon=st.sampled_from([0.01, 0.2]), share=st.sampled_from([0.5, 0.125]))
def test_the_new_column_holds_about_its_share(backend, seed, epsilon, share):
    """Roughly, after so few halvings and steps, but never nothing; the rows' rise is exact for what came out."""
    scaled, level, p = problem(seed, epsilon)
    theta, lifted = solve(scaled, level, p, jnp.float32(share), epsilon, backend)
    over = np.float64(theta)[None] - np.float64(scaled) - np.float64(level)[:, None]
    held = np.float64(p) @ expit(over)
    assert held.min() > 1e-4
    assert np.median(held) > share / 4
    np.testing.assert_allclose(lifted, np.float64(p) @ np.logaddexp(0, over), rtol=1e-4, atol=1e-4)


@given(seed=st.integers(0, 10**6))
def test_the_gpu_kernel_is_the_xla_program(seed):
    want, got = (solve(*problem(seed, 0.05), jnp.float32(0.25), 0.05, backend) for backend in ("xla", "pallas"))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 31, 33])
def test_tiles_that_are_not_full(size):
    case = instance(3, size, zeros=0)
    scaled, p = jnp.float32((1 - case.gram) / 0.05), jnp.float32(case.p)
    want, got = (solve(scaled, -scaled[:, 0], p, jnp.float32(0.5), 0.05, backend) for backend in ("xla", "pallas"))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_the_gpu_kernel_in_the_selector():
    case = instance(11, K)
    arrays = jnp.float32(case.gram), jnp.float32(case.p), jnp.ones(K, bool), 4
    want, got = (greedy_sinkhorn(*arrays, backend=backend) for backend in ("xla", "pallas"))
    assert got.indices.tolist() == want.indices.tolist()
    np.testing.assert_allclose(got.gains, want.gains, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")  # since JAX 0.12
def test_the_gpu_kernel_is_lowered_for_a_gpu_in_a_batch(monkeypatch):
    """As far as can be told without one: batched, Pallas makes a Triton program of it."""
    monkeypatch.setattr(start.jax, "default_backend", lambda: "gpu")
    arrays = [jnp.stack([array] * 3) for array in problem(5, 0.01)]
    batched = jax.jit(jax.vmap(lambda *a: start_potentials(*a, jnp.float32(0.5), 0.01, "pallas")))
    gpu = jax.sharding.AbstractDevice("NVIDIA H200", None, "gpu")
    with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), (), abstract_device=gpu)):
        text = batched.trace(*arrays).lower(lowering_platforms=("cuda",)).as_text()
    assert "triton" in text
    assert "start_potentials" in text
