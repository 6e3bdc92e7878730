"""The `remote` plugin against real server processes: the conformance kit, over the wire and by file, in plain text and
over TLS with tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import MapOutputLost
from shuffle_api.interfaces import OptionValue, ShufflePlugin
from shuffle_api.testing import ShufflePluginTests
from shuffle_api.values import MapOutput, ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.store.paths import folder_of
from tests.certificates import make_party, make_secret


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root: Path = tmp_path_factory.mktemp("server")
    with ServerProcess(root / "data", root / "log") as process:
        yield process


@pytest.fixture(scope="module")
def secured_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root: Path = tmp_path_factory.mktemp("secured")
    party, secret = make_party(root), make_secret(root / "secret")
    arguments = ["--tls-cert", str(party.cert), "--tls-key", str(party.key), "--secret-file", str(secret)]
    with ServerProcess(root / "data", root / "log", arguments) as process:
        yield process


class TestRemoteShuffle(ShufflePluginTests):
    plugin_class = RemoteShuffle
    supports_blocks = True
    supports_batches = True
    can_lose = True
    way: ClassVar[dict[str, OptionValue]] = {"hand_over": "off"}

    @pytest.fixture(autouse=True)
    def _server(self, server: ServerProcess) -> None:
        self.server = server

    @pytest.fixture
    def options(self, server: ServerProcess) -> dict[str, OptionValue]:
        return {"server": server.control, "timeout": 120, "retry": 20, **self.way}

    def lose_map_output(self, plugin: ShufflePlugin, handle: ShuffleHandle, output: MapOutput) -> None:
        shuffle = handle.spec.id
        [path] = (self.server.data_dir / "worker/apps" / shuffle.app / folder_of(shuffle)).glob(
            f"{output.output.map}.*.out"
        )
        path.unlink()
        with plugin.reader(handle, range(handle.spec.partitions)) as reader, pytest.raises(MapOutputLost):
            list(reader)


class TestRemoteShuffleByFile(TestRemoteShuffle):
    way: ClassVar[dict[str, OptionValue]] = {"hand_over_from": 0}


class TestRemoteShuffleOverTlsWithTokens(TestRemoteShuffle):
    @pytest.fixture(autouse=True)
    def _server(self, secured_server: ServerProcess) -> None:
        self.server = secured_server

    @pytest.fixture
    def options(self, secured_server: ServerProcess) -> dict[str, OptionValue]:
        root = secured_server.log.parent
        secured = {"tls_ca": str(root / "ca.pem"), "secret_file": str(root / "secret")}
        return {"server": secured_server.control, "timeout": 120, "retry": 20, **secured, **self.way}


class TestRemoteShuffleByFileOverTlsWithTokens(TestRemoteShuffleOverTlsWithTokens):
    way: ClassVar[dict[str, OptionValue]] = {"hand_over_from": 0}
