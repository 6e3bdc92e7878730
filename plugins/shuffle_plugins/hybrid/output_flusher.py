"""One task per plugin that does what is due: cuts subpartitions that wait too long, flushes what live readers wait for.

What fails for one writer fails that writer, with its reason, and no other.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from weakref import ReferenceType, ref

from shuffle_api.errors import ShuffleError
from shuffle_api.periodic import PeriodicTask, guarded
from shuffle_plugins.hybrid.result_partition import HybridResultPartition
from shuffle_plugins.hybrid.writer import HybridWriter

_LEAST = 0.001  # seconds between looks
_LONG = 3600.0  # while there is nothing to look after; what is added wakes the task


class _Flushed(NamedTuple):
    result_partition: HybridResultPartition
    writer: ReferenceType[HybridWriter]
    leave: Callable[[], None]


class HybridOutputFlusher:
    """Sleeps while there is nothing to look after. Close it.

    :param pause: seconds between looks.
    """

    def __init__(self, pause: float) -> None:
        self._lock = threading.Lock()
        self._entries: list[_Flushed] = []
        self._task = PeriodicTask("hybrid-flusher", self._look, max(_LEAST, pause))

    def add(self, result_partition: HybridResultPartition, writer: HybridWriter, leave: Callable[[], None]) -> None:
        """Look after the subpartitions of `writer` until they are over, then call `leave`."""
        with self._lock:
            self._entries.append(_Flushed(result_partition, ref(writer), leave))
        self._task.start()
        self._task.wake()

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._task.close()

    def _look(self) -> float | None:
        with self._lock:
            entry = list(self._entries)
        now = time.monotonic()
        for each in entry:
            name = f"the flush of {each.result_partition.attempt} of {each.result_partition.spec.id}"
            guarded(name, partial(_look, each, now), partial(_fail, each))
        over = [each for each in entry if each.result_partition.over]
        with self._lock:
            self._entries = [each for each in self._entries if each not in over]
        for each in over:
            each.leave()
        return None if len(entry) > len(over) else _LONG


def _look(entry: _Flushed, now: float) -> None:
    entry.result_partition.spill_late(now)
    writer = entry.writer()
    if writer is not None:
        writer.flush_late(now)


def _fail(entry: _Flushed, error: ShuffleError) -> None:
    """The writer raises it with its next call. Its subpartitions carry no gap: what was not flushed was not offered."""
    writer = entry.writer()
    if writer is not None:
        writer.fail(error)
