"""A Python program's shuffle beside those of dask and Spark."""
