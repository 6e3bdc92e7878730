"""The speed of a master's registry."""
