"""The `remote` plugin: batch shuffle through a standalone server."""

from shuffle_plugins.remote.plugin import RemoteShuffle

__all__ = ["RemoteShuffle"]
