"""Snapshots: the operations of a state make an equal one, and are no more than it takes."""

from __future__ import annotations

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry import (
    CommitMapOutput,
    ExpireApps,
    LoseMapOutput,
    LoseWorker,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
    Registry,
)
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo

ID = ShuffleId("app", 1)
BEGIN: list[Operation] = [
    RegisterWorker(WorkerInfo("w1", "host1", 1)),
    RegisterWorker(WorkerInfo("w2", "host2", 2)),
    RegisterApp("app", "run-1", ""),
    RegisterShuffle(ShuffleSpec(ID, 2, 3)),
]


def after(*operations: Operation) -> Registry:
    registry = Registry()
    for operation in (*BEGIN, *operations):
        registry.apply(operation)
    return registry


def commit(map: int, attempt: int, worker: str) -> CommitMapOutput:
    return CommitMapOutput(ID, MapOutput(MapAttempt(map, attempt), worker, Totals(records=map)))


def check_rebuilt(registry: Registry) -> list[Operation]:
    """The operations of a snapshot, which make an equal registry."""
    operations = list(registry.operations())
    again = Registry()
    for operation in operations:
        again.apply(operation)
    assert again == registry
    return operations


def test_nothing_needs_no_operations() -> None:
    assert check_rebuilt(Registry()) == []


def test_detours_are_left_out() -> None:
    again = [RegisterApp("app", "run-1", "")] * 50
    operations = check_rebuilt(after(*again, commit(0, 0, "w1"), commit(0, 0, "w1")))
    assert len(operations) == len(BEGIN) + 1


def test_lost_attempts_are_kept_with_their_reasons() -> None:
    check_rebuilt(
        after(
            commit(0, 0, "w1"),
            LoseMapOutput(ID, MapAttempt(0, 0), "disk"),
            commit(0, 1, "w2"),
            LoseMapOutput(ID, MapAttempt(0, 1), "power"),
            commit(0, 2, "w1"),
        )
    )


def test_outputs_lost_with_their_worker_are_kept_and_the_worker_stays_gone() -> None:
    registry = after(commit(0, 0, "w1"), commit(1, 0, "w2"), LoseWorker("w1", "power cut"))
    check_rebuilt(registry)
    assert [worker.id for worker in registry.workers()] == ["w2"]


def test_expired_applications_are_remembered_and_the_living_stay() -> None:
    registry = after(RegisterApp("other", "run-1", ""), ExpireApps(("app",)), RegisterApp("third", "run-1", ""))
    check_rebuilt(registry)
    assert {record.app for record in registry.apps()} == {"other", "third"}


def test_expired_applications_are_remembered_in_the_order_in_which_they_expired() -> None:
    names = ("b", "app", "a")
    registry = after(*(RegisterApp(name, "run-1", "") for name in names), *(ExpireApps((name,)) for name in names))
    assert ExpireApps(names) in check_rebuilt(registry)
