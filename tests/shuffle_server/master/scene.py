"""Operations and a registry to do them on, for the tests of the master."""

from __future__ import annotations

from collections.abc import Iterable

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
    UnregisterApp,
    UnregisterShuffle,
)
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo

SHUFFLE = ShuffleId("app", 1)
BEGIN: list[Operation] = [
    RegisterApp("app", "i", "näme"),
    RegisterShuffle(ShuffleSpec(SHUFFLE, 4, 2, "zstd:3", "spark")),
    RegisterWorker(WorkerInfo("w", "h", 1, 2)),
]


def commit(map_id: int, attempt: int = 0, records: int = 4) -> CommitMapOutput:
    totals = Totals(1, 2, 3, records, 2**32 - 1)
    return CommitMapOutput(SHUFFLE, MapOutput(MapAttempt(map_id, attempt), "w", totals))


OPERATIONS: list[Operation] = [
    *BEGIN,
    commit(1, 2),
    LoseMapOutput(SHUFFLE, MapAttempt(1, 2), "gone"),
    commit(1, 3),
    LoseWorker("w", "burnt"),
    UnregisterShuffle(SHUFFLE),
    ExpireApps(("nobody",)),
    UnregisterApp("app"),
]


def registry_after(operations: Iterable[Operation]) -> Registry:
    registry = Registry()
    for operation in operations:
        registry.apply(operation)
    return registry
