"""The registry's operation log: every operation, in order, on disk before it is acknowledged.

`append` fixes the order and costs no I/O. `wait` returns when the operation is durable; one write and one sync serve
all who wait (`grouping`), as one frame.

An operation that cannot be written is refused for good. The operations behind it in the queue rest on it, so they are
refused with it, and the state that they were applied to goes back to the durable one (`State.revert`): none of them can
become durable later.

After a failed sync the file is not believed any more: the kernel may have dropped the pages and call the next sync a
success ("fsyncgate", PostgreSQL 2018). The log begins again: a snapshot of the durable state and a new log behind it,
which a recovery prefers to the old file. Until that succeeds, with the next operation or a later one, nobody can say
whether the operations of that sync are on the disk. Only these, and what comes meanwhile, fail by `DeadlineExceeded`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from shuffle_api.errors import DeadlineExceeded, ShuffleError, ShuttingDown, StorageFailed
from shuffle_api.registry.operations import Operation
from shuffle_server.master.files import AppendFile, FlatDirectory
from shuffle_server.master.grouping import Batcher, Ticket
from shuffle_server.master.snapshots import NEW, snapshot_name, write_snapshot
from shuffle_transport.frames import LOG, SNAPSHOT, FileHeader, encode_frame

log = logging.getLogger(__name__)

WAIT_SECONDS = 30.0
FRAME_RECORDS = 10_000  # most items of the queue in one frame


def log_name(lsn: int) -> str:
    """The log whose first operation is number `lsn`."""
    return f"log-{lsn:016x}"


def create_log(directory: FlatDirectory, header: FileHeader) -> tuple[AppendFile, int]:
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


class State(Protocol):
    """What the operations of a log make up. Called by one thread at a time, in the order of the operations."""

    def advance(self, operations: Sequence[Operation]) -> None:
        """These are durable."""
        ...

    def revert(self) -> None:
        """What was appended and is not durable is refused for good. Called under `Log.order`."""
        ...

    def durable(self) -> Iterable[bytes]:
        """The durable state as encoded operations, for a snapshot."""
        ...


class NoState:
    """For a log that is only written."""

    def advance(self, operations: Sequence[Operation]) -> None: ...
    def revert(self) -> None: ...
    def durable(self) -> Iterable[bytes]:
        return ()


@dataclass(frozen=True, slots=True)
class _Records:
    """An item of the queue: operations that become durable together or not at all."""

    term: int
    data: bytes = b""
    operations: Sequence[Operation] = ()


@dataclass(frozen=True, slots=True)
class _Switch:
    """An item of the queue: go on in a new file from here."""

    term: int


Queued = _Records | _Switch
Place = Ticket[Queued, int | None | ShuffleError]


class Log(Protocol):
    """What the master asks of a log. `append`, `switch` and `barrier` are called under `order`, in which the
    operations are applied, too."""

    order: threading.Lock

    def append(self, data: bytes, operations: Sequence[Operation]) -> Place | None:
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

        :raises StorageFailed: the disk is full or failing; the operation has not happened, and will not.
        :raises ShuttingDown: the log is closed; the same.
        :raises DeadlineExceeded: the disk hangs, or has failed so that it is not known whether the operation is on it.
        """
        ...

    @property
    def failing(self) -> bool:
        """Whether the last write failed."""
        ...

    @property
    def given_up(self) -> ShuffleError | None:
        """Why this log takes nothing now; None while it does."""
        ...

    def close(self) -> None:
        """Write what is queued and close; call once. Raises what `wait` raises."""
        ...


class NoLog:
    """For a registry that lives in memory only: everything is as durable as it will ever be."""

    failing = False
    given_up = None

    def __init__(self) -> None:
        self.order = threading.Lock()

    def append(self, data: bytes, operations: Sequence[Operation]) -> None: ...
    def switch(self) -> None: ...
    def barrier(self) -> None: ...
    def wait(self, place: Place | None) -> None: ...
    def close(self) -> None: ...


