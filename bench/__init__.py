"""Benchmarks, which run from a checkout and are not in the wheel. `bench.harness` is shared by all of them."""
