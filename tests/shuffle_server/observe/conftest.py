"""The parts of a server in this process, and an endpoint that shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from shuffle_api.registry.operations import RegisterWorker
from shuffle_api.values import WorkerInfo
from shuffle_server.bounds import Bound
from shuffle_server.connection_guard import Bounds, ConnectionGuard
from shuffle_server.master.files import FlatDirectory
from shuffle_server.master.master import Master
from shuffle_server.observe.figures import MasterSources, Sources, WorkerSources, absent_from, files_bytes
from shuffle_server.observe.health import WriteProbe
from shuffle_server.observe.observation import Observation
from shuffle_server.store.store import Store
from shuffle_server.worker.relay.channel_relay import ChannelRelay
from shuffle_server.worker.relay.relay import Relay
from shuffle_transport.pool import BufferPool

WORKER = WorkerInfo("w-1", "localhost", 1)


@dataclass(frozen=True, slots=True)
class Parts:
    """A server's parts, and the sources that monitoring gets of them."""

    master: Master
    journal_dir: Path
    worker_id: str
    sources: Sources


@contextmanager
def parts_in(root: Path, log: FlatDirectory | None = None) -> Iterator[Parts]:
    """A store, a master that knows the worker, and a pool of a megabyte; `log`: where the master's files lie."""
    with ExitStack() as stack:
        store = Store(root / "worker")
        list(store.recover())
        stack.callback(store.close)
        (root / "master").mkdir()
        master = Master(log or root / "master", sync=log is not None)
        stack.callback(master.close)
        master.apply(RegisterWorker(WORKER))
        channels = ChannelRelay(BufferPool(1 << 20), 60, 60, lambda error: None)
        worker = WorkerSources(
            BufferPool(1 << 20),
            store,
            Relay(60),
            channels,
            lambda: absent_from(master, WORKER.id),
            ConnectionGuard(Bounds()),
            Bound("calls", 1),
        )
        journal = root / "master"
        in_files = MasterSources(master, WriteProbe(journal).look, lambda: files_bytes(journal))
        yield Parts(master, journal, WORKER.id, Sources(in_files, worker))


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    with parts_in(tmp_path) as made:
        yield made


@pytest.fixture
def observation() -> Iterator[Observation]:
    shown = Observation("127.0.0.1:0")
    yield shown
    shown.close()


@pytest.fixture
def attach(observation: Observation) -> Callable[[Parts], Observation]:
    """Has the endpoint show these parts."""

    def show(parts: Parts) -> Observation:
        observation.attach(parts.sources, need_bytes=1 << 20)
        return observation

    return show
