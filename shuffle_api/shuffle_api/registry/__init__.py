"""The metadata of shuffles as a pure state machine: what exists, which attempt won, where it lies.

`Registry.apply(operation)` is the only way to change it. There is no clock, no lock and no I/O in here: the caller
decides which applications have expired, and serializes, logs and replicates the operations. So the same code runs in
one process, behind a server and in recovery, where the state is the log of operations applied again.
"""

from shuffle_api.registry.apps import AppRecord
from shuffle_api.registry.events import (
    AppRemoved,
    Event,
    LostOutput,
    MapOutputCommitted,
    OutputMoved,
    ShuffleRemoved,
    WorkerLost,
)
from shuffle_api.registry.operations import (
    BeginJournal,
    CommitMapOutput,
    ExpireApps,
    LoseMapOutput,
    LoseWorker,
    LoseWorkerOutputs,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
    UnregisterApp,
    UnregisterShuffle,
)
from shuffle_api.registry.state import Registry, RegistryFigures, ShuffleSummary

__all__ = [
    "AppRecord",
    "AppRemoved",
    "BeginJournal",
    "CommitMapOutput",
    "Event",
    "ExpireApps",
    "RegistryFigures",
    "LoseMapOutput",
    "LoseWorker",
    "LoseWorkerOutputs",
    "LostOutput",
    "MapOutputCommitted",
    "Operation",
    "OutputMoved",
    "RegisterApp",
    "RegisterShuffle",
    "RegisterWorker",
    "Registry",
    "ShuffleRemoved",
    "ShuffleSummary",
    "UnregisterApp",
    "UnregisterShuffle",
    "WorkerLost",
]
