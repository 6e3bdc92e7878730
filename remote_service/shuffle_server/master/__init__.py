"""The master: the registry with its journal, and the gRPC control endpoint."""
