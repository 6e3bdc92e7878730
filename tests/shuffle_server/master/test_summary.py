"""Status and Held: pages that together show everything, each with work for itself alone."""

from __future__ import annotations

import threading

import pytest

from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry import CommitMapOutput, RegisterApp, RegisterShuffle, RegisterWorker, Registry
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo
from shuffle_server.cli.status import whole_status
from shuffle_server.master import summary as summary_module
from shuffle_server.master.master import Master
from shuffle_server.master.summary import held_page, summary
from shuffle_server.worker import registry_view as coordinator_module
from shuffle_server.worker.registry_view import LocalRegistryView
from shuffle_transport.proto import flight_shuffle_pb2 as pb

RUNS = {"a": 5, "b": 0, "c~1": 3, "c~2": 4}
TOTALS = Totals(2, 10, 20, 3)


@pytest.fixture(scope="module")
def master() -> Master:
    master = Master(None)
    master.apply_all([RegisterWorker(WorkerInfo(worker, "h", 1)) for worker in ("w", "v")])
    for run, shuffles in RUNS.items():
        master.apply(RegisterApp(run, "i", f"name of {run}"))
        for number in range(shuffles):
            id = ShuffleId(run, number, 1)
            master.apply(RegisterShuffle(ShuffleSpec(id, 4, 9, replicas=2)))
            for map in range(number):
                master.apply(CommitMapOutput(id, MapOutput(MapAttempt(map, 0), "w", TOTALS)))
            master.apply(CommitMapOutput(id, MapOutput(MapAttempt(8, 0), "v", TOTALS)))
    return master


def pages(master: Master, limit: int, app: str = "") -> list[pb.StatusReply]:
    found: list[pb.StatusReply] = []
    first = 0
    while first or not found:
        apps, shuffles, first = summary(master, pb.StatusRequest(app=app, first=first, limit=limit))
        found.append(pb.StatusReply(apps=apps, shuffles=shuffles, next=first))
    return found


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 7, 15, 16, 17, 1000])
def test_pages_of_any_size_show_each_run_and_shuffle_once(master: Master, limit: int) -> None:
    found = pages(master, limit)
    assert all(len(page.apps) + len(page.shuffles) == limit for page in found[:-1])
    assert len(found) == -(-(len(RUNS) + sum(RUNS.values())) // limit)
    apps = [app for page in found for app in page.apps]
    assert {app.app: app.shuffles for app in apps} == RUNS
    assert len(apps) == len(RUNS)
    shuffles = [shuffle for page in found for shuffle in page.shuffles]
    assert [(s.shuffle.app, s.shuffle.shuffle) for s in shuffles] == [
        (run, number) for run, count in RUNS.items() for number in range(count)
    ]
    assert all(s.committed == s.degraded == s.shuffle.shuffle + 1 for s in shuffles)
    assert all(
        s.totals
        == pb.Totals(
            blocks=2 * s.committed, bytes=10 * s.committed, raw_bytes=20 * s.committed, records=3 * s.committed
        )
        for s in shuffles
    )
    assert sum(app.bytes for app in apps) == sum(s.totals.bytes for s in shuffles)


def test_pages_of_one_application_or_one_run(master: Master) -> None:
    assert [app.app for page in pages(master, 2, "c") for app in page.apps] == ["c~1", "c~2"]
    assert len([s for page in pages(master, 2, "c~2") for s in page.shuffles]) == RUNS["c~2"]
    assert pages(master, 2, "nobody") == [pb.StatusReply()]


def test_a_page_looks_at_no_more_than_it_shows_and_lets_others_in_between(
    master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lock:
        def __init__(self, lock: threading.Lock) -> None:
            self._lock, self.looks, self.most = lock, 0, 0

        def __enter__(self) -> None:
            self._lock.acquire()
            self.looks = 0

        def __exit__(self, *_: object) -> None:
            self.most = max(self.most, self.looks)
            self._lock.release()

    lock, looked = Lock(master.lock), []
    look = Registry.summary

    def counted(self: Registry, id: ShuffleId) -> object:
        lock.looks += 1
        looked.append(id)
        return look(self, id)

    monkeypatch.setattr(Registry, "summary", counted)
    monkeypatch.setattr(summary_module, "AT_ONCE", 2)
    monkeypatch.setattr(Master, "lock", lock)
    summary(master, pb.StatusRequest(limit=6))
    assert len(looked) == RUNS["a"]
    assert lock.most == 2


def test_a_page_below_nothing_is_refused(master: Master) -> None:
    for request in (pb.StatusRequest(first=-1), pb.StatusRequest(limit=-1)):
        with pytest.raises(InvalidArgument, match="below 0"):
            summary(master, request)
    assert summary(master, pb.StatusRequest(first=(1 << 63) - 1, limit=(1 << 31) - 1)) == ([], [], 0)


def test_the_command_joins_the_pages(master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def call(self, method: str, request: pb.StatusRequest) -> pb.StatusReply:
            apps, shuffles, following = summary(master, pb.StatusRequest(app=request.app, first=request.first, limit=3))
            return pb.StatusReply(epoch=7, apps=apps, shuffles=shuffles, next=following)

    whole = whole_status(Client(), "")  # type: ignore[arg-type]
    assert (whole.epoch, len(whole.apps), len(whole.shuffles), whole.next) == (7, len(RUNS), sum(RUNS.values()), 0)


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_of_what_a_worker_holds(master: Master, limit: int) -> None:
    for worker in ("w", "v", "nobody"):
        found: list[object] = []
        while page := held_page(master, worker, len(found), limit):
            assert len(page) <= limit
            found += page
        assert found == master.registry.held_by(worker)


@pytest.mark.parametrize("at_once", [1, 2, 5, 100])
def test_a_worker_in_the_masters_process_asks_for_outputs_a_few_at_a_time(
    master: Master, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(coordinator_module, "AT_ONCE", at_once)
    for id in master.registry.shuffle_ids("a"):
        assert LocalRegistryView(master, "w").outputs(id) == master.registry.map_outputs(id)[0] != []
