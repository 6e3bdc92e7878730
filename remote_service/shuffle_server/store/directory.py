"""One data directory of a worker: where its files lie, how much room it has, and whether it works."""

from __future__ import annotations

import itertools
import logging
import math
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from shuffle_api.caretaker import Caretaker
from shuffle_api.errors import StorageFailed, StorageFull, UnknownShuffle
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.data_sync import sync_data
from shuffle_server.store import trash
from shuffle_server.store.calls import DiskCalls, SharedSync
from shuffle_server.store.device import MEMORY, Device
from shuffle_server.store.disk_thread import DiskThread
from shuffle_server.store.failures import BUSY, FAILING, FULL, gone, in_doubt
from shuffle_server.store.file_pool import FilePool
from shuffle_server.store.paths import StorePaths, shuffle_of
from shuffle_server.store.statistics import DiskSpace, disk_space
from shuffle_transport.files import make_private

RATE_SECONDS = 5.0  # in which two thirds of a change of a rate show: writers that wait for the disk pause for a second
LEAST_RATE_SECONDS = 0.1  # that a rate is of
PROBE_BYTES = 4096  # a block of most file systems: less may fit into a full one

log = logging.getLogger(__name__)


class SharedFile(Protocol):
    """A file that holds several outputs of a shuffle."""

    shuffle: ShuffleId
    bytes: int

    def sweep(self, held: Callable[[MapAttempt], bool]) -> None:
        """Drop the outputs that are not held any more."""


