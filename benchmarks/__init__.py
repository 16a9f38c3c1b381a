"""Measurements: ``python -m benchmarks.quality`` for evidence coverage on real question sets."""
