"""One thread per plugin that does what is due: flushes records that have waited for their block, ends alignments.

It sleeps while no writer is open, and does not wake more often than it has to.
"""

from __future__ import annotations

import threading
import time
from weakref import WeakKeyDictionary

from shuffle_plugins.pipelined.writer import PipelinedWriter

_LEAST = 0.0005  # seconds between looks


class Ticker:
    """
    :param flush_timeout: seconds that a record may wait; 0: writers flush themselves.
    """

    def __init__(self, flush_timeout: float) -> None:
        self._flush_timeout = flush_timeout
        self._changed = threading.Condition()
        self._writers: WeakKeyDictionary[PipelinedWriter, float | None] = WeakKeyDictionary()
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(self, writer: PipelinedWriter, alignment_timeout: float | None) -> None:
        """Look after a writer until it is closed.

        :param alignment_timeout: seconds after which its barriers overtake; None: they do not.
        """
        with self._changed:
            if self._closed:
                return
            self._writers[writer] = alignment_timeout
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pipelined-ticker", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                writers = [(writer, timeout) for writer, timeout in self._writers.items() if _open(writer, timeout)]
            now = time.monotonic()
            pause = min((self._look(writer, timeout, now) for writer, timeout in writers), default=None)
            known = len(writers)
            del writers  # one that nobody else has may go
            with self._changed:
                if not self._closed and (known or all(writer.closed for writer in self._writers)):
                    self._changed.wait(pause)

    def _look(self, writer: PipelinedWriter, alignment_timeout: float | None, now: float) -> float:
        """Do what is due; seconds until it is worth to look again."""
        pause = max(self._flush_timeout, _LEAST) if self._flush_timeout else 60.0
        since = writer.dirty_since
        if self._flush_timeout and since is not None:
            left = since + self._flush_timeout - now
            if left <= 0:
                writer.flush_late()
            else:
                pause = max(left, _LEAST)
        if alignment_timeout is not None:
            pause = min(pause, max(alignment_timeout / 4, _LEAST))
            if (emitted := writer.barrier_waits_since) is not None and now - emitted >= alignment_timeout:
                writer.overtake_late()
        return pause


def _open(writer: PipelinedWriter, alignment_timeout: float | None) -> bool:
    """There may be something to do: a barrier may still wait when the writer has committed."""
    return not writer.closed or (alignment_timeout is not None and writer.barrier_waits_since is not None)
