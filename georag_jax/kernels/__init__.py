"""The method's equations as pure functions for one problem; batch them with ``jax.vmap``.

JAX and NumPy alone. ``quality`` Eq. 6-8, ``demand`` Eq. 9-11, ``transport`` Algorithm 2, ``coverage`` Eq. 4 and its
kin, ``greedy`` Algorithm 1 (Eq. 12, 13). Every ragged axis has a mask; where nothing is valid the value is 0 or -1.
"""

from georag_jax.kernels.algorithm1 import greedy_sinkhorn as greedy_sinkhorn
from georag_jax.kernels.cost import cosine as cosine
from georag_jax.kernels.cost import cost as cost
from georag_jax.kernels.cost import unit_cosine as unit_cosine
from georag_jax.kernels.coverage import entropic_facility_location as entropic_facility_location
from georag_jax.kernels.coverage import facility_location as facility_location
from georag_jax.kernels.coverage import marginal_gains as marginal_gains
from georag_jax.kernels.coverage import prefix_coverage as prefix_coverage
from georag_jax.kernels.coverage import serve as serve
from georag_jax.kernels.coverage import service as service
from georag_jax.kernels.coverage import start_served as start_served
from georag_jax.kernels.demand import demand as demand
from georag_jax.kernels.demand import likelihood as likelihood
from georag_jax.kernels.demand import retrieval_prior as retrieval_prior
from georag_jax.kernels.dpp import greedy_dpp as greedy_dpp
from georag_jax.kernels.greedy import Greedy as Greedy
from georag_jax.kernels.greedy import greedy_entropic_facility_location as greedy_entropic_facility_location
from georag_jax.kernels.greedy import greedy_facility_location as greedy_facility_location
from georag_jax.kernels.mmr import greedy_mmr as greedy_mmr
from georag_jax.kernels.mmr import top_relevance as top_relevance
from georag_jax.kernels.quality import Factors as Factors
from georag_jax.kernels.quality import max_min_filter as max_min_filter
from georag_jax.kernels.quality import quality_weights as quality_weights
from georag_jax.kernels.quality import validation_factors as validation_factors
from georag_jax.kernels.transport import Transport as Transport
from georag_jax.kernels.transport import sinkhorn as sinkhorn
from georag_jax.kernels.transport import sinkhorn_with_each as sinkhorn_with_each
