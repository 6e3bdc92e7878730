"""When a worker cannot serve one of several outputs, its reader says why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shuffle_api.errors import Overloaded
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.options import ServerOptions
from shuffle_server.server import Server
from shuffle_server.store.file_cache import OpenOutput
from tests.shuffle_server.helpers import write_map

PARTITIONS = 4


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(ServerOptions(data_dir=str(tmp_path), listen="127.0.0.1:0", data_listen="127.0.0.1:0"))
    yield server
    server.stop()


def test_an_output_that_nobody_can_serve_now_fails_the_read_with_the_reason(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = server.worker._store
    opened = store.open_cached

    def refuse(shuffle: ShuffleId, output: MapAttempt) -> OpenOutput:
        if output.map == 1:
            raise Overloaded("the process has no file descriptors left", shuffle=shuffle, output=output)
        return opened(shuffle, output)

    monkeypatch.setattr(store, "open_cached", refuse)
    with (
        RemoteShuffle({"server": server.control_address, "timeout": 20, "retry": 20, "hand_over": "off"}) as plugin,
        plugin.master("job") as job,
    ):
        handle = job.register_shuffle(PARTITIONS, 3)
        expected = [each for n in range(3) for each in write_map(plugin, handle, n)]
        with plugin.reader(handle, range(PARTITIONS)) as reader:
            with pytest.raises(Overloaded, match="no file descriptors left"):
                list(reader)
            monkeypatch.undo()
        with plugin.reader(handle, range(PARTITIONS)) as reader:
            assert sorted(reader) == sorted(expected)