class OperationLog:
    """A Log in files. Thread-safe.

    :param lsn: number of the last operation before those of this log.
    :param sync: make operations survive the machine, not just the process.
    :param timeout: seconds for which `wait` waits.
    :raises StorageFailed: its first file cannot be made.
    """

    def __init__(
        self,
        directory: FlatDirectory,
        lsn: int,
        epoch: int,
        *,
        sync: bool,
        state: State | None = None,
        timeout: float = WAIT_SECONDS,
    ) -> None:
        self._directory, self._lsn, self._epoch, self._sync = directory, lsn, epoch, sync
        self._state: State = state or NoState()
        self._batcher: Batcher[Queued, int | ShuffleError | None] = Batcher(
            self._work, timeout=timeout, what=f"writing the log in {directory.describe('.')}"
        )
        self.order = threading.Lock()
        self._first = lsn + 1  # number of the first operation of the file in use
        self._term = 0  # rises with each refusal: operations appended before it are not written
        self._last: Place | None = None
        self._refused: ShuffleError | None = None  # why the items of earlier terms are not written
        self._doubt: DeadlineExceeded | None = None
        self._closed: ShuttingDown | None = None
        self.failing = False
        try:
            self._file, self._size = create_log(directory, FileHeader(LOG, epoch, lsn + 1))
        except OSError as error:
            raise self._error(error) from error

    @property
    def given_up(self) -> ShuffleError | None:
        return self._closed or self._doubt

    def append(self, data: bytes, operations: Sequence[Operation]) -> Place:
        return self._add(_Records(self._term, data, operations))

    def switch(self) -> Place:
        return self._add(_Switch(self._term))

    def barrier(self) -> Place | None:
        last = self._last
        return None if last is None or last.group.done else last

    def wait(self, place: Place | None) -> int | None:
        result = None if place is None else self._batcher.wait(place)
        if isinstance(result, ShuffleError):
            raise result
        return result

    def close(self) -> None:
        try:
            with self.order:
                last = self.barrier()
            self.wait(last)
        finally:
            self._closed = ShuttingDown("the registry is closed")
            self._file.close()

    def _add(self, item: Queued) -> Place:
        self._last = self._batcher.add(item)
        return self._last

    # ------------------------------------------------------------------ by one thread at a time

    def _work(self, items: list[Queued]) -> list[int | ShuffleError | None]:
        results: list[int | ShuffleError | None] = []
        while len(results) < len(items):
            item = items[len(results)]
            if self._closed is not None:
                results.append(self._closed)
            elif item.term < self._term:
                assert self._refused is not None
                results.append(self._refused)
            elif isinstance(item, _Switch):
                results.append(self._switch())
            else:
                results += self._record(_records(items[len(results) :]))
        return results

    def _record(self, records: list[_Records]) -> Sequence[int | ShuffleError | None]:
        try:
            if self._doubt is not None:
                self._begin_again()
            self._write(b"".join(each.data for each in records), sum(len(each.operations) for each in records))
        except ShuffleError as error:
            self.failing = True
            with self.order:
                self._term, self._refused, self._last = self._term + 1, error, None
                self._state.revert()
            return [error] * len(records)
        self.failing = False
        for each in records:
            self._state.advance(each.operations)
        return [self._lsn] * len(records)

    def _write(self, payload: bytes, count: int) -> None:
        if not count:
            return
        frame = encode_frame(self._lsn + 1, payload)
        try:
            self._file.write(frame)
        except OSError as error:
            self._undo(error)
            raise self._error(error) from error
        try:
            if self._sync:
                self._file.sync()
        except OSError as error:
            self._doubt_file(error)
            raise self._error(error) from error
        self._size += len(frame)
        self._lsn += count

    def _undo(self, error: OSError) -> None:
        """Leave no half frame behind."""
        try:
            self._file.truncate(self._size)
        except OSError:
            self._doubt_file(error)

    def _doubt_file(self, error: OSError) -> None:
        """The end of the file may be on the disk or not: begin again. Raises DeadlineExceeded when that fails, too."""
        self._doubt = DeadlineExceeded(
            f"the log in {self._directory.describe('.')} is not trusted: {error.strerror};"
            " whether its last operations are on the disk shows when it can be written, or with the next start",
            remedy="see to the master's disk; the log is begun again with the next operation",
        )
        self._begin_again()

    def _begin_again(self) -> None:
        """A snapshot of what is durable, and a new log behind it. Raises DeadlineExceeded, and then nothing is lost."""
        assert self._doubt is not None
        header = FileHeader(SNAPSHOT, self._epoch, self._lsn)
        try:
            with suppress(OSError):  # for a recovery that has to do without the snapshot
                self._file.truncate(self._size)
            write_snapshot(self._directory, snapshot_name(self._lsn), header, self._state.durable(), threading.Event())
            file, size = create_log(self._directory, FileHeader(LOG, self._epoch, self._lsn + 1))
        except (StorageFailed, OSError):
            raise self._doubt from None
        log.warning("the log in %s has begun again after operation %d", self._directory.describe("."), self._lsn)
        self._replace_file(file, size)
        self._doubt = None

    def _switch(self) -> int | None:
        if self._first == self._lsn + 1:
            return self._lsn  # the file in use is as good as new
        try:
            file, size = create_log(self._directory, FileHeader(LOG, self._epoch, self._lsn + 1))
        except OSError as error:
            log.warning("%s; the log goes on in the file it has", self._error(error))
            self._withdraw(error)
            return None
        self._replace_file(file, size)
        return self._lsn

    def _withdraw(self, error: OSError) -> None:
        """See that there is no file for the next operations but the one in use: a recovery would go on in it."""
        name = log_name(self._lsn + 1)
        try:
            if name in self._directory.names():
                self._directory.remove(name)
                self._directory.sync()
        except OSError:
            with suppress(DeadlineExceeded):  # then the next operation begins again
                self._doubt_file(error)

    def _replace_file(self, file: AppendFile, size: int) -> None:
        former, self._file, self._size, self._first = self._file, file, size, self._lsn + 1
        with suppress(OSError):  # what it could not write was refused
            former.close()

    def _error(self, error: OSError) -> StorageFailed:
        where = self._directory.describe(log_name(self._lsn + 1))
        return StorageFailed(f"{where}: {error.strerror}", remedy="free space on the master's disk, or see to it")


def _records(items: list[Queued]) -> list[_Records]:
    """Those at the front, of one term, that go into one frame."""
    found: list[_Records] = []
    for item in items[:FRAME_RECORDS]:
        if not isinstance(item, _Records) or item.term != items[0].term:
            break
        found.append(item)
    return found
