"""Makes snapshots while the registry works, and drops the log that they make superfluous.

The state is copied and the log switched to a new file in one moment, under the registry's lock; all else happens
beside the work. The snapshot before the newest is kept with the log after it, so that a newest one that turns out to be
damaged loses nothing. Whatever this is interrupted at, what is on the disk leads to the same state (`recovery`).
"""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from shuffle_api.errors import ShuffleError, ShuttingDown, StorageFailed
from shuffle_api.periodic import PeriodicTask
from shuffle_api.registry.state import Registry
from shuffle_server.master.files import FlatDirectory
from shuffle_server.master.log import Log, Place
from shuffle_server.master.recovery import Recovered, file_lsns
from shuffle_server.master.snapshots import SnapshotInfo, snapshot_name, write_snapshot
from shuffle_transport.frames import SNAPSHOT, FileHeader

log = logging.getLogger(__name__)

EVERY_OPERATIONS = 200_000
"""Operations after which a snapshot is made; after as many as the last one held, if these are more."""

EVERY_SECONDS = 600.0
"""After this time it takes a tenth of them."""

CLOSE_SECONDS, RETRY_SECONDS = 30.0, 10.0


class Materialized(Protocol):
    """What snapshots are made of."""

    def copy(self) -> tuple[Registry, Place | None]:
        """A copy of the state, and the place in the log at which it was taken and a new file begins."""

    def deduplicate(self) -> None:
        """A snapshot was made: what has come to rest since the one before need not be in memory twice."""


class Materializer:
    """A thread that makes snapshots of `state` from its start on, until `close`."""

    def __init__(
        self,
        directory: FlatDirectory,
        log: Log,
        recovered: Recovered,
        state: Materialized,
        every: int = EVERY_OPERATIONS,
    ) -> None:
        self._directory, self._log, self._state, self._every = directory, log, state, every
        self._epoch = recovered.epoch
        self._since, self._held = recovered.replayed, 0  # operations since the last snapshot, and those in it
        self._one = threading.Lock()
        self._due = False
        self._task = PeriodicTask("snapshots", self._run, EVERY_SECONDS, retry=RETRY_SECONDS)
        self.note(0)
        self._task.start()

    def note(self, count: int) -> None:
        """So many operations have been appended; under the registry's lock."""
        self._since += count
        if self._since >= max(self._every, self._held):
            self._due = True
            self._task.wake()

    def materialize(self) -> SnapshotInfo:
        """Make a snapshot now and drop what it makes superfluous.

        :raises StorageFailed: the disk is full or failing; all is as it was before.
        :raises ShuttingDown: the registry is being closed.
        """
        with self._one:
            self._since = 0
            self._due = False
            registry, place = self._state.copy()
            lsn = self._log.wait(place)
            if lsn is None:
                raise StorageFailed(
                    f"no new log could be begun in {self._directory.describe('.')}", remedy="free space on this disk"
                )
            header = FileHeader(SNAPSHOT, self._epoch, lsn)
            stop = self._task.closing
            info = write_snapshot(self._directory, snapshot_name(lsn), header, registry.records(), stop)
            self._held = info.operations
            try:
                self._drop()
            except OSError as error:
                log.warning("old logs in %s are not dropped: %s", self._directory.describe("."), error)
            self._state.deduplicate()
        return info

    def close(self) -> None:
        """End the thread; a snapshot that is being made is given up."""
        self._task.close(CLOSE_SECONDS)

    def _drop(self) -> None:
        snapshots = file_lsns(self._directory, "snapshot")
        newest = sorted(snapshots)[-2:]
        before = newest[0] if len(newest) == 2 else 0
        for lsn, name in snapshots.items():
            if lsn < before:
                self._directory.remove(name)
        for lsn, name in file_lsns(self._directory, "log").items():
            if lsn <= before:
                self._directory.remove(name)
        self._directory.sync()

    def _run(self) -> None:
        if not self._due and self._since < max(1, self._held // 10):
            return
        try:
            info = self.materialize()
        except ShuttingDown:
            return
        except ShuffleError as error:
            log.warning("no snapshot of the registry was made: %s", error)
        else:
            log.info("snapshot of the registry after operation %d: %d operations", info.lsn, info.operations)
