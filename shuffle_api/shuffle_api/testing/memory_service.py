"""The service behind `MemoryShuffle`: a registry, the blocks of the map outputs, and one lock around both."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakValueDictionary

from shuffle_api.errors import AttemptSuperseded, ServerUnreachable
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry import (
    CommitMapOutput,
    Event,
    LoseMapOutput,
    LostOutput,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
    Registry,
    ShuffleRemoved,
    UnregisterApp,
    UnregisterShuffle,
)
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo

WORKER = WorkerInfo("memory", host="", port=0)


class MemoryBlock(NamedTuple):
    """`records` records of one partition, as they lie in `payload`."""

    partition: int
    payload: bytes
    records: int


class MemoryService:
    """All state of one in-memory service. Found by `endpoint` from anywhere in this process for as long as it lives."""

    def __init__(self) -> None:
        self.endpoint = f"memory:{uuid.uuid4().hex}"
        self._lock = threading.Lock()
        self._registry = Registry()
        self._registry.apply(RegisterWorker(WORKER))
        self._blocks: dict[tuple[ShuffleId, MapAttempt], tuple[MemoryBlock, ...]] = {}
        _EXCHANGES[self.endpoint] = self

    @staticmethod
    def find(endpoint: str) -> MemoryService:
        """:raises ServerUnreachable: no exchange of this process has this endpoint."""
        exchange = _EXCHANGES.get(endpoint)
        if exchange is None:
            raise ServerUnreachable(
                endpoint,
                "no such exchange in this process",
                remedy="keep the plugin that registered the shuffle open, and use the handle in the same process",
            )
        return exchange

    def close(self) -> None:
        """Be found no more."""
        _EXCHANGES.pop(self.endpoint, None)

    def register_app(self, app: str, instance: str) -> None:
        """:raises AppExists: another instance has this id."""
        self._apply(RegisterApp(app, instance, name=app))

    def unregister_app(self, app: str) -> None:
        """Remove the application and its data."""
        self._apply(UnregisterApp(app))

    def register_shuffle(self, spec: ShuffleSpec) -> ShuffleSpec:
        """What is registered, with its generation: one drawn now, or that of the shuffle that has the number.

        :raises ShuffleExists: the number is taken by a shuffle with other properties.
        """
        self._apply(RegisterShuffle(replace(spec, id=spec.id.anew())))
        with self._lock:
            return self._registry.spec(spec.id.current())

    def unregister_shuffle(self, id: ShuffleId) -> None:
        """Remove the shuffle and its data."""
        self._apply(UnregisterShuffle(id))

    def check_registered(self, id: ShuffleId) -> None:
        """:raises UnknownShuffle: it is not registered."""
        with self._lock:
            self._registry.spec(id)

    def map_outputs(self, id: ShuffleId) -> list[MapOutput]:
        """The winners, ascending by map.

        :raises UnknownShuffle: the shuffle is not registered.
        """
        with self._lock:
            return self._registry.map_outputs(id)[0]

    def commit(self, id: ShuffleId, attempt: MapAttempt, blocks: Iterable[MemoryBlock]) -> MapOutput:
        """Make the attempt's blocks visible if it is the first of its map; return the winner's output.

        :raises UnknownShuffle: the shuffle is not registered.
        :raises MapOutputLost: this attempt had won and was lost.
        """
        kept = tuple(blocks)
        output = MapOutput(attempt, WORKER.id, _totals(kept))
        with self._lock:
            try:
                committed = self._registry.apply(CommitMapOutput(id, output))
            except AttemptSuperseded:
                return self._registry.map_output(id, attempt.map)
            if committed:
                self._blocks[id, attempt] = kept
        return output

    def read(self, id: ShuffleId, partitions: range, maps: range) -> list[tuple[MapAttempt, tuple[MemoryBlock, ...]]]:
        """The committed attempts of `maps` with their blocks of `partitions`, in the order written.

        :raises UnknownShuffle: the shuffle is not registered.
        :raises MapOutputLost: the output of a map is lost.
        :raises MapOutputNotWritten: maps have not committed; the message names them.
        """
        with self._lock:
            spec = self._registry.spec(id)
            outputs, _ = self._registry.map_outputs(id, maps.start, maps.stop)
            for lost in self._registry.lost(id, maps.start, maps.stop):
                self._registry.map_output(id, lost.output.output.map)
            spec.check_written(maps, (output.output.map for output in outputs))
            found = [(output.output, self._blocks[id, output.output]) for output in outputs]
        return [
            (attempt, tuple(block for block in blocks if block.partition in partitions)) for attempt, blocks in found
        ]

    def lose(self, id: ShuffleId, map: int, reason: str) -> None:
        """Lose the committed output of `map`, as a failing disk would.

        :raises MapOutputNotWritten: there is none.
        """
        with self._lock:
            attempt = self._registry.map_output(id, map).output
        self._apply(LoseMapOutput(id, attempt, reason))

    def _apply(self, operation: Operation) -> None:
        with self._lock:
            for event in self._registry.apply(operation):
                self._drop_data(event)

    def _drop_data(self, event: Event) -> None:
        if isinstance(event, LostOutput):
            del self._blocks[event.shuffle, event.output.output]
        elif isinstance(event, ShuffleRemoved):
            self._blocks = {key: blocks for key, blocks in self._blocks.items() if key[0] != event.id}


_EXCHANGES: WeakValueDictionary[str, MemoryService] = WeakValueDictionary()
"""The exchanges of this process by endpoint: how a pickled handle finds its way back. Each lives only as long
as a plugin, master, writer or reader holds it."""


def _totals(blocks: tuple[MemoryBlock, ...]) -> Totals:
    size = sum(len(block.payload) for block in blocks)
    return Totals(blocks=len(blocks), bytes=size, raw_bytes=size, records=sum(block.records for block in blocks))
