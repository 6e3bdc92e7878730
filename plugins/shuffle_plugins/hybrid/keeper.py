"""One thread per plugin that does what is due: cuts lanes that wait too long, flushes what live readers wait for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple
from weakref import ReferenceType, ref

from shuffle_plugins.hybrid.lanes import Lanes
from shuffle_plugins.hybrid.writer import HybridWriter

_LEAST = 0.001  # seconds between looks


class _Kept(NamedTuple):
    lanes: Lanes
    writer: ReferenceType[HybridWriter]
    leave: Callable[[], None]


class Keeper:
    """Sleeps while there is nothing to look after. Close it.

    :param pause: seconds between looks.
    """

    def __init__(self, pause: float) -> None:
        self._pause = max(_LEAST, pause)
        self._changed = threading.Condition()
        self._kept: list[_Kept] = []
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(self, lanes: Lanes, writer: HybridWriter, leave: Callable[[], None]) -> None:
        """Look after the lanes of `writer` until they are over, then call `leave`."""
        with self._changed:
            if self._closed:
                return
            self._kept.append(_Kept(lanes, ref(writer), leave))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="hybrid-keeper", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._kept)
                if self._closed:
                    return
                kept = list(self._kept)
            now = time.monotonic()
            over = [each for each in kept if _look(each, now)]
            with self._changed:
                self._kept = [each for each in self._kept if each not in over]
                if not self._closed:
                    self._changed.wait(self._pause)


def _look(kept: _Kept, now: float) -> bool:
    """Whether it is over."""
    kept.lanes.cut_late(now)
    writer = kept.writer()
    if writer is not None:
        writer.flush_late(now)
    if kept.lanes.over:
        kept.leave()
        return True
    return False
