"""The greedy selectors over a Gram matrix at small sizes, under one signature."""

import jax
import jax.numpy as jnp

from georag_jax.kernels import greedy_entropic_facility_location, greedy_facility_location, greedy_sinkhorn

K, PICKS = 10, 4
ALL = jnp.ones(K, bool)
facility = jax.jit(greedy_facility_location, static_argnames=("k", "discount", "power"))
entropic = jax.jit(greedy_entropic_facility_location, static_argnames=("k", "epsilon"))
STATIC = ("k", "epsilon", "solver", "iterations", "gate", "gate_losses")
transport = jax.jit(greedy_sinkhorn, static_argnames=STATIC)

# similarity, demand, mask, first -> Greedy
COVERAGE = {
    "facility": lambda G, p, mask, first=-1: facility(G, p, mask, PICKS, first=first),
    "discounted": lambda G, p, mask, first=-1: facility(G, p, mask, PICKS, 0.3, 4.0, first=first),
    "modular": lambda G, p, mask, first=-1: facility(G, p, mask, PICKS, 1.0, first=first),
    "entropic": lambda G, p, mask, first=-1: entropic(G, p, mask, PICKS, 0.05, first=first),
}
TRANSPORT = {
    "converged": lambda G, p, mask, first=-1: transport(G, p, mask, PICKS, first=first),
    "algorithm2": lambda G, p, mask, first=-1: transport(G, p, mask, PICKS, solver="algorithm2", first=first),
    "ungated": lambda G, p, mask, first=-1: transport(G, p, mask, PICKS, gate=False, first=first),
}


def arrays(case):
    """Similarity and demand of an instance in float32."""
    return jnp.float32(case.gram), jnp.float32(case.p)
