"""A map output while it is being written: an append-only partial file and the table of what it holds."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from shuffle_api.clock import Silence
from shuffle_api.errors import (
    AttemptSuperseded,
    InvalidArgument,
    MapOutputLost,
    Overloaded,
    ShuffleError,
    StorageFailed,
    StorageFull,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_server.data_sync import sync_data
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.file_pool import LARGE_BYTES
from shuffle_server.store.format import Description, build_index, encode_tail
from shuffle_server.store.quota import AppQuota
from shuffle_transport.blocks import BlockBatch, add_rows

IDLE_LOOK_SECONDS = 10.0  # so much counts as idle between two looks, of which there is one every few seconds
LOCK_SECONDS = 30.0  # for which a stream waits for the one that it takes over from
SENDER_SECONDS = 15.0  # for which a sender that writes nothing is still waited for


class PartialFile:
    """The file of an attempt under its partial name: made with the first batch, or written by a client in place.

    :ivar local: a client writes it, or has.
    """

    def __init__(self, home: DataDirectory, shuffle: ShuffleId, output: MapAttempt) -> None:
        self._home, self._shuffle, self._output = home, shuffle, output
        self.path = home.paths.partial_text(shuffle, output, next(home.numbers))
        self.local = False
        self._fd = -1
        self._size = 0  # of the file as it was given: to write over it needs no room

    @property
    def is_open(self) -> bool:
        """Blocks are held in it."""
        return self._fd >= 0

    def lend(self) -> None:
        """Make it, for a client to write it."""
        os.close(self._home.open_partial(self.path, self._shuffle, self._output, LARGE_BYTES))
        self.local = True

    def write(self, data: memoryview, start: int) -> None:
        """Append at `start`, where it ends. Raises StorageFull, StorageFailed, UnknownShuffle; then it still does."""
        if self._fd < 0:
            self._fd = self._home.open_partial(self.path, self._shuffle, self._output, len(data))
            self._size = os.fstat(self._fd).st_size
        if (grows := start + len(data) - max(start, self._size)) > 0:
            self._home.check_room(grows)
        for again in (True, False):
            try:
                _write_all(self._fd, data, start)
                return
            except OSError as error:
                failure = self.failure(error)
                try:
                    os.ftruncate(self._fd, start)
                except OSError as second:
                    raise self.failure(second) from error
                self._size = min(self._size, start)
                if not again or not isinstance(failure, StorageFull) or not self._home.file_pool.drop():
                    raise failure from error

    def finish(self, size: int, *, sync: bool) -> None:
        """Cut it there: the rest is of its former contents. `sync` forces it to the disk."""
        try:
            os.ftruncate(self._fd, size)
            if sync:
                sync_data(self._fd)
        except OSError as error:
            raise self.failure(error) from error

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def lent_size(self) -> int:
        """As far as the client has written it. Raises what `write` raises."""
        try:
            return os.stat(self.path).st_size
        except OSError as error:
            raise self.failure(error) from error

    def last_write(self) -> tuple[int, int] | None:
        """Of a client: time and size, which only the file system knows."""
        if self.local:
            with suppress(OSError):
                status = os.stat(self.path)
                return status.st_mtime_ns, status.st_size
        return None

    def failure(self, error: OSError) -> ShuffleError:
        return self._home.failure(error, self._shuffle, self._output)

    def take_back(self, size: int) -> None:
        """A client has written `size` bytes. Raises InvalidArgument when it is not fit to be a map output."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno == errno.ENOENT and not os.path.isdir(os.path.dirname(self.path)):
                raise self.failure(error) from error
            # Whatever it is, the client has put it there: it says nothing about the disk.
            raise self._unusable(f"cannot be opened: {error.strerror}") from None
        wrong = _unfit(fd, size)
        if wrong:
            os.close(fd)
            raise self._unusable(wrong)
        self._fd = fd

    def _unusable(self, why: str) -> InvalidArgument:
        return InvalidArgument(
            f"the file lent to {self._output} {why}",
            remedy="write it whole, close it, then hand it over",
            shuffle=self._shuffle,
            output=self._output,
        )


