"""A worker whose disks are nearly full moves map outputs to workers that have room, before it has to refuse new ones.

An output is copied, then the registry drops the copy here, then the file goes: at every moment the
registry names workers that have it. Readers that come too late find it where it went.
"""

from __future__ import annotations

import threading
from typing import Protocol

from shuffle_api.errors import MapOutputLost
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, ShuffleSpec
from shuffle_server.worker.replication import Replication
from shuffle_server.worker.worker import Worker

LOW_BYTES = 256 << 20
"""With less room than this a worker is the last choice for new outputs (master/membership.py), and moves what it has
until there is twice as much."""

ROOM_FACTOR = 4  # so many times as much has who takes them: two that are short do not send outputs to and fro


class Releasing(Protocol):
    """What is asked of the session with one registry's master."""

    def held_shuffles(self) -> list[ShuffleId]: ...
    def release(self, shuffle: ShuffleId, output: MapAttempt) -> bool: ...


class Rebalancing:
    """Looks after the room of one worker, by what it holds for one registry.

    :param closing: set when the worker stops.
    """

    def __init__(self, worker: Worker, replication: Replication, session: Releasing, closing: threading.Event) -> None:
        self._worker, self._replication, self._session, self._closing = worker, replication, session, closing

    def look(self) -> int:
        """Move outputs if there is little room, and say how many. Raises ServerUnreachable, DeadlineExceeded."""
        wanted = 2 * LOW_BYTES - self._worker.free_bytes()
        if wanted <= LOW_BYTES or self._worker.draining:
            return 0
        moved = 0
        for spec, output in self._largest():
            if wanted <= 0 or self._closing.is_set():
                break
            if self._move(spec, output):
                moved += 1
                wanted -= output.totals.bytes
        return moved

    def _largest(self) -> list[tuple[ShuffleSpec, MapOutput]]:
        """What may be moved, the largest first: the least to do for the room."""
        found = [held for shuffle in self._session.held_shuffles() for held in self._worker.held(shuffle)]
        return sorted(found, key=lambda each: -each[1].totals.bytes)

    def _move(self, spec: ShuffleSpec, output: MapOutput) -> bool:
        if len(output.workers) <= spec.replicas:
            candidates = self._replication.candidates(spec.id, output.workers)
            roomy = [worker for worker in candidates if worker.free_bytes >= ROOM_FACTOR * LOW_BYTES]
            try:
                if self._replication.copy_to_one(spec.id, output.output, roomy) is None:
                    return False
            except MapOutputLost as error:
                self._worker.give_up(spec.id, output.output, error.message)
                return False
        if not self._session.release(spec.id, output.output):
            return False
        self._worker.drop_released(spec.id, output.output)
        return True
