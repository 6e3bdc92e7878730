"""The `pipelined` plugin: the conformance kit, within one process and over connections."""

from __future__ import annotations

import pytest

from shuffle_api.interfaces import OptionValue
from shuffle_api.testing import ShufflePluginTests
from shuffle_plugins.pipelined import PipelinedShuffle


class TestPipelinedShuffle(ShufflePluginTests):
    plugin_class = PipelinedShuffle
    supports_blocks = True
    supports_batches = True


class TestPipelinedShuffleOverConnections(ShufflePluginTests):
    plugin_class = PipelinedShuffle
    supports_blocks = True
    supports_batches = True

    @pytest.fixture
    def options(self) -> dict[str, OptionValue]:
        return {"local": False}
