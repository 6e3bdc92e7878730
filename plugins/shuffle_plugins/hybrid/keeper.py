"""One task per plugin that does what is due: cuts lanes that wait too long, flushes what live readers wait for.

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
from shuffle_plugins.hybrid.lanes import Lanes
from shuffle_plugins.hybrid.writer import HybridWriter

_LEAST = 0.001  # seconds between looks
_LONG = 3600.0  # while there is nothing to look after; what is added wakes the task


class _Kept(NamedTuple):
    subpartitions: Lanes
    writer: ReferenceType[HybridWriter]
    leave: Callable[[], None]


class Keeper:
    """Sleeps while there is nothing to look after. Close it.

    :param pause: seconds between looks.
    """

    def __init__(self, pause: float) -> None:
        self._lock = threading.Lock()
        self._kept: list[_Kept] = []
        self._task = PeriodicTask("hybrid-keeper", self._look, max(_LEAST, pause))

    def add(self, subpartitions: Lanes, writer: HybridWriter, leave: Callable[[], None]) -> None:
        """Look after the lanes of `writer` until they are over, then call `leave`."""
        with self._lock:
            self._kept.append(_Kept(subpartitions, ref(writer), leave))
        self._task.start()
        self._task.wake()

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._task.close()

    def _look(self) -> float | None:
        with self._lock:
            kept = list(self._kept)
        now = time.monotonic()
        for each in kept:
            name = f"the flush of {each.subpartitions.attempt} of {each.subpartitions.spec.id}"
            guarded(name, partial(_look, each, now), partial(_fail, each))
        over = [each for each in kept if each.subpartitions.over]
        with self._lock:
            self._kept = [each for each in self._kept if each not in over]
        for each in over:
            each.leave()
        return None if len(kept) > len(over) else _LONG


def _look(kept: _Kept, now: float) -> None:
    kept.subpartitions.cut_late(now)
    writer = kept.writer()
    if writer is not None:
        writer.flush_late(now)


def _fail(kept: _Kept, error: ShuffleError) -> None:
    """The writer raises it with its next call. Its lanes carry no gap: what was not flushed was not offered."""
    writer = kept.writer()
    if writer is not None:
        writer.fail(error)
