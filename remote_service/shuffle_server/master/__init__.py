"""The master: the registry with its log and snapshots, and the gRPC control endpoint."""
