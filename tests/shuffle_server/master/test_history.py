"""The events of a cluster: what is recorded, how much is kept, what is counted."""

from __future__ import annotations

import logging

import pytest

from shuffle_api.registry.events import DRAINED, AppRemoved, WorkerLost
from shuffle_api.values import WorkerInfo
from shuffle_server import __version__
from shuffle_server.master.history import EVENTS_KEPT, LOST_KEPT, History
from shuffle_server.master.master import Master
from shuffle_server.master.membership import Membership
from shuffle_transport.proto import flight_shuffle_pb2 as pb

ROOM = 1 << 40


def kinds(history: History) -> list[str]:
    return [event.kind for event in history.events()]


class Scene:
    def __init__(self) -> None:
        self.now = 0.0
        self.history = History(lambda: self.now)
        self.master = Master(None)
        self.master.subscribe(self.history.happened)
        self.membership = Membership(self.master, 60.0, clock=lambda: self.now, history=self.history)


def test_events_are_numbered_kept_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    history = History(lambda: 7.0)
    with caplog.at_level(logging.INFO):
        for number in range(EVENTS_KEPT + 10):
            history.record("worker-joined", f"w-{number}")
    found = history.events()
    assert len(found) == EVENTS_KEPT
    assert [found[0].number, found[-1].number] == [11, EVENTS_KEPT + 10]
    assert history.events(after=EVENTS_KEPT + 9) == history.events(limit=1) == found[-1:]
    assert "worker-joined: w-0" in caplog.text


def test_a_worker_that_joins_drains_and_leaves() -> None:
    scene = Scene()
    scene.membership.join(WorkerInfo("w", "h", 1, ROOM, 1))
    scene.membership.join(WorkerInfo("w", "h", 1, ROOM, 1))  # the same again: its answer was lost
    scene.membership.drain("w")
    scene.membership.drain("w")
    scene.membership.leave_empty("w", 1)
    assert kinds(scene.history) == ["worker-joined", "worker-draining", "worker-left"]
    assert (scene.history.workers_lost, scene.history.lost()) == (0, [])


def test_a_lost_worker_is_shown_until_it_is_back_and_counted_for_good() -> None:
    scene = Scene()
    scene.membership.join(WorkerInfo("w", "h", 1, ROOM, 1))
    scene.now = 100.0
    scene.membership.leave("w", "silent for 61 s")
    scene.now = 130.0
    [lost] = scene.history.lost()
    assert (lost.worker, lost.address, lost.seconds) == ("w", "h:1", 30.0)
    assert "silent" in lost.reason
    scene.membership.join(WorkerInfo("w", "h", 1, ROOM, 2))
    assert scene.history.lost() == []
    assert scene.history.workers_lost == 1
    assert kinds(scene.history) == ["worker-joined", "worker-lost", "worker-joined"]


def test_only_so_many_lost_workers_are_remembered() -> None:
    history = History()
    for number in range(LOST_KEPT + 5):
        history.happened(WorkerLost(WorkerInfo(f"w-{number}", "h", 1), "silent"))
    history.happened(WorkerLost(WorkerInfo("drained", "h", 1), DRAINED))
    assert len(history.lost()) == LOST_KEPT
    assert history.workers_lost == LOST_KEPT + 5


def test_directories_that_go_out_and_come_back() -> None:
    scene = Scene()
    scene.membership.join(WorkerInfo("w", "h", 1, ROOM, 1))
    for out in ("", "input/output error", "input/output error", ""):
        status = pb.WorkerStatus(worker="w", disks=[pb.DiskStatus(path="/d", out=out)])
        scene.membership.heartbeat("w", 1, ROOM, status)
    assert kinds(scene.history) == ["worker-joined", "directory-out", "directory-back"]


def test_a_worker_of_another_release_is_named_once() -> None:
    scene = Scene()
    scene.membership.join(WorkerInfo("w", "h", 1, ROOM, 1))
    for release in (__version__, "7.7", "7.7", __version__):
        scene.membership.heartbeat("w", 1, ROOM, pb.WorkerStatus(worker="w", release=release))
    assert kinds(scene.history) == ["worker-joined", "worker-release"]
    assert f"w is of release 7.7, this master of {__version__}" in scene.history.events()[-1].text


def test_an_application_ends_with_its_totals() -> None:
    history = History()
    history.happened(AppRemoved("etl", "expired", 3, 4096))
    [event] = history.events()
    assert (event.kind, event.app) == ("application-ended", "etl")
    assert "expired: 3 shuffles with 4096 bytes" in event.text


def test_traffic_does_not_fall_when_a_worker_leaves_or_restarts() -> None:
    scene = Scene()
    for id in ("v", "w"):
        scene.membership.join(WorkerInfo(id, "h", 1, ROOM, 1))
        scene.membership.heartbeat(id, 1, ROOM, pb.WorkerStatus(worker=id, bytes_pushed=10, bytes_pulled=1))
    scene.membership.leave_empty("w", 1)
    scene.membership.join(WorkerInfo("v", "h", 1, ROOM, 2))
    assert scene.membership.traffic() == (20, 2)
    scene.membership.heartbeat("v", 2, ROOM, pb.WorkerStatus(worker="v", bytes_pushed=5))
    assert scene.membership.traffic() == (25, 2)
