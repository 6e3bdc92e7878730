"""The `hybrid` plugin: the conformance kit, in one process, over connections, through a relay, over TLS with tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import MapOutputLost
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue, ShuffleMaster, ShufflePlugin
from shuffle_api.testing import ShufflePluginTests, oracle
from shuffle_api.values import HYBRID, MapOutput, ShuffleHandle
from shuffle_plugins.hybrid import HybridShuffle
from shuffle_server.store.paths import folder_of
from tests.certificates import make_party, make_secret


@pytest.fixture(scope="module")
def secured_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root: Path = tmp_path_factory.mktemp("secured")
    party, secret = make_party(root), make_secret(root / "secret")
    arguments = ["--tls-cert", str(party.cert), "--tls-key", str(party.key), "--secret-file", str(secret)]
    with ServerProcess(root / "data", root / "log", arguments) as process:
        yield process


class TestHybridShuffle(ShufflePluginTests):
    plugin_class = HybridShuffle
    supports_blocks = True
    supports_batches = True
    can_lose = True

    @pytest.fixture(autouse=True)
    def _server(self, server: ServerProcess) -> None:
        self.server = server

    @pytest.fixture
    def options(self, server: ServerProcess) -> dict[str, OptionValue]:
        return {"server": server.control, "timeout": 120, "retry": 20}

    def test_mode_is_hybrid(self, plugin: ShufflePlugin) -> None:
        assert plugin.mode == HYBRID

    def lose_map_output(self, plugin: ShufflePlugin, handle: ShuffleHandle, output: MapOutput) -> None:
        shuffle = handle.spec.id
        [path] = (self.server.data_dir / "worker/apps" / shuffle.app / folder_of(shuffle)).glob(
            f"{output.output.map}.*.out"
        )
        path.unlink()
        with plugin.reader(handle, range(handle.spec.partitions)) as reader, pytest.raises(MapOutputLost):
            list(reader)

    def test_lost_output_is_told_to_who_watches_and_its_next_attempt_is_read(
        self, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        assert isinstance(plugin, HybridShuffle)
        workload = oracle.Workload(seed=5, partitions=2, maps=2)
        handle = self.stored(plugin, master, workload)
        with plugin.watch(handle) as watch:
            self.lose_map_output(plugin, handle, master.map_outputs(handle)[1])
            assert watch.next(30.0).output == MapAttempt(1, 0)
        with plugin.writer(handle, MapAttempt(1, 1)) as again, plugin.reader(handle, range(2)) as reader:
            records = iter(reader)
            oracle.fill(again, workload.written(MapAttempt(1, 1)))
            got = [next(records)]  # it does not fail for what was lost: somebody writes it
            again.commit()
            got += records
        oracle.verify(workload.expected([MapAttempt(0, 0), MapAttempt(1, 1)], range(2)), got)


class TestHybridShuffleOverConnections(TestHybridShuffle):
    @pytest.fixture
    def options(self, server: ServerProcess) -> dict[str, OptionValue]:
        return {"server": server.control, "timeout": 120, "retry": 20, "local": False}


class TestHybridShuffleThroughTheServer(TestHybridShuffle):
    @pytest.fixture
    def options(self, server: ServerProcess) -> dict[str, OptionValue]:
        return {"server": server.control, "timeout": 120, "retry": 20, "local": False, "relay": server.data}


class TestHybridShuffleWithLanesThatAreCutAtOnce(TestHybridShuffle):
    @pytest.fixture
    def options(self, server: ServerProcess) -> dict[str, OptionValue]:
        small: dict[str, OptionValue] = {"lane_bytes": 64 << 10, "block_bytes": 4 << 10, "wait": 0.01}
        return {"server": server.control, "timeout": 120, "retry": 20, "flush_timeout": 0.001, **small}


class TestHybridShuffleOverTlsWithTokens(TestHybridShuffle):
    @pytest.fixture(autouse=True)
    def _server(self, secured_server: ServerProcess) -> None:
        self.server = secured_server

    @pytest.fixture
    def options(self, secured_server: ServerProcess) -> dict[str, OptionValue]:
        root = secured_server.log.parent
        names = {"tls_ca": "ca.pem", "tls_cert": "cert.pem", "tls_key": "key.pem", "secret_file": "secret"}
        secured: dict[str, OptionValue] = {option: str(root / name) for option, name in names.items()}
        return {"server": secured_server.control, "timeout": 120, "retry": 20, "local": False, **secured}
