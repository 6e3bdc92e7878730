"""What a worker asks of the master. In one process it is a few calls under the master's lock."""

from __future__ import annotations

from typing import Protocol

from shuffle_api.errors import AttemptSuperseded, InvalidArgument, MapOutputLost, MapOutputNotWritten
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry.operations import CommitMapOutput
from shuffle_api.values import MapOutput, ShuffleSpec, WorkerInfo
from shuffle_server.master.master import Master

AT_ONCE = 1000  # outputs that are looked at while nobody else may


class RegistryView(Protocol):
    """The registry as a worker sees it."""

    def spec(self, shuffle: ShuffleId) -> ShuffleSpec:
        """Raises UnknownApp, AppExpired, UnknownShuffle."""
        ...

    def opening(self, shuffle: ShuffleId, map_id: int) -> tuple[ShuffleSpec, MapOutput | None]:
        """The shuffle as it is now, and what `winner` says: asked before anything of it is written."""
        ...

    def winner(self, shuffle: ShuffleId, map_id: int) -> MapOutput | None:
        """The committed output of a map, None when there is none (yet, or any more)."""
        ...

    def outputs(self, shuffle: ShuffleId) -> list[MapOutput]:
        """All committed outputs, ascending by map."""
        ...

    def shuffles(self) -> list[ShuffleId]:
        """All shuffles."""
        ...

    def holder(self, worker: str) -> WorkerInfo | None:
        """Where a worker is that `winner` has named just now; None when it is not known."""
        ...

    def commit(self, shuffle: ShuffleId, output: MapOutput) -> MapOutput:
        """Record a commit; the output that won the map. Raises MapOutputLost when this very attempt was lost before."""
        ...

    def lose(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        """Record that a committed output is gone from this worker."""
        ...


class LocalRegistryView:
    """The master in the same process."""

    def __init__(self, master: Master, worker: str) -> None:
        self._master, self._worker = master, worker

    def spec(self, shuffle: ShuffleId) -> ShuffleSpec:
        with self._master.lock:
            return self._master.registry.spec(shuffle)

    def opening(self, shuffle: ShuffleId, map_id: int) -> tuple[ShuffleSpec, MapOutput | None]:
        spec = self.spec(shuffle)
        return spec, self.winner(spec.id, map_id)

    def winner(self, shuffle: ShuffleId, map_id: int) -> MapOutput | None:
        with self._master.lock:
            try:
                return self._master.registry.map_output(shuffle, map_id)
            except (MapOutputNotWritten, MapOutputLost):
                return None

    def outputs(self, shuffle: ShuffleId) -> list[MapOutput]:
        found: list[MapOutput] = []
        shuffle, first = self.spec(shuffle).id, 0
        while True:
            with self._master.lock:
                outputs, following = self._master.registry.map_outputs(shuffle, first, limit=AT_ONCE)
            found += outputs
            if following is None:
                return found
            first = following

    def shuffles(self) -> list[ShuffleId]:
        with self._master.lock:
            return self._master.registry.shuffle_ids()

    def holder(self, worker: str) -> WorkerInfo | None:
        with self._master.lock:
            try:
                return self._master.registry.worker(worker)
            except InvalidArgument:
                return None

    def commit(self, shuffle: ShuffleId, output: MapOutput) -> MapOutput:
        try:
            self._master.apply(CommitMapOutput(shuffle, output))
        except AttemptSuperseded:
            winner = self.winner(shuffle, output.output.map)
            if winner is None:
                raise
            return winner
        return output

    def lose(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        self._master.lose(shuffle, output, reason, self._worker)
