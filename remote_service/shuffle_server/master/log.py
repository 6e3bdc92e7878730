"""The registry's operation log: every operation, in order, on disk before it is acknowledged.

`append` fixes the order and costs no I/O. `wait` returns when the operation is durable; whoever waits first writes and
syncs for all who wait (`grouping`), as one frame. When the disk is full what was appended stays queued, in order, and
is written before anything else once there is room. After a failed sync nothing is believed any more: the kernel may
have dropped the pages and call the next sync a success ("fsyncgate", PostgreSQL 2018), so the log stays failed until
the master is started again.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import Protocol

from shuffle_api.errors import ShuttingDown, StorageFailed
from shuffle_server.master.files import AppendFile, Directory
from shuffle_server.master.grouping import Batcher, Ticket
from shuffle_transport.frames import LOG, FileHeader, encode_frame

log = logging.getLogger(__name__)

WAIT_SECONDS = 60.0
FRAME_RECORDS = 10_000  # most items of the queue in one frame
NEW = ".new"  # what a file is called until it is whole


def log_name(lsn: int) -> str:
    """The log whose first operation is number `lsn`."""
    return f"log-{lsn:016x}"


def create_log(directory: Directory, header: FileHeader) -> tuple[AppendFile, int]:
    """A log without operations, durable and under its name, and its size. Raises OSError."""
    name = log_name(header.lsn)
    data = header.encode()
    file = directory.create(name + NEW)
    try:
        file.write(data)
        file.sync()
        directory.rename(name + NEW, name)
        directory.sync()
    except OSError:
        file.close()
        raise
    return file, len(data)


@dataclass(frozen=True, slots=True)
class _Records:
    """An item of the queue: so many operations, which become durable together or not at all."""

    data: bytes
    count: int


@dataclass(frozen=True, slots=True)
class _Switch:
    """An item of the queue: go on in a new file from here."""


_BARRIER = _Records(b"", 0)
Queued = _Records | _Switch
Place = Ticket[Queued, int | None]


class Log(Protocol):
    """What the master asks of a log. `append` and `switch` are called in the order of the operations, under a lock."""

    def append(self, data: bytes, count: int) -> Place | None:
        """Queue operations (`shuffle_api.registry.encoding`) that become durable together or not at all."""
        ...

    def switch(self) -> Place | None:
        """Have the operations from here on go to a new file. What `wait` gives for this is the lsn of the last
        operation before, None when the new file could not be made and the old one stays in use."""
        ...

    def barrier(self) -> Place | None:
        """A place to wait at until everything appended so far is durable; None when it is."""
        ...

    def wait(self, place: Place | None) -> int | None:
        """Return when everything up to `place` is durable.

        :raises StorageFailed: the disk is full or failing.
        :raises ShuttingDown: the log is closed.
        :raises DeadlineExceeded: the disk hangs.
        """
        ...

    @property
    def failing(self) -> bool:
        """Whether the last write failed, so that operations wait for room on the disk."""
        ...

    @property
    def given_up(self) -> StorageFailed | ShuttingDown | None:
        """Why this log takes nothing any more; None while it does. Only another start helps."""
        ...

    def close(self) -> None:
        """Write what is queued and close; call once. Raises what `wait` raises."""
        ...


class NoLog:
    """For a registry that lives in memory only: everything is as durable as it will ever be."""

    failing = False
    given_up = None

    def append(self, data: bytes, count: int) -> None: ...
    def switch(self) -> None: ...
    def barrier(self) -> None: ...
    def wait(self, place: Place | None) -> None: ...
    def close(self) -> None: ...


class OperationLog:
    """A Log in files. Thread-safe.

    :param lsn: number of the last operation before those of this log.
    :param sync: make operations survive the machine, not just the process.
    :raises StorageFailed: its first file cannot be made.
    """

    def __init__(self, directory: Directory, lsn: int, epoch: int, *, sync: bool) -> None:
        self._directory, self._lsn, self._epoch, self._sync = directory, lsn, epoch, sync
        self._batcher: Batcher[Queued, int | None] = Batcher(self._work, timeout=WAIT_SECONDS, what="writing the log")
        self._order = threading.Lock()
        self._last: Place | None = None
        self._backlog: list[Queued] = []  # taken from the queue and not written yet; only the group's leader touches it
        self._failed: StorageFailed | None = None
        self._final: StorageFailed | ShuttingDown | None = None
        try:
            self._file, self._size = create_log(directory, FileHeader(LOG, epoch, lsn + 1))
        except OSError as error:
            raise self._error(error) from error

    @property
    def failing(self) -> bool:
        return self._failed is not None

    @property
    def given_up(self) -> StorageFailed | ShuttingDown | None:
        return self._final

    def append(self, data: bytes, count: int) -> Place:
        return self._add(_Records(data, count))

    def switch(self) -> Place:
        return self._add(_Switch())

    def barrier(self) -> Place | None:
        with self._order:
            last = self._last
            if last is None or (last.group.done and last.group.error is None):
                return None
            if last.group.done:  # it failed, but the operations are still queued: this is another attempt
                self._last = last = self._batcher.add(_BARRIER)
            return last

    def wait(self, place: Place | None) -> int | None:
        return None if place is None else self._batcher.wait(place)

    def close(self) -> None:
        try:
            self.wait(self.barrier())
        finally:
            self._final = self._final or ShuttingDown("the registry is closed")
            self._file.close()

    def _add(self, item: Queued) -> Place:
        with self._order:
            self._last = self._batcher.add(item)
            return self._last

    def _work(self, items: list[Queued]) -> list[int | None]:
        self._backlog += items
        results: list[int | None] = []
        while self._backlog:
            if self._final is not None:
                raise self._final
            if isinstance(self._backlog[0], _Switch):
                results.append(self._switch())
                del self._backlog[0]
                continue
            records = self._records()
            try:
                self._write(b"".join(each.data for each in records), sum(each.count for each in records))
            except StorageFailed as error:
                self._failed = error
                raise
            results += [self._lsn] * len(records)
            del self._backlog[: len(records)]
        self._failed = None
        return results[-len(items) :]

    def _records(self) -> list[_Records]:
        """Those at the front of the backlog that go into one frame."""
        front = self._backlog[:FRAME_RECORDS]
        stop = next((at for at, item in enumerate(front) if isinstance(item, _Switch)), len(front))
        return [item for item in front[:stop] if isinstance(item, _Records)]

    def _write(self, payload: bytes, count: int) -> None:
        if not count:  # a barrier without company
            return
        frame = encode_frame(self._lsn + 1, payload)
        try:
            self._file.write(frame)
        except OSError as error:
            self._undo()
            raise self._error(error) from error
        try:
            if self._sync:
                self._file.sync()
        except OSError as error:
            raise self._give_up(error) from error
        self._size += len(frame)
        self._lsn += count

    def _undo(self) -> None:
        """Leave no half frame behind."""
        try:
            self._file.truncate(self._size)
        except OSError as error:
            raise self._give_up(error) from error

    def _switch(self) -> int | None:
        try:
            file, size = create_log(self._directory, FileHeader(LOG, self._epoch, self._lsn + 1))
        except OSError as error:
            log.warning("%s; the log goes on in the file it has", self._error(error))
            return None
        self._file.close()
        self._file, self._size = file, size
        return self._lsn

    def _give_up(self, error: OSError) -> StorageFailed:
        self._final = StorageFailed(
            f"the log in {self._directory.describe('.')} is not trusted any more: {error.strerror}",
            remedy="see to the master's disk, then start the master again",
        )
        return self._final

    def _error(self, error: OSError) -> StorageFailed:
        where = self._directory.describe(log_name(self._lsn + 1))
        return StorageFailed(f"{where}: {error.strerror}", remedy="free space on the master's disk")
