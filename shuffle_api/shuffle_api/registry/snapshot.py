"""A state as the short list of operations that leads to it, so that a snapshot is a log without the detours."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from shuffle_api.registry.apps import AppRecord, Apps
from shuffle_api.registry.operations import (
    CommitMapOutput,
    ExpireApps,
    LoseMapOutput,
    LoseWorker,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
)
from shuffle_api.registry.outputs import ShuffleOutputs
from shuffle_api.values import WorkerInfo


def rebuild(apps: Apps, shuffles: Collection[ShuffleOutputs], workers: Mapping[str, WorkerInfo]) -> Iterator[Operation]:
    """Operations that lead from nothing to the given state."""
    yield from _expired(apps)
    # Lost outputs may have lain at workers that are gone: those come back for as long as they are needed.
    used = {event.output.worker for outputs in shuffles for lost in outputs.lost.values() for event in lost}
    gone = sorted(used - workers.keys())
    yield from (RegisterWorker(info) for info in workers.values())
    yield from (RegisterWorker(WorkerInfo(worker, host="", port=0)) for worker in gone)
    yield from map(_register, apps.live.values())
    for outputs in shuffles:
        yield from _shuffle(outputs)
    yield from (LoseWorker(worker, reason="gone") for worker in gone)


def _expired(apps: Apps) -> Iterator[Operation]:
    yield from map(_register, apps.expired.values())
    if apps.expired:
        yield ExpireApps(tuple(apps.expired))


def _register(record: AppRecord) -> RegisterApp:
    return RegisterApp(record.app, record.instance, record.name, record.only)


def _shuffle(outputs: ShuffleOutputs) -> Iterator[Operation]:
    id = outputs.spec.id
    yield RegisterShuffle(outputs.spec)
    for events in outputs.lost.values():
        for event in events:
            yield CommitMapOutput(id, event.output)
            yield LoseMapOutput(id, event.output.output, event.reason)
    for output in outputs.winners.values():
        for worker in output.workers:
            yield CommitMapOutput(id, output.at(worker))
