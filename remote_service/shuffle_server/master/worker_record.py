"""A worker as the master sees it, and which workers have changed since a client was sent the list."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf

from shuffle_api.values import HOST, WorkerInfo
from shuffle_transport.proto import flight_shuffle_pb2 as pb

FULL_BYTES = 256 << 20  # a worker with less free space is chosen when there is no other
ROOMY_BYTES = 4 * FULL_BYTES
REMEMBERED = 10_000  # changes; a client that lacks more of them gets the whole list


class Tier(IntEnum):
    """How willingly a worker is chosen; one of a later tier only when there is none of an earlier one."""

    ROOMY = 0
    FULL = 1
    SILENT = 2


@dataclass(slots=True)
class WorkerRecord:
    """A worker. `info.free_bytes` and `status` are those of its last heartbeat.

    :ivar beat_seconds: within which it was asked to send the next one.
    """

    info: WorkerInfo
    seen: float  # when its last heartbeat came, on the clock that counts silence
    sure: float  # the same, counting every second
    beat_seconds: float
    status: pb.WorkerStatus = field(default_factory=pb.WorkerStatus)
    placed: int = 0  # outputs placed there after its last heartbeat
    draining: bool = False
    local: bool = False  # in the master's own process: alive as long as that is
    tier: Tier | None = None  # None: it takes nothing
    refused: float = -inf  # when its last heartbeat came that was refused, on the clock of `seen`

    @property
    def alive(self) -> float:
        """When its last heartbeat came, a refused one too."""
        return max(self.seen, self.refused)

    @property
    def load(self) -> int:
        """Pushes and pulls under way, and those that are about to come."""
        return self.status.open_pushes + self.status.open_pulls + self.placed

    @property
    def order(self) -> tuple[int, int]:
        """Of two workers the one with the smaller order is chosen."""
        return self.load, -self.info.free_bytes

    @property
    def labels(self) -> list[str]:
        """Its labels, that of its machine too."""
        return [f"{HOST}={self.info.host}", *self.info.labels]


class WorkerVersions:
    """Numbers the changes of a list, and has for each id the last one. Not thread-safe."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._changed: OrderedDict[str, int] = OrderedDict()  # ascending by number
        self._floor = 0  # the last number that was forgotten
        self.version = 1

    def note(self, id: str) -> None:
        """A worker is there, is gone, or is another than before."""
        self.version += 1
        self._changed[id] = self.version
        self._changed.move_to_end(id)
        if len(self._changed) > self._remembered:
            _, self._floor = self._changed.popitem(last=False)

    def since(self, version: int) -> list[str] | None:
        """The ids of what has changed after this version, the last one first; None when that is not known any more."""
        if not max(1, self._floor) <= version <= self.version:
            return None
        found = []
        for id, number in reversed(self._changed.items()):
            if number <= version:
                break
            found.append(id)
        return found
