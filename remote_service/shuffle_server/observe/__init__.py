"""The server seen from outside: metrics, health, logs (docs/operations.md)."""
