"""Shuffles with two replicas: each commit is answered when two workers hold it, and either of them may be lost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from bench.harness.cluster import ClusterProcesses, wait_until
from shuffle_api.errors import InvalidArgument, ServerUnreachable, ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue, ShuffleMaster
from shuffle_api.values import ShuffleHandle, Totals
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.options import ServerOptions
from shuffle_server.server import MasterServer, WorkerServer
from shuffle_server.worker import output_maintenance
from shuffle_transport import messages
from shuffle_transport.blocks import add_rows, table_rows
from shuffle_transport.flight_client import FlightClient, Pulled, PushTarget
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import block, output_files, read_all, write_map
from tests.shuffle_server.test_server import run_cli

MAPS = 6
PARTITIONS = 4
OPTIONS: dict[str, OptionValue] = {"timeout": 100, "retry": 100, "replicas": 2, "codec": "none", "hand_over": "off"}


def write_blocks(plugin: RemoteShuffle, handle: ShuffleHandle, map_id: int) -> list[tuple[int, int, str]]:
    """Blocks of 256 KiB, four a partition, in turn; (map, partition, digest) of each, by partition."""
    rng = np.random.default_rng(map_id)
    written = []
    with plugin.writer(handle, MapAttempt(map_id, 0)) as writer:
        for n in range(4 * PARTITIONS):
            payload = rng.bytes(256 << 10)
            writer.write_block(n % PARTITIONS, payload, 0)
            written.append((map_id, n % PARTITIONS, digest(payload)))
        writer.commit()
    return sorted(written, key=lambda each: each[1])


def digest(payload: object) -> str:
    return hashlib.sha256(memoryview(payload)).hexdigest()  # type: ignore[arg-type]


def test_replicas_are_one_or_two() -> None:
    with pytest.raises(InvalidArgument, match="'replicas' is 3"):
        RemoteShuffle({"replicas": 3})


def test_a_worker_is_killed_for_good_in_the_middle_of_a_read_and_no_map_runs_again(tmp_path: Path) -> None:
    with (
        ClusterProcesses(tmp_path, workers=3, worker_timeout=10) as cluster,
        RemoteShuffle({"server": cluster.master.control, "content": "opaque", **OPTIONS}) as plugin,
        plugin.master("job") as master,
    ):
        handle = master.register_shuffle(PARTITIONS, MAPS)
        expected = [each for n in range(MAPS) for each in write_blocks(plugin, handle, n)]
        before = {output.output: output for output in master.map_outputs(handle)}
        assert all(len(set(output.workers)) == 2 for output in before.values())
        [status] = cluster.master.status().shuffles
        assert (status.replicas, status.degraded) == (2, 0)
        files = [path for worker in cluster.workers for path in output_files(worker.data_dir) if path.suffix == ".out"]
        assert len(files) == 2 * MAPS

        victim = None
        read = []
        with plugin.watch(handle) as watch, plugin.reader(handle, range(PARTITIONS)) as reader:
            for partition, output, payload, _ in reader.read_blocks():
                read.append((output.map, partition, digest(payload)))
                if len(read) == 3:  # in the middle of the first output
                    victim = cluster.worker(before[output].worker)
                    victim.kill()
            assert victim is not None
            assert sorted(read, key=lambda each: each[0]) == expected  # each block once, those of a map in their order
            wait_until(lambda: victim.worker not in cluster.worker_ids(), "the worker is given up")
            after = master.map_outputs(handle)
            assert [output.output for output in after] == list(before)
            assert all(victim.worker not in output.workers for output in after)
            with plugin.reader(handle, range(PARTITIONS)) as again:
                assert sorted((o.map, p, digest(data)) for p, o, data, _ in again.read_blocks()) == sorted(expected)
            with pytest.raises(ShuffleError, match="no map output"):
                watch.next(0.2)


def test_without_a_second_worker_outputs_are_committed_and_counted_as_degraded(tmp_path: Path) -> None:
    with (
        ClusterProcesses(tmp_path, workers=2, worker_timeout=3600) as cluster,
        RemoteShuffle({"server": cluster.master.control, **OPTIONS}) as plugin,
        plugin.master("job") as master,
    ):
        handle = master.register_shuffle(PARTITIONS, 4)
        expected = write_map(plugin, handle, 0)
        cluster.workers[1].kill()  # and is not given up meanwhile
        for n in (1, 2, 3):
            expected += write_map(plugin, handle, n)
        told = json.loads(run_cli("status", cluster.master.control, "--json").stdout)
        assert [(each["replicas"], each["degraded"]) for each in told["shuffles"]] == [(2, 3)]
        assert read_all(plugin, handle) == sorted(expected)


@pytest.fixture
def workers(master: MasterServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[WorkerServer]]:
    monkeypatch.setattr(output_maintenance, "LOOK_SECONDS", 3600.0)  # the tests look
    started = [
        WorkerServer(
            ServerOptions(data_dir=str(tmp_path / name), master=master.control_address, data_listen="127.0.0.1:0")
        )
        for name in ("v", "w")
    ]
    yield started
    for server in started:
        server.stop()


@pytest.fixture
def plugin(master: MasterServer) -> Iterator[RemoteShuffle]:
    with RemoteShuffle({"server": master.control_address, **OPTIONS}) as remote:
        yield remote


def pulled(address: str, handle: ShuffleHandle) -> list[tuple[MapAttempt, int, bytes]]:
    """What one worker serves, in its order."""
    ticket = pb.GetTicket(shuffle=messages.key_of(handle.spec.id), end_partition=handle.spec.partitions)
    with closing(FlightClient(address, timeout=120)) as client:
        items = list(client.pull(ticket))
    assert all(isinstance(item, Pulled) for item in items)
    return [(item.output, item.partition, bytes(item.payload)) for item in items if isinstance(item, Pulled)]


def test_both_workers_serve_the_same_blocks_in_the_same_order(
    workers: list[WorkerServer], master: MasterServer
) -> None:
    with (
        RemoteShuffle({"server": master.control_address, **OPTIONS, "block_bytes": 4096}) as plugin,
        plugin.master("job") as job,
    ):
        handle = job.register_shuffle(PARTITIONS, 3)
        for n, records in enumerate((0, 1, 2000)):
            write_map(plugin, handle, n, records=records)
        first, second = (pulled(worker.worker.info.address, handle) for worker in workers)
        assert first == second
        assert len(first) > 20


def test_a_sender_that_is_cut_off_after_its_commit_makes_the_copy_itself(
    workers: list[WorkerServer], plugin: RemoteShuffle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that has it committed went away before it could copy it; another one takes the same attempt."""
    v, w = (worker.worker for worker in workers)

    def fail(*_: object) -> Totals:
        raise ServerUnreachable("w", "cut off")

    assert v._replication is not None
    monkeypatch.setattr(v._replication._copier, "copy", fail)
    with plugin.master("job") as job:
        handle = job.register_shuffle(PARTITIONS, 1)
        blocks = [block(n % PARTITIONS, b"%d" % n) for n in range(20)]
        target = PushTarget(handle.spec.id, MapAttempt(0, 0), PARTITIONS, "none")
        end = add_rows(Totals(), table_rows(blocks))
        for worker in (v, w):
            with closing(FlightClient(worker.info.address, timeout=120)) as client:
                reply = client.push(target, blocks, first_block=0, end=end, commit=True)
            assert reply.committed.output == pb.MapAttempt(map=0, attempt=0)
        [output] = job.map_outputs(handle)
        assert set(output.workers) == {v.info.id, w.info.id}
        assert pulled(v.info.address, handle) == pulled(w.info.address, handle)


