"""What applications and workers are sent when something changes in a large cluster: in process, by counts and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from shuffle_api.registry import RegisterApp, RegisterShuffle, UnregisterShuffle
from shuffle_api.values import MapOutput, ShuffleSpec, WorkerInfo
from shuffle_server.master.cluster import Cluster
from shuffle_server.master.commit_control import CommitService
from shuffle_server.master.control import ControlService
from shuffle_server.master.liveness import HEARTBEATS_PER_SECOND, HEARTBEATS_PER_TIMEOUT, Deadlines, HeartbeatTerms
from shuffle_server.master.master import Master
from shuffle_server.master.membership import GONE_AT_ONCE, Membership
from shuffle_server.master.worker_record import ROOMY_BYTES, WorkerRecord, WorkerVersions
from shuffle_server.proto import registry_pb2
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.master.scene import SHUFFLE, commit
from tests.stepped_clock import SteppedClock

WORKERS = 2000
SMALL = 256


class Cell:
    """A master with workers, in this process."""

    def __init__(self, master: Master, workers: int) -> None:
        self.master, self.clock = master, SteppedClock()
        self.membership = Membership(master, 60.0, clock=self.clock)
        for number in range(workers):
            self.membership.join(worker(f"w{number}"))
        self.control = ControlService(master, Cluster(self.membership, None), "0", 1)
        self.commits = CommitService(master, self.membership)

    def heartbeat(self, known: pb.WorkersKnown | None) -> pb.HeartbeatReply:
        return self.control.Heartbeat(pb.HeartbeatRequest(app=SHUFFLE.app, known=known))

    def beat(self, id: str, **more: object) -> registry_pb2.BeatReply:
        identity = registry_pb2.Identity(worker=id, incarnation=1)
        return self.commits.Beat(registry_pb2.BeatRequest(identity=identity, free_bytes=ROOMY_BYTES, **more))  # type: ignore[arg-type]

    def after(self, seconds: float, *beating: str) -> list[str]:
        """The workers that are lost meanwhile."""
        lost = []
        for _ in range(int(seconds / 5)):
            self.clock.now += 5
            for id in beating:
                self.beat(id)
            lost += self.membership.expire()
        return lost


def worker(id: str, port: int = 1) -> WorkerInfo:
    return WorkerInfo(id, "h", port, ROOMY_BYTES, 1)


def known(changes: pb.WorkerChanges) -> pb.WorkersKnown:
    return pb.WorkersKnown(epoch=changes.epoch, version=changes.version)


@pytest.fixture
def master() -> Iterator[Master]:
    with closing(Master(None)) as master:
        master.apply_all([RegisterApp("app", "i", ""), RegisterShuffle(ShuffleSpec(SHUFFLE, 4, 2))])
        yield master


def test_a_heartbeat_of_an_application_has_the_changes_and_the_whole_list_only_for_one_that_has_none(
    master: Master,
) -> None:
    cell = Cell(master, WORKERS)
    first = cell.heartbeat(pb.WorkersKnown())
    assert first.changes.all
    assert len(first.changes.workers) == WORKERS
    assert not first.workers
    second = cell.heartbeat(known(first.changes))
    assert (second.changes.all, list(second.changes.workers), list(second.changes.gone)) == (False, [], [])
    assert second.ByteSize() < SMALL
    cell.membership.join(worker("new"))
    cell.membership.join(worker("w1", port=2))
    cell.membership.leave("w2", "gone")
    cell.membership.drain("w3")
    third = cell.heartbeat(known(second.changes))
    assert {each.id: (each.port, each.draining) for each in third.changes.workers} == {
        "new": (1, False),
        "w1": (2, False),
        "w3": (1, True),
    }
    assert list(third.changes.gone) == ["w2"]
    assert third.ByteSize() < SMALL


@pytest.mark.parametrize("strange", [pb.WorkersKnown(epoch=99, version=1), pb.WorkersKnown(epoch=1, version=10**6)])
def test_a_state_of_another_master_or_of_none_gets_the_whole_list(master: Master, strange: pb.WorkersKnown) -> None:
    cell = Cell(master, 3)
    assert cell.heartbeat(strange).changes.all


def test_the_whole_list_is_made_once_for_all_clients_that_have_none(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    real = messages.worker_message

    def noting(worker: WorkerInfo) -> pb.Worker:
        made.append(worker.id)
        return real(worker)

    monkeypatch.setattr(messages, "worker_message", noting)
    cell = Cell(master, WORKERS)
    first, second = (cell.heartbeat(pb.WorkersKnown()).changes for _ in range(2))
    assert len(made) == WORKERS
    assert second == first
    cell.membership.join(worker("w1", port=2))
    cell.membership.leave("w2", "gone")
    third = cell.heartbeat(pb.WorkersKnown()).changes
    assert len(made) == WORKERS + len(third.workers)
    assert {each.id: each.port for each in third.workers}["w1"] == 2
    assert sorted(each.id for each in third.workers) == sorted({each.id for each in first.workers} - {"w2"})
    assert list(cell.heartbeat(known(third)).changes.workers) == []


def test_a_client_of_an_earlier_release_is_sent_all_workers(master: Master) -> None:
    """Such a client names no state of the list, in none of its requests."""
    cell = Cell(master, 3)
    shuffle = messages.key_of(SHUFFLE)
    spec = messages.spec_message(ShuffleSpec(SHUFFLE, 4, 2))
    replies: list[Any] = [
        cell.control.Hello(pb.HelloRequest(protocol=2, oldest=1)),
        cell.control.RegisterApp(pb.RegisterAppRequest(app="app", instance="i")),
        cell.heartbeat(None),
        cell.control.RegisterShuffle(spec),
    ]
    for reply in replies:
        assert sorted(each.id for each in reply.workers) == ["w0", "w1", "w2"]
        assert not reply.HasField("changes")
    placed = cell.control.Place(pb.PlaceRequest(shuffle=shuffle))
    assert {each.id for each in placed.workers} == {"w0", "w1", "w2"}


def test_pages_of_locate_name_the_workers_of_their_outputs_and_no_others(master: Master) -> None:
    cell = Cell(master, 50)
    output = MapOutput(commit(0).output.output, "w7", commit(0).output.totals)
    master.apply(type(commit(0))(SHUFFLE, output))
    reply = cell.control.Locate(pb.LocateRequest(shuffle=messages.key_of(SHUFFLE)))
    assert [each.id for each in reply.workers] == ["w7"]


def test_silence_and_its_end_are_changes(master: Master) -> None:
    cell = Cell(master, 2)
    first = cell.heartbeat(pb.WorkersKnown())
    assert cell.after(30, "w1") == []
    second = cell.heartbeat(known(first.changes))
    assert [(each.id, each.silent) for each in second.changes.workers] == [("w0", True)]
    cell.beat("w0")
    third = cell.heartbeat(known(second.changes))
    assert [(each.id, each.silent) for each in third.changes.workers] == [("w0", False)]


def test_changes_that_are_forgotten_lead_to_the_whole_list() -> None:
    versions = WorkerVersions(remembered=3)
    begun = versions.version
    for number in range(3):
        versions.note(f"w{number}")
    assert versions.since(begun) == ["w2", "w1", "w0"]
    versions.note("w1")
    assert versions.since(versions.version - 1) == ["w1"]
    versions.note("w3")
    assert versions.since(begun) is None
    assert versions.since(versions.version) == []


def test_the_interval_of_heartbeats_grows_with_the_cluster_and_the_timeout_with_the_interval() -> None:
    terms = HeartbeatTerms(60.0)
    assert [terms.beat_seconds(workers) for workers in (1, 2000, 10_000, 30_000)] == [2.0, 2.0, 10.0, 30.0]
    record = WorkerRecord(worker("w"), 0, 0, terms.beat_seconds(30_000))
    assert terms.timeout(record) == HEARTBEATS_PER_TIMEOUT * 30.0
    assert HeartbeatTerms(6.0).beat_seconds(1) == 1.0


def test_nobody_is_lost_because_the_cluster_has_shrunk(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shuffle_server.master.liveness.HEARTBEATS_PER_SECOND", HEARTBEATS_PER_SECOND / 1000)
    cell = Cell(master, 30)
    assert cell.beat("w0").beat_seconds == 30.0
    for number in range(2, 30):
        cell.membership.leave(f"w{number}", "gone")
    assert cell.beat("w1").beat_seconds == 2.0
    assert cell.after(150) == ["w1"]
    assert cell.after(60) == ["w0"]


def test_a_heartbeat_without_a_state_leaves_the_one_before(master: Master) -> None:
    cell = Cell(master, 1)
    cell.beat("w0", status=pb.WorkerStatus(worker="w0", open_pushes=3, bytes_pushed=10))
    cell.beat("w0")
    assert cell.membership.record("w0").status.open_pushes == 3
    cell.beat("w0", status=pb.WorkerStatus(worker="w0", bytes_pushed=15))
    assert cell.membership.traffic() == (15, 0)
    cell.membership.join(WorkerInfo("w0", "h", 1, ROOMY_BYTES, 2))
    assert cell.membership.traffic() == (15, 0)


def test_the_workers_that_hold_outputs_of_a_shuffle_that_is_over_are_told_once(master: Master) -> None:
    cell = Cell(master, 3)
    master.apply(type(commit(0))(SHUFFLE, MapOutput(commit(0).output.output, "w1", commit(0).output.totals)))
    master.apply(UnregisterShuffle(SHUFFLE))
    key = messages.key_of(SHUFFLE)
    assert list(cell.beat("w0").gone) == []
    assert list(cell.beat("w1").gone) == [key]
    assert list(cell.beat("w1").gone) == []
    assert list(cell.beat("w2", shuffles=[key]).gone) == [key]


def test_ended_shuffles_come_in_several_answers_when_there_are_many(master: Master) -> None:
    cell = Cell(master, 1)
    cell.membership._gone["w0"] = [SHUFFLE] * (GONE_AT_ONCE + 1)
    assert len(cell.membership.heartbeat("w0", 1, ROOMY_BYTES, None).gone) == GONE_AT_ONCE
    assert len(cell.membership.heartbeat("w0", 1, ROOMY_BYTES, None).gone) == 1


def test_what_is_due_is_found_in_order_and_once() -> None:
    deadlines = Deadlines()
    for id, due in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("a", 0.5)):
        deadlines.add(id, due)
    assert list(deadlines.due(0.9)) == []
    assert list(deadlines.due(2.0)) == ["a", "b"]
    deadlines.add("a", 2.5)
    assert list(deadlines.due(9.0)) == ["a", "c"]
