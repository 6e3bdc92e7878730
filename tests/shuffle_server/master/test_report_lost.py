"""Reports of lost outputs: few are looked at at once, and none for ever."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from shuffle_api.errors import Overloaded
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.master.cluster import Cluster
from shuffle_server.master.control import MAX_REPORTS, REPORT_SECONDS, ControlService
from shuffle_server.master.master import Master
from shuffle_server.master.membership import Membership
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.master.scene import BEGIN, SHUFFLE, commit

DEADLINE = 120.0
REPORT = pb.ReportLostRequest(
    shuffle=messages.key_of(SHUFFLE), outputs=[pb.MapAttempt(map=0), pb.MapAttempt(map=1)], reason="a checksum"
)


class SlowWorkers(Cluster):
    """They find each output damaged once `done` is set."""

    def __init__(self, master: Master) -> None:
        super().__init__(Membership(master, 60), None)
        self.asked, self.done = threading.Semaphore(0), threading.Event()
        self.timeouts: list[float] = []

    def verify(self, worker: str, shuffle: ShuffleId, output: MapAttempt, timeout: float) -> str | None:
        self.timeouts.append(timeout)
        self.asked.release()
        assert self.done.wait(DEADLINE)
        return "damaged"


@pytest.fixture
def master() -> Iterator[Master]:
    with closing(Master(None)) as master:
        master.apply_all([*BEGIN, commit(0), commit(1)])
        yield master


def report(service: ControlService) -> list[int]:
    return [output.map for output in service.ReportLost(REPORT).lost]


def test_a_flood_of_reports_leaves_threads_for_others(master: Master) -> None:
    workers = SlowWorkers(master)
    service = ControlService(master, workers, "0", 1)
    with ThreadPoolExecutor(MAX_REPORTS) as pool:
        running = [pool.submit(report, service) for _ in range(MAX_REPORTS)]
        try:
            assert all(workers.asked.acquire(timeout=DEADLINE) for _ in running)
            with pytest.raises(Overloaded, match="are being looked at"):
                report(service)
        finally:
            workers.done.set()
        assert [each.result(DEADLINE) for each in running] == [[0, 1]] * MAX_REPORTS
    assert report(service) == [0, 1]
    assert max(workers.timeouts) <= REPORT_SECONDS


def test_a_report_has_a_deadline_in_all(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = SlowWorkers(master)
    workers.done.set()
    service = ControlService(master, workers, "0", 1)
    monkeypatch.setattr("shuffle_server.master.control.REPORT_SECONDS", 0.0)
    with pytest.raises(Overloaded, match="could be read within"):
        report(service)
    monkeypatch.undo()
    assert report(service) == [0, 1]  # the refusal before took no place
