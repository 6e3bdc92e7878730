"""The in-flight logs of one plugin, below its `log_dir`.

The caller of none of these waits for the disk: logs are ended, and deleted, by one thread, the caretaker, that may hang
with it; another one looks whether the disk does. So a disk that hangs costs the checkpoints of the writers that log
there, and holds up neither their streams nor the registry.
"""

from __future__ import annotations

import logging
import threading
import uuid
import weakref
from contextlib import suppress
from functools import partial
from pathlib import Path

from shuffle_api.caretaker import Caretaker
from shuffle_api.clock import LOOK_SHARE, LOOKS_PER_TIMEOUT, Silence
from shuffle_api.errors import StorageFailed
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.periodic import CLOSE_SECONDS, PeriodicTask, aside
from shuffle_api.streaming import Position
from shuffle_plugins.pipelined.in_flight_log import (
    DiskInFlightLog,
    DiskWatch,
    InFlightLog,
    LogPlace,
    NoInFlightLog,
    delete_directory,
)
from shuffle_plugins.pipelined.log_files import Base, RecoveredLog
from shuffle_plugins.pipelined.options import PipelinedOptions

log = logging.getLogger(__name__)

HANG_SHARE = 0.5
"""Of option `timeout`: a call to the disk hangs after so long, so that a write that waits for it goes on in time."""


class InFlightLogs:
    """Opens, ends and deletes them. Thread-safe; close it."""

    def __init__(self, options: PipelinedOptions) -> None:
        self._root, self._most, self._timeout = options.log_dir, options.log_disk_bytes, options.timeout
        self._limit = HANG_SHARE * options.timeout
        self._removals = DiskWatch(self._limit)
        self._caretaker = Caretaker(f"the in-flight logs in {options.log_dir}", self._removals.call)
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[DiskInFlightLog] = weakref.WeakSet()
        self._watch = PeriodicTask("pipelined-log-watch", self._look, self._limit / LOOKS_PER_TIMEOUT)
        self._warned = False

    def open(
        self, shuffle: ShuffleId, attempt: MapAttempt, parent: str, begin: Position, *, keep: bool = True
    ) -> InFlightLog:
        """The log of one attempt: in memory only without `log_dir`, or if nothing is to be kept.

        :param parent: the path of the log that it goes on from, at `begin`.
        :raises StorageFailed: that one cannot be read, or its disk hangs.
        """
        if not self._root or not keep:
            return NoInFlightLog(begin)
        self._start()
        recovered = RecoveredLog(begin, self._caretaker.later)
        if parent:
            self._recover(recovered, parent)
        directory = self._directory(shuffle) / f"{attempt.map}-{attempt.attempt}-{uuid.uuid4().hex[:8]}"
        place = LogPlace(directory, self._most, Base(parent, begin), self._caretaker.later)
        made = DiskInFlightLog(place, recovered, DiskWatch(self._limit))
        with self._lock:
            self._open.add(made)
        return made

    def delete(self, shuffle: ShuffleId) -> None:
        """A shuffle has ended: nobody will go on from its logs, those of tasks that have left included."""
        if self._root:
            self._start()
            self._caretaker.later(partial(delete_directory, self._directory(shuffle)))

    def close(self) -> None:
        """Wait until what was ended has ended, and is deleted; for option `timeout`, and CLOSE_SECONDS, at most.

        What hangs then is left to its thread: it is done when the disk goes on, if the process still runs. Idempotent.
        """
        within = min(self._timeout, CLOSE_SECONDS)
        self._watch.close(within)
        for each in self._all():
            self._caretaker.later(each.release)
        if not self._caretaker.stop(within):
            log.warning("%s", self._hung(within))

    def _start(self) -> None:
        self._caretaker.start()
        self._watch.start()

    def _all(self) -> list[DiskInFlightLog]:
        with self._lock:
            return list(self._open)

    def _directory(self, shuffle: ShuffleId) -> Path:
        return Path(self._root).absolute() / shuffle.app / f"{shuffle.shuffle}.{shuffle.generation}"

    def _look(self) -> None:
        for each in self._all():
            each.check()
        seconds = self._removals.hung()
        if seconds and not self._warned:
            log.warning("%s", self._hung(seconds))
        self._warned = seconds > 0.0

    def _hung(self, seconds: float) -> StorageFailed:
        return StorageFailed(
            f"in-flight logs below {self._root} have not been closed and removed within {seconds:.1f} s",
            remedy="check this disk: they are removed when it goes on while this process runs; else delete the"
            " directories of applications that have ended",
        )

    def _recover(self, recovered: RecoveredLog, parent: str) -> None:
        """Read the log `parent` for as long as its disk does not hang."""

        def read() -> None:
            try:
                recovered.read(parent)
            except OSError as error:
                raise StorageFailed(f"the in-flight log in {parent} cannot be read: {error.strerror}") from error

        done, silence = aside("pipelined-log-recovery", read), Silence(LOOK_SHARE * self._limit)
        while True:
            with suppress(TimeoutError):
                return done.result(self._limit / LOOKS_PER_TIMEOUT)
            if silence.look(recovered.progress) >= self._limit:
                raise StorageFailed(
                    f"the in-flight log in {parent} is not read: nothing has come of it for {self._limit:g} s",
                    remedy="check this disk; restore producers and consumers from a checkpoint that does not need it",
                )
