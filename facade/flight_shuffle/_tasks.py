"""What the adapters' drivers and tasks have in common: plugins that a process opens once, attempts of tasks that an
engine repeats as it likes."""

from __future__ import annotations

import atexit
import os
from functools import lru_cache
from types import TracebackType
from typing import Self, TypeAlias

from shuffle_api import MapAttempt, ShufflePlugin, open_plugin
from shuffle_api.errors import InvalidArgument
from shuffle_api.interfaces import OptionValue

Options: TypeAlias = tuple[tuple[str, OptionValue], ...]
"""Of the plugin, sorted: what a process opens once."""


class ShuffleSession:
    """The driver's side of an engine that reads data again: its shuffles' data stays until this is closed.

    :param server: None: as the environment says.
    :param app: the application's name.
    :ivar master: registers its shuffles.
    :raises InvalidArgument: the plugin keeps no data.
    """

    def __init__(self, server: str | None, plugin: str, given: dict[str, OptionValue], app: str, engine: str) -> None:
        self._name, self._options = plugin, tuple(sorted({**given, "content": "arrow"}.items()))
        self._plugin = open_plugin(plugin, {**dict(self._options), **({} if server is None else {"server": server})})
        if not self._plugin.mode.reconsumable or self._plugin.mode.bounded:
            self._plugin.close()
            raise InvalidArgument(
                f"plugin {plugin!r} keeps no data to be read again, as {engine} does", remedy="use plugin 'remote'"
            )
        self.master = self._plugin.master(app)

    def close(self) -> None:
        """Drop the data of all shuffles. Idempotent."""
        self.master.close()
        self._plugin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@lru_cache(maxsize=16)
def opened(name: str, options: Options) -> ShufflePlugin:
    """The plugin of this process, which all its tasks share."""
    plugin = open_plugin(name, dict(options))
    atexit.register(plugin.close)
    return plugin


def new_attempt(map: int) -> MapAttempt:
    """An attempt of a map that no other run of its task has."""
    return MapAttempt(map, int.from_bytes(os.urandom(4), "little") >> 1)
