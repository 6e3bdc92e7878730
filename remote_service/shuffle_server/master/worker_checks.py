"""Checks of what workers ask for, against the registry: raise or return."""

from __future__ import annotations

from collections.abc import Collection

from shuffle_api.errors import (
    AppExpired,
    InvalidArgument,
    MapOutputLost,
    MapOutputNotWritten,
    StaleEpoch,
    UnknownApp,
    UnknownShuffle,
)
from shuffle_api.registry.operations import LoseMapOutput, LoseWorkerOutputs, Operation
from shuffle_api.registry.state import Registry
from shuffle_api.values import WorkerInfo
from shuffle_server.master.master import Master

OUTPUT_IS_GONE = (AppExpired, MapOutputLost, MapOutputNotWritten, UnknownApp, UnknownShuffle)


def joined_worker(registry: Registry, id: str) -> WorkerInfo:
    """:raises StaleEpoch: the registry does not count on the worker."""
    try:
        return registry.worker(id)
    except InvalidArgument:
        raise StaleEpoch(f"worker {id} has not joined, or was given up", worker=id) from None


def check_present(master: Master, id: str, incarnation: int) -> None:
    """:raises StaleEpoch: the registry does not count on this life of the worker."""
    present = joined_worker(master.registry, id).incarnation
    if present != incarnation:
        raise StaleEpoch(f"worker {id} is at incarnation {present}, this is {incarnation}", worker=id)


def check_held_elsewhere(sure: Collection[str], registry: Registry, operation: Operation) -> None:
    """Raises MapOutputLost, MapOutputNotWritten, UnknownShuffle, InvalidArgument: not all of it is to be given up here.

    :param sure: other workers, which are there.
    """
    if isinstance(operation, LoseWorkerOutputs):
        outputs = registry.held_of(operation.shuffle, operation.worker, operation.first, operation.end)
    else:
        assert isinstance(operation, LoseMapOutput)
        outputs = [registry.map_output(operation.shuffle, operation.output.map)]
        if outputs[0].output != operation.output:
            raise InvalidArgument(f"{operation.output} is not the winner of its map, {outputs[0].output} is")
    for held in outputs:
        if not any(worker in sure for worker in held.workers):
            raise InvalidArgument(f"{held.output} lies only at {held.worker}")