class AttemptWriter:
    """One attempt's blocks, appended by one stream at a time.

    A stream that takes over (the sender reconnected) gets a new turn; the old stream's late blocks are refused by
    its turn, so no block is held twice. The caller serializes nothing: `lock` does.
    """

    def __init__(
        self,
        home: DataDirectory,
        shuffle: ShuffleId,
        output: MapAttempt,
        partitions: int,
        codec: str,
        quota: AppQuota,
    ) -> None:
        """`home`: the directory in which the file lies; it is made with the first batch. Raises QuotaExceeded."""
        quota.open_attempt(shuffle.app)
        self.home, self.shuffle, self.output, self.codec = home, shuffle, output, codec
        self._partitions, self._quota = partitions, quota
        self._file = PartialFile(home, shuffle, output)
        self._lock = threading.Lock()
        self._tables: list[np.ndarray] = []
        self._fencing_token = 0
        self._copying = False
        self._open = True
        self.totals = Totals()
        self._touched = time.monotonic()
        self._unwritten = Silence(IDLE_LOOK_SECONDS)
        home.incoming.begun()

    def new_fencing_token(self, *, copy: bool = False) -> int:
        """The number under which this stream may append from now on; earlier numbers are void.

        :param copy: another worker pushes it, which holds it already.
        :raises Overloaded: such a one may not take the place of the sender, which needs an answer.
        """
        with self._alone():
            sender = self._fencing_token and not self._copying
            if copy and sender and time.monotonic() - self._touched < SENDER_SECONDS:
                raise Overloaded(
                    f"the sender of {self.output} is pushing it here",
                    remedy="its push makes the copy; else try again later",
                    shuffle=self.shuffle,
                    output=self.output,
                )
            if not copy:
                self._touched = time.monotonic()
            self._fencing_token, self._copying = self._fencing_token + 1, copy
            return self._fencing_token

    def append(self, fencing_token: int, batch: BlockBatch) -> Totals:
        """Append a batch and return what is held now.

        Raises QuotaExceeded, StorageFull or StorageFailed (then the file is as it was before), UnknownShuffle
        (unregistered meanwhile), AttemptSuperseded when another stream took over.
        """
        with self._alone(), self.home.calls.request():
            self._check(fencing_token)
            self._quota.take(self.shuffle.app, batch.payload.nbytes)
            try:
                self._file.write(batch.payload, self.totals.bytes)
            except ShuffleError:
                self._quota.give(self.shuffle.app, batch.payload.nbytes)
                raise
            self._tables.append(batch.rows)
            self.totals = add_rows(self.totals, batch.rows)
            self._touched = time.monotonic()
            return self.totals

    def idle(self) -> float:
        """Seconds for which nothing was written, between looks. Of a local file only its file system knows."""
        return self._unwritten.look((self._touched, self._file.last_write()))

    def create_file(self, size: int = 0) -> Path:
        """A file that another process writes this output to, about `size` bytes of it; `finalize` takes it back.

        Raises StorageFull, StorageFailed, QuotaExceeded, UnknownShuffle, AttemptSuperseded; InvalidArgument when a
        stream has begun to write it: that one's file would be changed below it.
        """
        with self._alone(), self.home.calls.request():
            self._check(self._fencing_token)
            if self._file.is_open or self._fencing_token:
                raise InvalidArgument(
                    f"a stream writes {self.output}",
                    remedy="push it, or hand over another attempt",
                    shuffle=self.shuffle,
                    output=self.output,
                )
            self._check_room(max(size, LARGE_BYTES))
            self._file.lend()
            return Path(self._file.path)

    def extend_file(self, size: int) -> Path:
        """See to it that there is room for `size` bytes in the local file, as far as is known now. Raises as
        `create_file`; MapOutputLost when no file was created.
        """
        with self._alone(), self.home.calls.request():
            self._check(self._fencing_token)
            if not self._file.local or self._file.is_open:
                raise self._not_local()
            self._check_room(size, size - self._file.lent_size())
            return Path(self._file.path)

    def _check_room(self, size: int, grows: int | None = None) -> None:
        """Who writes a local file asks before it writes, so that quota and floor hold before the commit as well."""
        self._quota.take(self.shuffle.app, size)  # what was lent before does not count yet
        self._quota.give(self.shuffle.app, size)
        self.home.make_room(size if grows is None else grows)

    def _not_local(self) -> MapOutputLost:
        return MapOutputLost(
            "no file is lent to this attempt: the worker was restarted, or was told to forget it",
            remedy="write this map again as a new attempt",
            shuffle=self.shuffle,
            output=self.output,
        )

    def finalize(self, fencing_token: int, rows: np.ndarray) -> None:
        """Hold the blocks that were written to the local file, back to back from its beginning: `rows`, dtype
        BLOCK_ROW.

        The file may have been put there by a rename. Raises InvalidArgument when it is too short, still being written,
        or known by another name; QuotaExceeded; MapOutputLost when nothing was lent: this worker was restarted.
        """
        with self._alone(), self.home.calls.request():
            self._check(fencing_token)
            finalized = self._file.local and self._file.is_open
            if finalized and len(self._tables) == 1 and np.array_equal(self._tables[0], rows):
                return  # said again: the first answer got lost, or is under way
            totals = add_rows(Totals(), rows)
            if not self._file.local or self._file.is_open:
                raise self._not_local()
            self._quota.take(self.shuffle.app, totals.bytes)
            try:
                self._file.take_back(totals.bytes)
            except ShuffleError:
                self._quota.give(self.shuffle.app, totals.bytes)
                raise
            self._tables, self.totals = [rows], totals

    def seal(self, fencing_token: int, sync: bool) -> Description:
        """Write index and trailer: the file is complete, still under its partial name. `sync` forces it to the disk."""
        with self._alone(), self.home.calls.request():
            self._check(fencing_token)
            description = Description(
                self.shuffle.app,
                self.shuffle.shuffle,
                self.shuffle.generation,
                self.output.map,
                self.output.attempt,
                self._partitions,
                self.codec,
                self.totals,
            )
            tail = encode_tail(build_index(self._tables), description)
            self._file.write(memoryview(tail), self.totals.bytes)
            self._file.finish(self.totals.bytes + len(tail), sync=sync)
            return description

    def publish(self, *, sync: bool) -> None:
        """Give the sealed file the name of a committed one. Raises what `append` raises."""
        with self.home.calls.request():
            self.home.publish(self._file.path, self.shuffle, self.output, sync=sync)

    def close(self, *, held: bool = False) -> bool:
        """Close the file, leaving it where it is; False when it was closed before.

        `held`: it is published, its bytes go on counting.
        """
        with self._lock:
            if not self._open:
                return False
            self._open = False
            self._file.close()
            self.home.incoming.ended(self.totals.bytes)
            self._quota.close_attempt(self.shuffle.app)
            if not held:
                self._quota.give(self.shuffle.app, self.totals.bytes)
            return True

    def discard(self) -> None:
        """Close and delete; idempotent, and fine when the directory is gone already."""
        self.close()
        self.home.unlink(self._file.path)

    def _check(self, fencing_token: int) -> None:
        if not self._open or fencing_token != self._fencing_token:
            raise AttemptSuperseded(
                f"a newer stream writes {self.output}, or the attempt has ended",
                remedy="stop writing on this stream",
                shuffle=self.shuffle,
                output=self.output,
            )

    @property
    def path(self) -> str:
        """Where the file lies until it is published."""
        return self._file.path

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock. Raises StorageFailed when another stream's write does not return."""
        if not self._lock.acquire(timeout=LOCK_SECONDS):
            raise StorageFailed(
                f"{self.home.root}: a write of {self.output} has not returned for {LOCK_SECONDS:g} s",
                remedy="write this map again as a new attempt; check this disk",
                shuffle=self.shuffle,
                output=self.output,
            )
        try:
            yield
        finally:
            self._lock.release()


def _unfit(fd: int, size: int) -> str:
    """Why this file cannot become a map output of `size` bytes; empty when it can."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        return "is not a file that only this worker knows"
    if status.st_size < size:
        return f"has {status.st_size} bytes, {size} were stated"
    try:
        # Who writes it holds a lock of this kind (the JVM has no other); ours is gone when the file is closed.
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return "is still being written"
    return ""


def _write_all(fd: int, data: memoryview, offset: int) -> None:
    while data:
        count = os.pwrite(fd, data, offset)
        data, offset = data[count:], offset + count
