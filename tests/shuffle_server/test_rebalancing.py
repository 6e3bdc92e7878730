"""A worker whose disk is nearly full moves map outputs to one with room; readers follow, no map runs again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.harness.cluster import wait_until
from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.values import ShuffleHandle, Totals
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.options import ServerOptions
from shuffle_server.server import MasterServer, WorkerServer
from shuffle_server.worker import output_maintenance
from shuffle_transport.blocks import add_rows, table_rows
from shuffle_transport.flight_client import FlightClient, PushTarget
from tests.shuffle_server.helpers import block, mounted_tmpfs, output_files

MIB = 1 << 20
PARTITIONS = 4
PIECE = 64 << 10


@pytest.fixture
def small(master: MasterServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WorkerServer]:
    """A worker on a disk of 24 MiB, which moves outputs when less than 8 are left."""
    monkeypatch.setattr(output_maintenance, "LOW_BYTES", 8 * MIB)
    monkeypatch.setattr(output_maintenance, "LOOK_SECONDS", 3600.0)  # the tests look
    with mounted_tmpfs(tmp_path / "disk", 24 * MIB) as disk:
        server = start(master, disk / "small")
        yield server
        server.stop()


@pytest.fixture
def large(master: MasterServer, tmp_path: Path) -> Iterator[WorkerServer]:
    server = start(master, tmp_path / "large")
    yield server
    server.stop()


@pytest.fixture
def plugin(master: MasterServer) -> Iterator[RemoteShuffle]:
    options: dict[str, OptionValue] = {
        "server": master.control_address,
        "timeout": 30,
        "retry": 30,
        "content": "opaque",
        "codec": "none",
    }
    with RemoteShuffle(options) as remote:
        yield remote


def start(master: MasterServer, data_dir: Path) -> WorkerServer:
    options = ServerOptions(data_dir=str(data_dir), master=master.control_address, data_listen="127.0.0.1:0", recycle=0)
    return WorkerServer(options)


def push(worker: WorkerServer, handle: ShuffleHandle, map_id: int, mib: int) -> None:
    """A map output at this worker, whatever the master would choose."""
    blocks = [block(n % PARTITIONS, bytes([map_id, n % 256]) * (PIECE // 2)) for n in range(mib * MIB // PIECE)]
    target = PushTarget(handle.spec.id, MapAttempt(map_id, 0), PARTITIONS, "none")
    end = add_rows(Totals(), table_rows(blocks))
    with closing(FlightClient(worker.worker.info.address, timeout=60)) as client:
        client.push(target, blocks, first_block=0, end=end, commit=True)


def contents(plugin: RemoteShuffle, handle: ShuffleHandle) -> list[tuple[int, int, bytes]]:
    with plugin.reader(handle, range(PARTITIONS)) as reader:
        return sorted((output.map, p, bytes(memoryview(data)[:2])) for p, output, data, _ in reader.read_blocks())


def test_outputs_are_moved_off_a_disk_that_is_nearly_full_and_readers_follow(
    plugin: RemoteShuffle, small: WorkerServer, large: WorkerServer
) -> None:
    with plugin.master("job") as job:
        handle = job.register_shuffle(PARTITIONS, 4)
        for map_id, mib in enumerate((2, 6, 4, 1)):
            push(small, handle, map_id, mib)
        assert small._registries.all[0].maintenance.rebalancing.look() == 0  # 11 MiB of room are enough
        expected = contents(plugin, handle)
        full = job.register_shuffle(PARTITIONS, 1)
        push(small, full, 0, 6)
        with plugin.watch(handle) as watch:
            reading = iter(plugin.reader(handle, range(PARTITIONS)).read_blocks())
            first = next(reading)
            # the largest two, until there is twice as much as is needed
            assert small._registries.all[0].maintenance.rebalancing.look() == 2
            read = [(o.map, p, bytes(memoryview(data)[:2])) for p, o, data, _ in [first, *reading]]
            assert sorted(read) == expected
            # A file goes when the last pull has closed it.
            wait_until(lambda: small.worker.free_bytes() >= 2 * output_maintenance.LOW_BYTES, "there is room again")
            assert small._registries.all[0].maintenance.rebalancing.look() == 0
            with pytest.raises(ShuffleError, match="no map output"):
                watch.next(0.2)
        there = {o.output: o.workers for each in (handle, full) for o in job.map_outputs(each)}
        assert sorted(there.values()).count((large.worker.info.id,)) >= 1
        assert all(len(workers) == 1 for workers in there.values())
        assert contents(plugin, handle) == expected
        large_files = [path for path in output_files(Path(large._data._options.data_dir)) if path.suffix == ".out"]
        assert len(large_files) == 2


def test_what_no_other_worker_takes_stays_until_one_does(
    plugin: RemoteShuffle, master: MasterServer, small: WorkerServer, tmp_path: Path
) -> None:
    with plugin.master("job") as job:
        handle = job.register_shuffle(PARTITIONS, 1)
        push(small, handle, 0, 18)
        assert small._registries.all[0].maintenance.rebalancing.look() == 0  # nobody is there
        assert not small._registries.all[0].session.release(handle.spec.id, MapAttempt(0, 0))
        large = start(master, tmp_path / "large")
        try:
            assert small._registries.all[0].maintenance.rebalancing.look() == 1
            [moved] = job.map_outputs(handle)
            assert moved.workers == (large.worker.info.id,)
        finally:
            large.stop()
