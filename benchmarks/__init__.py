"""Measurements on real question sets.

``python -m benchmarks.quality`` for evidence coverage; ``python -m benchmarks run`` and ``report`` for speed.
"""

import os

# The products are small and two threads work on questions already: more threads in each product only get in the way.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
