"""The exam of Flight Shuffle's conformance kit, taken by the plugin that is installed under the name `folder`."""

from __future__ import annotations

from pathlib import Path

import pytest
from folder_shuffle import FolderShuffle

from shuffle_api import MapOutput, OptionValue, ShuffleHandle, ShufflePlugin, load_plugin
from shuffle_api.testing import ShufflePluginTests


class TestFolderShuffle(ShufflePluginTests):
    plugin_class = load_plugin("folder")
    supports_blocks = True
    can_lose = True

    @pytest.fixture
    def options(self, tmp_path: Path) -> dict[str, OptionValue]:
        return {"root": str(tmp_path / "shuffle"), "buffer_bytes": "2k"}

    def lose_map_output(self, plugin: ShufflePlugin, handle: ShuffleHandle, output: MapOutput) -> None:
        assert isinstance(plugin, FolderShuffle)
        plugin.lose_map_output(handle, output.output.map)
