"""Benchmarks (`python -m bench`) and the soak test (`python -m bench.soak`)."""
