"""The worker: the store behind an Arrow Flight endpoint."""