def test_another_attempt_is_told_of_the_winner_when_that_has_its_copy(
    workers: list[WorkerServer], plugin: RemoteShuffle, monkeypatch: pytest.MonkeyPatch
) -> None:
    v, w = (worker.worker for worker in workers)
    assert v._replication is not None
    with plugin.master("job") as job, monkeypatch.context() as patch:
        handle = job.register_shuffle(PARTITIONS, 1)
        blocks = [block(0, b"x")]
        end = add_rows(Totals(), table_rows(blocks))
        patch.setattr(v._replication, "candidates", lambda *_: [])  # no copy for now
        for attempt, worker in ((0, v), (1, w)):
            target = PushTarget(handle.spec.id, MapAttempt(0, attempt), PARTITIONS, "none")
            with closing(FlightClient(worker.info.address, timeout=120)) as client:
                reply = client.push(target, blocks, first_block=0, end=end, commit=True)
            assert reply.committed.output == pb.MapAttempt(map=0, attempt=0)
            patch.undo()
        [output] = job.map_outputs(handle)
        assert output.workers == (v.info.id, w.info.id)


def test_a_lost_workers_copies_are_made_again(
    workers: list[WorkerServer], plugin: RemoteShuffle, master: MasterServer
) -> None:
    v, w = workers
    with plugin.master("job") as job:
        handle = job.register_shuffle(PARTITIONS, 3)
        expected = sorted(record for n in range(3) for record in write_map(plugin, handle, n))
        assert whole(job, handle)
        master._control.membership.leave(w.worker.info.id, "given up")  # it drops what it had, and comes back empty
        assert not whole(job, handle)
        maintenance = v._registries.all[0].maintenance
        wait_until(lambda: maintenance.repair() >= 0 and whole(job, handle), "the copies are made again")
        assert maintenance.repair() == 0
        assert read_all(plugin, handle) == expected
        assert pulled(v.worker.info.address, handle) == pulled(w.worker.info.address, handle)


def whole(job: ShuffleMaster, handle: ShuffleHandle) -> bool:
    return [len(set(output.workers)) for output in job.map_outputs(handle)] == [2, 2, 2]


def test_what_is_damaged_is_not_copied_and_not_committed(
    workers: list[WorkerServer], plugin: RemoteShuffle, monkeypatch: pytest.MonkeyPatch
) -> None:
    v, w = (worker.worker for worker in workers)
    assert v._replication is not None
    copy = v._replication._copier.copy

    def damage(*arguments: object) -> Totals:
        [path] = [each for each in output_files(Path(workers[0]._data._options.data_dir)) if each.suffix == ".out"]
        with path.open("r+b") as file:
            file.write(b"#")
        return copy(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(v._replication._copier, "copy", damage)
    with plugin.master("job") as job:
        handle = job.register_shuffle(PARTITIONS, 1)
        blocks = [block(0, b"sound")]
        target = PushTarget(handle.spec.id, MapAttempt(0, 0), PARTITIONS, "none")
        end = add_rows(Totals(), table_rows(blocks))
        with closing(FlightClient(v.info.address, timeout=120)) as client:
            with pytest.raises(ShuffleError, match="does not match its checksum"):
                client.push(target, blocks, first_block=0, end=end, commit=True)
        wait_until(lambda: not job.map_outputs(handle), "it is not committed")
        monkeypatch.undo()
        assert write_map(plugin, handle, 0, attempt=1) == read_all(plugin, handle)
        assert w.info.id in job.map_outputs(handle)[0].workers
