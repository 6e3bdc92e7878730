"""What the adapters' drivers and tasks have in common: plugins that a process opens once, attempts of tasks that an
engine repeats as it likes."""

from __future__ import annotations

import atexit
import os
from functools import lru_cache
from typing import TypeAlias

from shuffle_api import MapAttempt, ShufflePlugin, open_plugin
from shuffle_api.errors import InvalidArgument
from shuffle_api.interfaces import OptionValue

Options: TypeAlias = tuple[tuple[str, OptionValue], ...]
"""Of the plugin, sorted: what a process opens once."""


def open_session(server: str | None, plugin: str, options: Options, engine: str) -> ShufflePlugin:
    """The driver's plugin, for an engine that reads data again.

    :param server: None: as the environment says.
    :raises InvalidArgument: the plugin keeps no data.
    """
    found = open_plugin(plugin, {**dict(options), **({} if server is None else {"server": server})})
    if not found.mode.reconsumable or found.mode.bounded:
        found.close()
        raise InvalidArgument(
            f"plugin {plugin!r} keeps no data to be read again, as {engine} does", remedy="use plugin 'remote'"
        )
    return found


@lru_cache(maxsize=16)
def opened(name: str, options: Options) -> ShufflePlugin:
    """The plugin of this process, which all its tasks share."""
    plugin = open_plugin(name, dict(options))
    atexit.register(plugin.close)
    return plugin


def new_attempt(map: int) -> MapAttempt:
    """An attempt of a map that no other run of its task has."""
    return MapAttempt(map, int.from_bytes(os.urandom(4), "little") >> 1)
