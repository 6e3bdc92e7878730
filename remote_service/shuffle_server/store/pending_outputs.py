"""Committed outputs whose blocks are small for their disk, until there are enough of them to be compacted together.

They wait for each other by shuffle and data directory, mostly while they are in the page cache: until their group is
full, the shuffle is read, or nothing was added for a while. A group is full when what it has of a partition, on
average, is read in twice the time of a seek: smaller ones would cost more seeks than to read a larger one back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.format import Description

LEAST_OUTPUTS = 2  # in a group
SEEKS = 2  # what a full group has of a partition takes as long to read
READ_SECONDS = 1.0  # without another commit, after which a shuffle that is read is compacted
QUIET_SECONDS = 10.0  # without another commit, after which one is compacted that is not read yet


@dataclass(slots=True)
class _Group:
    """Of one shuffle in one directory."""

    enough: int  # bytes with which it is full
    outputs: list[tuple[MapAttempt, int]] = field(default_factory=list)
    bytes: int = 0
    since: float = 0.0  # the last one was added
    read: bool = False
    fresh: bool = True  # written by this process, so they are likely in the page cache


class PendingOutputs:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._groups: dict[ShuffleId, dict[DataDirectory, _Group]] = {}
        self.bytes = 0
        """Payload of all of them."""

    def add(self, description: Description, home: DataDirectory, *, fresh: bool) -> None:
        """An output was committed; not `fresh`: by a process before this one."""
        shuffle, output, size = description.shuffle_id, description.output, description.totals.bytes
        enough = SEEKS * home.device.seek_bytes * description.partitions
        with self._lock:
            group = self._groups.setdefault(shuffle, {}).setdefault(home, _Group(enough))
            group.outputs.append((output, size))
            group.bytes += size
            group.since, group.fresh = time.monotonic(), fresh
            self.bytes += size

    def read(self, shuffle: ShuffleId) -> None:
        """Somebody reads a shuffle."""
        if shuffle in self._groups:
            with self._lock:
                for group in self._groups.get(shuffle, {}).values():
                    group.read = True

    def take(self, most: int, has_time: Callable[[DataDirectory], bool]) -> tuple[ShuffleId, list[MapAttempt]] | None:
        """Outputs to be compacted now, about `most` bytes of them at most, of one directory, which has time for that or
        is read; None when all wait."""
        now = time.monotonic()
        with self._lock:
            for shuffle, groups in self._groups.items():
                for home, group in groups.items():
                    if _due(group, now, most) and (group.read or has_time(home)):
                        return shuffle, self._take(shuffle, home, min(most, group.enough))
        return None

    def _take(self, shuffle: ShuffleId, home: DataDirectory, most: int) -> list[MapAttempt]:
        group = self._groups[shuffle][home]
        taken, size = 0, 0
        while taken < len(group.outputs) and (size < most or taken < LEAST_OUTPUTS):
            size += group.outputs[taken][1]
            taken += 1
        outputs = [output for output, _ in group.outputs[:taken]]
        del group.outputs[:taken]
        group.bytes -= size
        self.bytes -= size
        if not group.outputs:
            self._drop(shuffle, home)
        return outputs

    def _drop(self, shuffle: ShuffleId, home: DataDirectory) -> None:
        groups = self._groups[shuffle]
        self.bytes -= groups.pop(home).bytes
        if not groups:
            del self._groups[shuffle]

    def of_shuffles(self) -> dict[ShuffleId, int]:
        """Their payload by shuffle."""
        with self._lock:
            return {shuffle: sum(each.bytes for each in groups.values()) for shuffle, groups in self._groups.items()}

    def keep(self, there: Callable[[ShuffleId], bool]) -> None:
        """Forget the shuffles that are not there any more."""
        self.forget([shuffle for shuffle in list(self._groups) if not there(shuffle)])

    def forget(self, shuffles: Iterable[ShuffleId]) -> None:
        """They are over, or not to be compacted."""
        with self._lock:
            for shuffle in shuffles:
                for home in list(self._groups.get(shuffle, {})):
                    self._drop(shuffle, home)

    def close(self) -> None:
        """Forget all of them."""
        self.forget(list(self._groups))


def _due(group: _Group, now: float, most: int) -> bool:
    age = now - group.since
    return len(group.outputs) >= LEAST_OUTPUTS and (
        group.bytes >= min(most, group.enough)
        or (group.read and age >= READ_SECONDS)
        or (group.fresh and age >= QUIET_SECONDS)
    )
