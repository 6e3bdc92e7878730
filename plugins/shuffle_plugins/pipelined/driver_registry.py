"""The driver's side: the embedded registry, and where the writers of each shuffle are just now.

The registry (`shuffle_api.registry`) knows applications, shuffles and committed outputs. Where a running attempt is
read lives as long as that attempt's process, and is kept here beside it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

from shuffle_api.errors import AttemptSuperseded, UnknownShuffle
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry import (
    CommitMapOutput,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
    Registry,
    ShuffleRemoved,
    UnregisterApp,
    UnregisterShuffle,
)
from shuffle_api.values import MapOutput, ShuffleSpec, WorkerInfo
from shuffle_plugins.pipelined.producer_registry import (
    Event,
    ProducerFailed,
    ProducerLocation,
    ShuffleUnregistered,
    StreamConfig,
    Watcher,
)


class DriverRegistry:
    """All shuffles that one driver's process registered. A `Directory`.

    :param ended: called with each shuffle that is over, after its tasks were told.
    """

    def __init__(self, ended: Callable[[ShuffleId], None]) -> None:
        self._ended = ended
        self._lock = threading.RLock()  # watchers are called within, so that they hear things in order
        self._registry = Registry()
        self._configs: dict[ShuffleId, StreamConfig] = {}
        self._locations: dict[ShuffleId, dict[int, ProducerLocation | ProducerFailed]] = defaultdict(dict)
        self._watchers: dict[ShuffleId, list[Watcher]] = defaultdict(list)

    def register_app(self, app: str) -> None:
        """A run of an application begins."""
        self._apply(RegisterApp(app, app, app))

    def unregister_app(self, app: str) -> None:
        """The application is over, with all its shuffles."""
        self._apply(UnregisterApp(app))

    def register_shuffle(self, spec: ShuffleSpec, config: StreamConfig) -> ShuffleSpec:
        """What is registered: `spec`, or with another generation the shuffle that has the number.

        :raises ShuffleExists: the number is taken by a shuffle with other properties.
        """
        with self._lock:
            self._apply(RegisterShuffle(spec))
            registered = self._registry.spec(spec.id.current())
            self._configs.setdefault(registered.id, config)
            return registered

    def unregister_shuffle(self, shuffle: ShuffleId) -> None:
        """End the shuffle, and notify its writers and readers."""
        self._apply(UnregisterShuffle(shuffle))

    def map_outputs(self, shuffle: ShuffleId) -> list[MapOutput]:
        """
        :raises UnknownShuffle: it is not registered.
        """
        with self._lock:
            return self._registry.map_outputs(shuffle)[0]

    # ----------------------------------------------------------------------------------- a Directory

    def config(self, shuffle: ShuffleId) -> StreamConfig:
        with self._lock:
            self._registry.spec(shuffle)
            return self._configs[shuffle]

    def bind(self, shuffle: ShuffleId, output: MapAttempt, address: str) -> None:
        with self._lock:
            self._registry.spec(shuffle)
            present = self._locations[shuffle].get(output.map)
            if present is not None and present.output.attempt >= output.attempt:
                raise AttemptSuperseded(
                    f"{present.output} has been bound already",
                    remedy="write the next attempt under a higher number",
                    shuffle=shuffle,
                    output=present.output,
                )
            self._tell(shuffle, ProducerLocation(output, address))

    def fail(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        with self._lock:
            present = self._locations[shuffle].get(output.map) if shuffle in self._configs else None
            if present is not None and present.output == output and isinstance(present, ProducerLocation):
                self._tell(shuffle, ProducerFailed(output, reason))

    def commit(self, shuffle: ShuffleId, output: MapOutput) -> MapOutput:
        with self._lock:
            self._registry.spec(shuffle)
            host, _, port = output.worker.rpartition("-")
            self._apply(RegisterWorker(WorkerInfo(output.worker, host, int(port) if port.isdigit() else 0)))
            try:
                self._apply(CommitMapOutput(shuffle, output))
            except AttemptSuperseded:
                return self._registry.map_output(shuffle, output.output.map)
            return output

    def watch(self, shuffle: ShuffleId, watcher: Watcher) -> None:
        with self._lock:
            self._registry.spec(shuffle)
            self._watchers[shuffle].append(watcher)
            for event in self._locations[shuffle].values():
                watcher(event)

    def unwatch(self, shuffle: ShuffleId, watcher: Watcher) -> None:
        with self._lock:
            if watcher in self._watchers.get(shuffle, ()):
                self._watchers[shuffle].remove(watcher)

    # ----------------------------------------------------------------------------------------- within

    def _tell(self, shuffle: ShuffleId, event: Event) -> None:
        if not isinstance(event, ShuffleUnregistered):
            self._locations[shuffle][event.output.map] = event
        for watcher in list(self._watchers.get(shuffle, ())):
            watcher(event)

    def _apply(self, operation: Operation) -> None:
        over: list[ShuffleId] = []
        with self._lock:
            for event in self._registry.apply(operation):
                if isinstance(event, ShuffleRemoved):
                    over.append(event.id)
                    self._tell(event.id, ShuffleUnregistered("it was unregistered"))
                    for table in (self._configs, self._locations, self._watchers):
                        table.pop(event.id, None)
        for shuffle in over:
            self._ended(shuffle)


def removed_error(shuffle: ShuffleId, event: ShuffleUnregistered) -> UnknownShuffle:
    """What a task of a shuffle that is gone gets."""
    return UnknownShuffle(f"the shuffle has ended: {event.reason}", shuffle=shuffle)
