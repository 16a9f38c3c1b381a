"""Speed, memory and marginal error, side by side with other libraries: ``python -m benchmarks run`` and ``report``."""

CASES = ("sinkhorn", "facility_location", "diversity", "scaling", "error", "memory", "ragged")
STORED = "speed.json"
