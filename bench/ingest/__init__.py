"""The speed of a worker's store."""
