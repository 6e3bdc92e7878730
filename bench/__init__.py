"""Benchmarks: programs run from a checkout, not shipped in the wheel. What they share is in `bench.harness`."""
