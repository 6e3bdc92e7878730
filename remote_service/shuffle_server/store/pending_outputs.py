"""Committed outputs whose blocks are small for their disk, until there are enough of them to be compacted together.

They wait for each other while they are in the page cache, by shuffle and data directory: until a group is full; until
the shuffle is read, or nothing was added for a while; or until more wait than the page cache is likely to keep.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.directory import DataDirectory

LEAST_MERGED = 8  # in a compacted file
READ_SECONDS = 1.0  # without another commit, after which a shuffle that is read is compacted
QUIET_SECONDS = 10.0  # without another commit, after which one is compacted that is not read yet


@dataclass(slots=True)
class _Group:
    """Of one shuffle in one directory."""

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

    def add(self, shuffle: ShuffleId, home: DataDirectory, output: MapAttempt, size: int, *, fresh: bool) -> None:
        """An output was committed; not `fresh`: by a process before this one."""
        with self._lock:
            group = self._groups.setdefault(shuffle, {}).setdefault(home, _Group())
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

    def take(self, most: int, cache: int) -> tuple[ShuffleId, list[MapAttempt]] | None:
        """Outputs to be compacted now, about `most` bytes of them, of one directory; None when all have to wait.

        :param cache: bytes that are likely to stay in the page cache.
        """
        now = time.monotonic()
        with self._lock:
            found = max(
                ((_urgency(group, now, most), shuffle, home) for shuffle, home, group in self._all()),
                key=lambda item: item[0],
                default=None,
            )
            if found is None or not found[0] or (found[0] < 1 and self.bytes <= cache):
                return None
            return found[1], self._take(found[1], found[2], most)

    def _all(self) -> Iterable[tuple[ShuffleId, DataDirectory, _Group]]:
        return ((shuffle, home, group) for shuffle, groups in self._groups.items() for home, group in groups.items())

    def _take(self, shuffle: ShuffleId, home: DataDirectory, most: int) -> list[MapAttempt]:
        group = self._groups[shuffle][home]
        taken, size = 0, 0
        while taken < len(group.outputs) and (size < most or taken < LEAST_MERGED):
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

    def forget(self, shuffles: Iterable[ShuffleId]) -> None:
        """They are over, or not to be compacted."""
        with self._lock:
            for shuffle in shuffles:
                for home in list(self._groups.get(shuffle, {})):
                    self._drop(shuffle, home)

    def close(self) -> None:
        """Forget all of them."""
        self.forget(list(self._groups))


def _urgency(group: _Group, now: float, most: int) -> float:
    """From 1 on it is time, below it is not; 0: it cannot be."""
    if len(group.outputs) < LEAST_MERGED:
        return 0.0
    age = now - group.since
    if group.bytes >= most or (group.read and age >= READ_SECONDS) or (group.fresh and age >= QUIET_SECONDS):
        return 1.0
    return group.bytes / (most + 1) if group.fresh else 0.0
