"""The `remote` plugin against a real server process: the conformance kit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.server import ServerProcess
from shuffle_api.errors import MapOutputLost
from shuffle_api.interfaces import OptionValue, ShufflePlugin
from shuffle_api.testing import ShufflePluginTests
from shuffle_api.values import MapOutput, ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root: Path = tmp_path_factory.mktemp("server")
    with ServerProcess(root / "data", root / "log") as process:
        yield process


class TestRemoteShuffle(ShufflePluginTests):
    plugin_class = RemoteShuffle
    supports_blocks = True
    can_lose = True

    @pytest.fixture(autouse=True)
    def _server(self, server: ServerProcess) -> None:
        self.server = server

    @pytest.fixture
    def options(self, server: ServerProcess) -> dict[str, OptionValue]:
        return {"server": server.control, "timeout": 30, "retry": 5}

    def lose_map_output(self, plugin: ShufflePlugin, handle: ShuffleHandle, output: MapOutput) -> None:
        shuffle = handle.spec.id
        [path] = (self.server.data_dir / "worker/apps" / shuffle.app / str(shuffle.shuffle)).glob(
            f"{output.output.map}.out"
        )
        path.unlink()
        with plugin.reader(handle, range(handle.spec.partitions)) as reader, pytest.raises(MapOutputLost):
            list(reader)
