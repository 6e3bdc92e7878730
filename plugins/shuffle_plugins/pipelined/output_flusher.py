"""One task per plugin that does what is due: flushes records that have waited for their block, ends alignments.

It sleeps while no writer is open, and does not wake more often than it has to. What fails for one writer fails that
writer, with its reason, and no other.
"""

from __future__ import annotations

import threading
import time
from weakref import WeakKeyDictionary

from shuffle_api.periodic import PeriodicTask, guarded
from shuffle_plugins.pipelined.writer import PipelinedWriter

_LEAST = 0.0005  # seconds between looks
_LONG = 3600.0  # while no writer is open; a new one wakes the task


class OutputFlusher:
    """
    :param flush_timeout: seconds that a record may wait; 0: writers flush themselves.
    """

    def __init__(self, flush_timeout: float) -> None:
        self._flush_timeout = flush_timeout
        self._lock = threading.Lock()
        self._writers: WeakKeyDictionary[PipelinedWriter, float | None] = WeakKeyDictionary()
        self._task = PeriodicTask("pipelined-flusher", self._look, max(flush_timeout, _LEAST))

    def add(self, writer: PipelinedWriter, alignment_timeout: float | None) -> None:
        """Look after a writer until it is closed or has failed.

        :param alignment_timeout: seconds after which its barriers overtake; None: they do not.
        """
        with self._lock:
            self._writers[writer] = alignment_timeout
        self._task.start()
        self._task.wake()

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._task.close()

    def _look(self) -> float:
        with self._lock:
            writers = [(writer, timeout) for writer, timeout in self._writers.items() if _open(writer, timeout)]
        now = time.monotonic()
        return min((self._look_at(writer, timeout, now) for writer, timeout in writers), default=_LONG)

    def _look_at(self, writer: PipelinedWriter, alignment_timeout: float | None, now: float) -> float:
        """Do what is due; seconds until it is worth to look again."""
        pause = max(self._flush_timeout, _LEAST) if self._flush_timeout else 60.0
        since = writer.dirty_since
        if self._flush_timeout and since is not None:
            left = since + self._flush_timeout - now
            if left <= 0:
                guarded(f"the flush of {writer.name}", writer.flush_late, writer.fail)
            else:
                pause = max(left, _LEAST)
        if alignment_timeout is not None:
            pause = min(pause, max(alignment_timeout / 4, _LEAST))
            if (emitted := writer.barrier_waits_since) is not None and now - emitted >= alignment_timeout:
                guarded(f"the alignment of {writer.name}", writer.overtake_late, writer.fail)
        return pause


def _open(writer: PipelinedWriter, alignment_timeout: float | None) -> bool:
    """There may be something to do: a barrier may still wait when the writer has committed."""
    return writer.usable or (alignment_timeout is not None and writer.barrier_waits_since is not None)
