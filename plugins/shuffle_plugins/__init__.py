"""Shuffle plugins: implementations of the interfaces in `shuffle_api`, and the way into Spark."""
