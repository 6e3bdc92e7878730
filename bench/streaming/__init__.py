"""The classic stream benchmarks over Flight Shuffle's public API, with Flink beside them."""
