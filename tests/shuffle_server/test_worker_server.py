"""A worker and its master, both in this process: what is acknowledged while a worker comes or comes back stays true."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

import shuffle_server.server
from shuffle_api.errors import ShuttingDown
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.options import ServerOptions
from shuffle_server.server import MasterServer, WorkerServer
from shuffle_server.store.format import Description
from shuffle_server.store.store import Store
from shuffle_server.worker.announce import announce
from shuffle_server.worker.member import Member
from shuffle_server.worker.remote_coordinator import RemoteCoordinator
from tests.shuffle_server.helpers import read_all, write_map


@pytest.fixture
def master(tmp_path: Path) -> Iterator[MasterServer]:
    server = MasterServer(ServerOptions(data_dir=str(tmp_path / "m"), listen="127.0.0.1:0"))
    yield server
    server.stop()


@pytest.fixture
def plugin(master: MasterServer) -> Iterator[RemoteShuffle]:
    with RemoteShuffle({"server": master.control_address, "timeout": 30, "retry": 30}) as remote:
        yield remote


def start_worker(master: MasterServer, data_dir: Path, listen: str = "127.0.0.1:0") -> WorkerServer:
    return WorkerServer(ServerOptions(data_dir=str(data_dir), master=master.control_address, data_listen=listen))


def test_a_worker_that_starts_takes_nothing_until_it_has_announced_what_it_holds(
    master: MasterServer, plugin: RemoteShuffle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = start_worker(master, tmp_path / "w")
    with plugin.master("job") as job:
        handle = job.register_shuffle(4, 2)
        expected = write_map(plugin, handle, 0)
        worker.stop()
        refused: list[Exception] = []

        def announce_late(
            store: Store, member: Member, coordinator: RemoteCoordinator, found: Iterable[Description]
        ) -> None:
            with RemoteShuffle({"server": master.control_address, "timeout": 30, "retry": 0}) as hasty:
                try:
                    write_map(hasty, handle, 1)
                except ShuttingDown as error:
                    refused.append(error)
            announce(store, member, coordinator, found)

        monkeypatch.setattr(shuffle_server.server, "announce", announce_late)
        worker = start_worker(master, tmp_path / "w", worker.worker.info.address)
        try:
            assert len(refused) == 1
            expected += write_map(plugin, handle, 1)
            assert read_all(plugin, handle) == sorted(expected)
        finally:
            worker.stop()
