"""A worker and its master, both in this process: what is acknowledged while a worker comes or comes back stays true."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.harness.cluster import wait_until
from bench.harness.files import files_below
from shuffle_api.errors import DeadlineExceeded, MapOutputLost, ShuttingDown, StorageFailed, UnknownShuffle
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.master.client import Identity
from shuffle_server.options import ServerOptions
from shuffle_server.server import MasterServer, WorkerServer
from shuffle_server.store.format import Description
from shuffle_server.store.store import Store
from shuffle_server.worker import joined_registry
from shuffle_server.worker.master_session import MasterSession
from shuffle_server.worker.recovery import recover_remote
from shuffle_server.worker.remote_registry_view import RemoteRegistryView
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import read_all, write_map


@pytest.fixture
def plugin(master: MasterServer) -> Iterator[RemoteShuffle]:
    with RemoteShuffle({"server": master.control_address, "timeout": 30, "retry": 30}) as remote:
        yield remote


def start_worker(master: MasterServer, data_dir: Path, listen: str = "127.0.0.1:0") -> WorkerServer:
    return WorkerServer(ServerOptions(data_dir=str(data_dir), master=master.control_address, data_listen=listen))


@pytest.fixture
def worker(master: MasterServer, tmp_path: Path) -> Iterator[WorkerServer]:
    server = start_worker(master, tmp_path / "w")
    yield server
    server.stop()


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
            store: Store, member: MasterSession, registry_view: RemoteRegistryView, found: Iterable[Description]
        ) -> None:
            with RemoteShuffle({"server": master.control_address, "timeout": 30, "retry": 0}) as hasty:
                try:
                    write_map(hasty, handle, 1)
                except ShuttingDown as error:
                    refused.append(error)
            recover_remote(store, member, registry_view, found)

        monkeypatch.setattr(joined_registry, "recover_remote", announce_late)
        worker = start_worker(master, tmp_path / "w", worker.worker.info.address)
        try:
            assert len(refused) == 1
            expected += write_map(plugin, handle, 1)
            assert read_all(plugin, handle) == sorted(expected)
        finally:
            worker.stop()


def test_a_worker_that_was_given_up_takes_nothing_until_it_has_dropped_what_it_held(
    master: MasterServer, worker: WorkerServer, plugin: RemoteShuffle, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[Exception] = []
    member, holdings = worker._registries.all[0].session, worker._registries.all[0].session._holdings
    drop = holdings.drop_outputs
    with plugin.master("job") as job:
        handle = job.register_shuffle(4, 2)
        write_map(plugin, handle, 0)

        def write_and_drop() -> None:
            assert member._joining.locked()
            with RemoteShuffle({"server": master.control_address, "timeout": 30, "retry": 0}) as hasty:
                try:
                    write_map(hasty, handle, 1)
                    refused.append(AssertionError("it was acknowledged"))
                except ShuttingDown as error:
                    refused.append(error)
            drop()

        monkeypatch.setattr(holdings, "drop_outputs", write_and_drop)
        master._control.membership.leave(worker.worker.info.id, "a test")
        member._task.wake()
        wait_until(lambda: bool(refused), "the worker drops what it held")
        expected = [record for n in range(2) for record in write_map(plugin, handle, n, attempt=1)]
        assert isinstance(refused[0], ShuttingDown)
        assert read_all(plugin, handle) == sorted(expected)


def test_what_is_being_written_goes_on_at_a_worker_that_was_given_up(
    master: MasterServer, worker: WorkerServer, plugin: RemoteShuffle, tmp_path: Path
) -> None:
    with plugin.master("job") as job:
        handle = job.register_shuffle(4, 2)
        write_map(plugin, handle, 0)
        with plugin.writer(handle, MapAttempt(1, 0)) as writer:
            writer.write(0, before := b"before" * 500_000)  # more than waits for company in the writer
            master._control.membership.leave(worker.worker.info.id, "a test")
            worker._registries.all[0].session._task.wake()
            wait_until(
                lambda: not any(path.suffix == ".out" for path in files_below(tmp_path / "w")), "what it held is gone"
            )
            writer.write(0, b"after")
            assert writer.commit() is not None
        expected = [*write_map(plugin, handle, 0, attempt=1), (0, before), (0, b"after")]
        assert read_all(plugin, handle) == sorted(expected)


def test_a_commit_is_not_repeated_by_a_worker_that_has_dropped_its_output(
    master: MasterServer, worker: WorkerServer, plugin: RemoteShuffle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was given up before the commit arrived. Recorded under its next incarnation, the output would be promised to
    others until its loss is reported."""
    view = worker._registries.all[0].view
    commit, recorded = view._registry.commit, list[MapOutput]()

    def commit_late(shuffle: ShuffleId, output: MapOutput, identity: Identity) -> MapOutput:
        if identity.incarnation == incarnation:
            master._control.membership.leave(output.worker, "a test")
        winner = commit(shuffle, output, identity)
        recorded.append(output)
        return winner

    with plugin.master("job") as job:
        handle = job.register_shuffle(4, 1)
        incarnation = view._session.identity.incarnation
        monkeypatch.setattr(view._registry, "commit", commit_late)
        with pytest.raises(MapOutputLost, match="was dropped when it was committed"):
            write_map(plugin, handle, 0)
        assert recorded == []
        expected = write_map(plugin, handle, 0, attempt=1)
        assert read_all(plugin, handle) == expected
        assert [each.output for each in recorded] == [MapAttempt(0, 1)]


