"""`MemoryShuffle` passes the exam, and does what only it can do."""

from __future__ import annotations

from shuffle_api.interfaces import ShufflePlugin
from shuffle_api.testing import MemoryShuffle, ShufflePluginTests
from shuffle_api.values import MapOutput, ShuffleHandle


class TestMemoryShuffle(ShufflePluginTests):
    plugin_class = MemoryShuffle
    supports_blocks = True
    can_lose = True

    def lose_map_output(self, plugin: ShufflePlugin, handle: ShuffleHandle, output: MapOutput) -> None:
        assert isinstance(plugin, MemoryShuffle)
        plugin.lose_map_output(handle, output.output.map)