class WriteLoad:
    """The outputs that are being written to one disk. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rate, self._at, self._since = 0.0, -math.inf, -math.inf
        self.count = 0

    def begun(self) -> None:
        """One more is being written."""
        with self._lock:
            now = time.monotonic()
            if not self.count and now > self._at + RATE_SECONDS:
                self._rate, self._at, self._since = 0.0, now, now
            self.count += 1

    def ended(self, size: int) -> None:
        """One that had so many bytes is not written any more."""
        with self._lock:
            self.count -= 1
            self._rate = self._now() + size / RATE_SECONDS

    def rate(self) -> float:
        """Bytes a second, of late, or since the first one after a pause."""
        with self._lock:
            rate = self._now()
            return rate / -math.expm1(-max(LEAST_RATE_SECONDS, self._at - self._since) / RATE_SECONDS)

    def _now(self) -> float:
        now = time.monotonic()
        self._rate *= math.exp(-max(0.0, now - self._at) / RATE_SECONDS)
        self._at = now
        return self._rate


class DataDirectory:
    """Map outputs below one directory, which this process alone writes, from `begin` on. Thread-safe.

    Requests use it inside `calls.request()`; work that no request waits for is given to its `caretaker`.

    :ivar recovered: the catalog has its outputs. Until then it is out, and nothing in it is touched.
    """

    def __init__(self, root: Path, *, recycle: int = 0, floor: float = 0.0, disk: DiskThread | None = None) -> None:
        """
        :param recycle: bytes of removed outputs whose files are kept for the next ones.
        :param floor: the part of the file system, 0 to 1, that stays free.
        :param disk: its thread; None: one that is not started.
        """
        self.paths = StorePaths(root.absolute())  # clients on this host receive them
        self.disk = disk or DiskThread(root)
        self.numbers = itertools.count()  # for the names of partial files
        self.file_pool = FilePool(self.paths.file_pool, recycle, self.unlink)
        self.device = MEMORY
        self.recovered = False
        self.compacted = WeakSet[SharedFile]()
        """The compacted files that lie here."""
        self._out = ""
        self._undeleted: set[str] = set()  # files; of a directory it is known only that there is one
        self._unswept = False
        self._floor = floor
        self._lock = threading.Lock()
        self.incoming = WriteLoad()
        self._synced: set[ShuffleId] = set()  # shuffles whose directory is on the disk
        self._shared_sync = SharedSync(sync_directory)
        self._space = DiskSpace(str(self.root), 0, 0, 0)

    def begin(self, device: Device = MEMORY) -> None:
        """Make what is missing, and see what room there is.

        :param device: the disk below it.
        """
        self._out, self.device = "", device
        self.file_pool.begin()
        try:
            make_private(self.paths.apps)
        except OSError as error:
            self._take_out(error)
        try:
            make_private(self.paths.trash)  # now: a full disk has no room for it
        except OSError as error:
            self._notice(error)
        self._space = disk_space(self.root)

    @property
    def calls(self) -> DiskCalls:
        return self.disk.calls

    @property
    def caretaker(self) -> Caretaker:
        return self.disk.caretaker

    @property
    def out(self) -> str:
        """Why nothing new is put here, empty while it is in use. Committed outputs are read here unless it hangs."""
        return self.failed or ("" if self.recovered else "what lies there is not known yet")

    @property
    def failed(self) -> str:
        """As `out`, empty also while it is being recovered."""
        return self._out or self.calls.hang

    @property
    def root(self) -> Path:
        return self.paths.root

    # ------------------------------------------------------------------ room

    def space(self) -> DiskSpace:
        """As it was at the last look: this asks no disk."""
        return replace(self._space, out=self.out, seek_bytes=self.device.seek_bytes, device=self.device.kind)

    def measure(self) -> DiskSpace:
        """The space there is now. Raises StorageFailed: the directory hangs."""
        with self.calls.request():
            self._space = disk_space(self.root)
        return self._space

    def refresh(self) -> None:
        """Measure, unless a call here would have to wait: then the last figure has to do."""
        if not self.out and not self.calls.slow:
            self.measure()

    def room(self) -> int:
        """Bytes that may still be written here: what is free above the floor, and what pooled files give back. As
        it was at the last look."""
        if self.out:
            return 0
        space = self._space
        return max(0, space.free - self._kept_free(space) + self.file_pool.bytes)

    def preference(self) -> float:
        """The larger, the sooner a new output is put here: its room, shared with those that are being written."""
        return self.room() / (1 + self.incoming.count)

    def check_room(self, needed: int) -> None:
        """Raises StorageFull when `needed` bytes more would go below the floor."""
        if self._floor:  # else the file system says itself when it is full
            self._reclaim_until(needed)

    def make_room(self, needed: int) -> None:
        """As `check_room`, where another process is about to write: the file system has to have that room now."""
        if needed > 0:
            self._reclaim_until(needed)

    def _reclaim_until(self, needed: int) -> None:
        space = self.measure()
        while space.size and space.free - needed < self._kept_free(space):
            if not self.file_pool.drop():
                raise self._below_floor(space)
            space = self.measure()

    def check_spare(self, needed: int) -> None:
        """As `check_room`, for what can be done without: as much again has to be left. Pooled files stay."""
        space = self.measure()
        if space.size and space.free - 2 * needed < self._kept_free(space):
            raise self._below_floor(space)

    def _below_floor(self, space: DiskSpace) -> StorageFull:
        return StorageFull(
            f"{self.root}: {space.free} bytes are free, of which {self._kept_free(space)} stay free",
            remedy="free space or add a data directory; committed data is unharmed",
        )

    def _kept_free(self, space: DiskSpace) -> int:
        return int(space.size * self._floor)

    # ------------------------------------------------------------------ files

    def make(self, shuffle: ShuffleId) -> None:
        """The directory of a shuffle. Raises StorageFull, StorageFailed.

        Nothing above it is made: where a disk was unmounted, nothing is to be written below the mount point.
        """
        directory = self.paths.shuffle_text(shuffle)
        try:
            if os.path.isdir(directory):  # mostly it is
                return
            try:
                _make(directory)
            except FileNotFoundError:  # its application's is not there yet, or went with its last shuffle just now
                _make(os.path.dirname(directory))
                self.make(shuffle)
        except FileNotFoundError as error:
            self._take_out(error)
            raise self._failed(error, shuffle) from error
        except OSError as error:
            raise self.failure(error, shuffle) from error

    def open_partial(self, path: str, shuffle: ShuffleId, output: MapAttempt, first: int) -> int:
        """A file at `path` to write an attempt to, whose first batch has `first` bytes. It may be a pooled one.

        Raises UnknownShuffle (it was unregistered meanwhile), StorageFull, StorageFailed.
        """
        try:
            fd = self.file_pool.take(shuffle.app, path, first)
            if fd is None:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self.failure(error, shuffle, output) from error
        return fd

    def publish(self, path: str, shuffle: ShuffleId, output: MapAttempt, *, sync: bool) -> None:
        """Give a complete partial file its attempt's name. Raises what `open_partial` raises."""
        final = self.paths.committed_text(shuffle, output)
        try:
            os.rename(path, final)
            if sync:
                try:
                    self._sync_names(shuffle)
                except OSError as error:
                    if not self.unlink(final):  # what is refused is not to be there after a restart
                        raise in_doubt(final, error.strerror, shuffle, output) from error
                    raise
        except OSError as error:
            raise self.failure(error, shuffle, output) from error

    def publish_compacted(self, path: str, final: str, shuffle: ShuffleId, fd: int, *, sync: bool) -> None:
        """Give a complete compacted file its name. Raises OSError."""
        if sync:
            sync_data(fd)
        os.rename(path, final)
        if sync:
            try:
                self._sync_names(shuffle)
            except OSError:
                self.unlink(final)
                raise

    def sync_recovered(self, shuffle: ShuffleId) -> None:
        """Force the names of a shuffle's outputs to the disk, once. Raises StorageFailed, StorageFull."""
        try:
            if shuffle not in self._synced:
                self._sync_names(shuffle)
        except OSError as error:
            raise self.failure(error, shuffle) from error

    def _sync_names(self, shuffle: ShuffleId) -> None:
        """Force an output's name to the disk, and with the first one of a shuffle those of the directories above."""
        if shuffle not in self._synced:
            for path in (self.paths.apps, self.paths.app(shuffle.app)):
                self._shared_sync(path)
            with self._lock:
                self._synced.add(shuffle)
        self._shared_sync(self.paths.shuffle(shuffle))

    def forget(self, shuffles: Iterable[ShuffleId]) -> None:
        """These are removed."""
        with self._lock:
            self._synced.difference_update(shuffles)

    def trash(self, path: str) -> str | None:
        """Move a directory to the trash; where it lies there, None when there was none, or it cannot be moved."""
        removed = f"{self.paths.trash}/{uuid.uuid4().hex}"
        try:
            try:
                os.rename(path, removed)
            except FileNotFoundError:
                if not os.path.isdir(path):
                    return None
                _make(str(self.paths.trash))  # somebody has cleared it away
                os.rename(path, removed)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in FULL:
                shutil.rmtree(path, ignore_errors=True)
            self._unswept = True  # it is removed with the next look, or with the next start
            self._notice(error)
            return None
        return removed

    def empty_trash(self) -> None:
        """Delete what lies there; takes as long as the file system needs."""
        trash.empty(self.paths.trash, self.calls.alive)

    def unlink(self, path: str | Path) -> bool:
        """Delete a file now, or with a later look, or with the next start; whether it is gone now."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("%s cannot be deleted now: %s", path, error)
            self._undeleted.add(str(path))
            self.failure(error)
            return False
        return True

    def files(self) -> list[Path]:
        """All files of outputs, whole or not. Raises StorageFailed when they cannot be listed."""

        def fail(error: OSError) -> None:
            raise StorageFailed(
                f"data directory {self.root} cannot be listed: {error.strerror}",
                remedy="check this disk; to give its outputs up, leave it out of --data-dir",
            ) from error

        found: list[Path] = []
        for base, _, names in os.walk(self.paths.apps, onerror=fail):
            found += (Path(base, name) for name in names)
            self.calls.alive()
        return sorted(found)

    def shuffles(self) -> list[ShuffleId]:
        """The shuffles that have a directory here."""
        return [shuffle for shuffle in self._folders().values() if shuffle is not None]

    def drop_foreign(self) -> None:
        """Remove the folders that are of no shuffle: another release has made them."""
        for folder, shuffle in self._folders().items():
            if shuffle is None:
                log.warning("%s is no shuffle's folder; it is removed", folder)
                self.trash(str(folder))

    def _folders(self) -> dict[Path, ShuffleId | None]:
        found: dict[Path, ShuffleId | None] = {}
        for path in sorted(self.paths.apps.glob("*/*")):
            if path.is_dir():
                found[path] = shuffle_of(path.parent.name, path.name)
            self.calls.alive()
        return found

    # ------------------------------------------------------------------ state

    def look(self) -> bool:
        """Try whether it can be written; True when something removed may still be there: the directory is back, or it
        could not be deleted. A full one is in use: it can be read."""
        probe = self.root / ".probe"
        try:
            fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, bytes(PROBE_BYTES))
                if self._out:
                    os.fsync(fd)  # a disk that fails takes what stays in memory all the same
            finally:
                os.close(fd)
                probe.unlink(missing_ok=True)
            os.stat(self.paths.apps)
        except OSError as error:
            if error.errno in BUSY:
                return False  # this process lacks descriptors or memory, which says nothing about the disk
            if error.errno not in FULL:
                self._take_out(error)
                return False
        self._space = disk_space(self.root)
        undeleted, self._undeleted = self._undeleted, set()
        for path in undeleted:
            self.unlink(path)
        was, self._out = self._out, ""
        unswept, self._unswept = self._unswept, False
        if was:
            log.warning("data directory %s is back", self.root)
        return bool(was) or unswept

    def failure(
        self, error: OSError, shuffle: ShuffleId | None = None, output: MapAttempt | None = None
    ) -> StorageFull | StorageFailed | UnknownShuffle:
        """What it means that the file system refused something; it is taken out when that was its fault."""
        if error.errno in FULL:
            self._space = disk_space(self.root)
            return StorageFull(
                f"{self.root}: {error.strerror}",
                remedy="free space or add a data directory; committed data is unharmed",
                shuffle=shuffle,
                output=output,
            )
        if isinstance(error, FileNotFoundError) and shuffle is not None and self.paths.apps.is_dir():
            return gone(shuffle)
        self._notice(error)
        return self._failed(error, shuffle, output)

    def _failed(self, error: OSError, shuffle: ShuffleId | None, output: MapAttempt | None = None) -> StorageFailed:
        return StorageFailed(
            f"{self.root}: {error.strerror}",
            remedy="try again: other data directories are used if there are any; check this disk",
            shuffle=shuffle,
            output=output,
        )

    def refuse(self, why: str) -> None:
        """It cannot be recovered now."""
        self._out = why

    def _notice(self, error: OSError) -> None:
        if error.errno in FAILING or isinstance(error, FileNotFoundError):
            self._take_out(error)

    def _take_out(self, error: OSError) -> None:
        if not self._out:
            log.error("data directory %s is taken out: %s; committed outputs there are still read", self.root, error)
        self._out = error.strerror or str(error)


def _make(directory: str) -> None:
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)


def sync_directory(path: Path) -> None:
    """Force the names in a directory to the disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