def test_a_worker_that_was_given_up_drops_what_it_held_though_the_answer_to_its_join_was_lost(
    master: MasterServer,
    worker: WorkerServer,
    plugin: RemoteShuffle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member, joins = worker._registries.all[0].session, 0
    call = member._client.call

    def call_and_lose(method: str, request: Any, **options: Any) -> Any:
        nonlocal joins
        reply = call(method, request, **options)
        joins += method == "Join"
        if method == "Join" and joins == 1:
            raise DeadlineExceeded("the answer was lost")
        return reply

    with plugin.master("job") as job:
        handle = job.register_shuffle(4, 1)
        write_map(plugin, handle, 0)
        monkeypatch.setattr(member._client, "call", call_and_lose)
        master._control.membership.leave(worker.worker.info.id, "a test")
        member._task.wake()
        wait_until(
            lambda: not any(path.suffix == ".out" for path in files_below(tmp_path / "w")), "what it held is gone"
        )
        expected = write_map(plugin, handle, 0, attempt=1)
        assert read_all(plugin, handle) == expected


def test_a_failure_of_any_kind_does_not_end_the_signs_of_life(
    worker: WorkerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, status = worker._registries.all[0].session, worker.worker.status
    asked: list[int] = []

    def broken_once() -> Any:
        asked.append(1)
        if len(asked) == 1:
            raise RuntimeError("dictionary changed size during iteration")
        return status()

    monkeypatch.setattr(worker.worker, "status", broken_once)
    member._task.wake()
    wait_until(lambda: len(asked) >= 2, "the next heartbeat")
    assert member._task.is_alive()


def test_a_worker_that_has_not_heard_of_the_end_of_a_shuffle_serves_nothing_of_it_for_the_next(
    master: MasterServer, worker: WorkerServer, plugin: RemoteShuffle, tmp_path: Path
) -> None:
    with plugin.master("job") as job:
        handle = job.register_shuffle(4, 1, shuffle=0)
        write_map(plugin, handle, 0)
        other = start_worker(master, tmp_path / "other")
        try:
            worker._registries.all[0].session._task.close()  # the worker gets no more replies to heartbeats
            master._control.membership.drain(worker.worker.info.id)
            job.unregister_shuffle(handle)
            again = job.register_shuffle(4, 1, shuffle=0)
            with RemoteShuffle({"timeout": 100, "retry": 100, "hand_over": "off"}) as late:  # it asks the master
                write_map(late, again, 0)  # at the other worker: the same attempt of the same map
            assert list((tmp_path / "w" / "worker" / "apps").rglob("*.out"))
            with pytest.raises(UnknownShuffle, match=f"is over, {again.spec.id.generation} is registered"):
                worker.worker.get(pb.GetTicket(shuffle=messages.key_of(handle.spec.id), end_partition=4))
            _, served = worker.worker.get(pb.GetTicket(shuffle=messages.key_of(again.spec.id), end_partition=4))
            blocks = [batch.num_rows for batch, _ in served]
            assert sum(blocks) == 0
        finally:
            other.stop()


def test_a_late_answer_of_the_master_costs_no_output_of_the_shuffle_that_has_the_id_now(
    master: MasterServer, worker: WorkerServer, plugin: RemoteShuffle, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry_view = worker._registries.all[0].view
    ask = registry_view._page
    written: list[list[tuple[int, bytes]]] = []
    with plugin.master("job") as job:
        handle = job.register_shuffle(4, 1, shuffle=0)

        def answered_late(*asked: Any) -> Any:
            reply = ask(*asked)
            if not written:
                written.append([])
                job.unregister_shuffle(handle)
                written.append(write_map(plugin, job.register_shuffle(4, 1, shuffle=0), 0))
            return reply

        monkeypatch.setattr(registry_view, "_page", answered_late)
        registry_view.opening(handle.spec.id, 0)
        assert read_all(plugin, job.register_shuffle(4, 1, shuffle=0)) == written[1]


def test_a_worker_whose_count_of_starts_is_unreadable_says_what_to_do(master: MasterServer, tmp_path: Path) -> None:
    start_worker(master, tmp_path / "w").stop()
    (tmp_path / "w" / "incarnation").write_text("")
    with pytest.raises(StorageFailed, match="incarnation holds no number.*To do: write into it"):
        start_worker(master, tmp_path / "w")
