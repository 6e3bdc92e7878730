"""The store of one worker: staged attempts, committed map outputs, removal, recovery."""

from __future__ import annotations

import fcntl
import functools
import logging
import os
import shutil
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

from shuffle_api.errors import InvalidArgument, MapOutputLost, StorageFailed, UnknownShuffle
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import ShuffleSpec
from shuffle_server.store.format import Description, TornFile
from shuffle_server.store.output_file import OutputFile, identity_of, load
from shuffle_server.store.paths import COMMITTED, PARTIAL, StorePaths
from shuffle_server.store.spares import SpareFiles
from shuffle_server.store.staged import StagedOutput
from shuffle_server.store.statistics import StoreStatistics, disk_space

INDEX_CACHE_BYTES = 64 << 20
SPARE_BYTES = 1 << 20  # smaller files are not worth keeping
SPARE_SECONDS = 60.0

log = logging.getLogger(__name__)


class Store:
    """Map outputs below one directory, which it alone writes.

    Who wins a map is decided by the file system: an attempt is published by linking it to the map's one name, which
    fails when another attempt has that name. So there is no moment, and no crash, at which two attempts are visible.
    """

    def __init__(self, root: Path, *, sync: bool = False, recycle: int = 0) -> None:
        """`recycle`: bytes of removed outputs whose files are kept for the next ones."""
        self._paths = StorePaths(root)
        self._sync = sync
        self._spares = SpareFiles(self._paths.spares, recycle)
        self._lock = threading.Lock()
        self._staged: dict[tuple[ShuffleId, MapAttempt], StagedOutput] = {}
        self._indexes: OrderedDict[tuple[ShuffleId, int], OutputFile] = OrderedDict()
        self._index_bytes = 0

    # ------------------------------------------------------------------ write

    def add_shuffle(self, shuffle: ShuffleId) -> None:
        """Make room for a shuffle's map outputs; idempotent. Raises StorageFailed."""
        try:
            self._paths.shuffle(shuffle).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageFailed(
                f"{self._paths.root}: {error.strerror}", remedy="check the disk", shuffle=shuffle
            ) from error

    def stage(self, spec: ShuffleSpec, output: MapAttempt, codec: str) -> StagedOutput:
        """The staged output of an attempt: the one that is there (a stream resumes), or a new one."""
        key = spec.id, output
        with self._lock:
            staged = self._staged.get(key)
            if staged is None:
                partial = self._paths.partial(spec.id, output)
                if not partial.parent.is_dir():
                    raise _gone(spec.id)
                staged = StagedOutput(
                    partial,
                    spec.id,
                    output,
                    spec.partitions,
                    codec,
                    open_file=functools.partial(self._open_partial, spec.id, partial),
                    make_room=self._make_room,
                )
                self._staged[key] = staged
        if staged.codec != codec:
            raise InvalidArgument(
                f"attempt {output.attempt} of map {output.map} began with codec {staged.codec!r}, now {codec!r}",
                remedy="keep one codec per attempt",
            )
        return staged

    def _open_partial(self, shuffle: ShuffleId, path: Path, first: int) -> int:
        """A file to write at `path`. One that begins with a large batch is worth a spare file."""
        try:
            fd = self._spares.take(shuffle.app, path) if first >= SPARE_BYTES else None
            if fd is None:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        except FileNotFoundError:
            raise _gone(shuffle) from None
        except OSError as error:
            raise StorageFailed(f"{self._paths.root}: {error.strerror}", remedy="check the disk") from error
        return fd

    def _make_room(self) -> bool:
        return self._spares.drop() > 0

    def publish(self, staged: StagedOutput, turn: int) -> Description | None:
        """Make a complete attempt visible; None when another attempt of this map was first (this one is then dropped).

        Raises StorageFull, StorageFailed, AttemptSuperseded (another stream writes it), UnknownShuffle (it was
        unregistered meanwhile).
        """
        shuffle, output = staged.shuffle, staged.output
        description = staged.seal(turn, self._sync)
        partial, final = self._paths.partial(shuffle, output), self._paths.committed(shuffle, output.map)
        try:
            os.link(partial, final)
        except FileExistsError:
            won = False
        except FileNotFoundError:
            raise _gone(shuffle) from None
        except OSError as error:
            raise StorageFailed(
                f"{final.parent}: {error.strerror}", remedy="check the disk", shuffle=shuffle
            ) from error
        else:
            won = True
            if self._sync:
                _sync_directory(final.parent)
        self.drop_staged(shuffle, output)
        return description if won else None

    def drop_staged(self, shuffle: ShuffleId, output: MapAttempt) -> None:
        """Forget an attempt that is not committed; idempotent."""
        with self._lock:
            staged = self._staged.pop((shuffle, output), None)
        if staged is not None:
            staged.discard()

    def drop_idle(self, seconds: float) -> int:
        """Drop the attempts that nobody has appended to for `seconds`; how many."""
        before = time.monotonic() - seconds
        with self._lock:
            idle = [(s.shuffle, s.output) for s in self._staged.values() if s.touched < before]
        for shuffle, output in idle:
            self.drop_staged(shuffle, output)
        return len(idle)

    # ------------------------------------------------------------------ read

    def describe(self, shuffle: ShuffleId, map_id: int) -> Description:
        """What the committed file of a map says of itself. Raises MapOutputLost."""
        try:
            return load(self._paths.committed(shuffle, map_id)).description
        except (TornFile, OSError) as error:
            raise MapOutputLost(f"map {map_id}: {error}", remedy="run this map again", shuffle=shuffle) from None

    def open_output(self, shuffle: ShuffleId, output: MapAttempt) -> tuple[OutputFile, int]:
        """The committed file of exactly this attempt and a descriptor of it, which the caller closes.

        Raises MapOutputLost when the file is gone, torn, or another attempt's.
        """
        path = self._paths.committed(shuffle, output.map)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _lost(shuffle, output, f"{path.name}: {error.strerror}") from None
        try:
            # As long as it is held, the file is not written over, even if it is removed meanwhile.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            file = self._index_of(shuffle, output.map, path, identity_of(os.fstat(fd)))
            if file.description.output != output:
                raise _lost(shuffle, output, f"the worker holds attempt {file.description.attempt} of this map")
        except (TornFile, OSError) as error:
            os.close(fd)
            raise _lost(shuffle, output, f"{path.name}: {error}") from None
        except MapOutputLost:
            os.close(fd)
            raise
        return file, fd

    def _index_of(self, shuffle: ShuffleId, map_id: int, path: Path, identity: tuple[int, int, int]) -> OutputFile:
        key = shuffle, map_id
        with self._lock:
            file = self._indexes.get(key)
            if file is not None and file.identity == identity:
                self._indexes.move_to_end(key)
                return file
        file = load(path)
        with self._lock:
            previous = self._indexes.pop(key, None)
            self._index_bytes += file.index.nbytes - (previous.index.nbytes if previous else 0)
            self._indexes[key] = file
            while self._index_bytes > INDEX_CACHE_BYTES and len(self._indexes) > 1:
                self._index_bytes -= self._indexes.popitem(last=False)[1].index.nbytes
        return file

    # ------------------------------------------------------------------ remove

    def remove_output(self, shuffle: ShuffleId, output: MapAttempt) -> None:
        """Delete a committed output (it is lost or corrupt); idempotent."""
        self._paths.committed(shuffle, output.map).unlink(missing_ok=True)
        self._forget_indexes(lambda s, m: s == shuffle and m == output.map)

    def remove_shuffle(self, shuffle: ShuffleId) -> None:
        """Everything of one shuffle disappears at once and is deleted in `empty_trash`; idempotent."""
        removed = self._remove(self._paths.shuffle(shuffle), lambda s: s == shuffle)
        self._recycle(shuffle.app, removed)
        try:
            self._paths.app(shuffle.app).rmdir()  # the last shuffle takes the app's directory along
        except OSError:
            pass

    def remove_app(self, app: str) -> None:
        """Everything of one application; idempotent."""
        self._remove(self._paths.app(app), lambda s: s.app == app)
        self._spares.drop(app)

    def _recycle(self, app: str, removed: Path) -> None:
        try:
            for path in removed.glob(f"*{COMMITTED}"):
                if path.stat().st_size >= SPARE_BYTES and not self._spares.keep(app, path):
                    return
        except OSError as error:
            log.warning("%s: %s; its files are deleted, not kept for reuse", removed, error)

    def _remove(self, path: Path, concerned: Callable[[ShuffleId], bool]) -> Path:
        """Move a directory to the trash; where it lies there."""
        self._paths.trash.mkdir(parents=True, exist_ok=True)
        removed = self._paths.trash / uuid.uuid4().hex
        try:
            path.rename(removed)
        except FileNotFoundError:
            pass
        with self._lock:
            staged = [self._staged.pop(key) for key in list(self._staged) if concerned(key[0])]
        for output in staged:
            output.close()
        self._forget_indexes(lambda s, _: concerned(s))
        return removed

    def _forget_indexes(self, concerned: Callable[[ShuffleId, int], bool]) -> None:
        with self._lock:
            for key in [key for key in self._indexes if concerned(*key)]:
                self._index_bytes -= self._indexes.pop(key).index.nbytes

    def empty_trash(self) -> None:
        """Really delete what was removed; takes as long as the file system needs."""
        self._spares.drop(idle=SPARE_SECONDS)
        if self._paths.trash.exists():
            for entry in list(self._paths.trash.iterdir()):
                shutil.rmtree(entry, ignore_errors=True)

    # ------------------------------------------------------------------ start and stop

    def recover(self) -> Iterator[Description]:
        """The committed outputs on disk, checked; what a crash left half-written is deleted. For the start only."""
        self._paths.apps.mkdir(parents=True, exist_ok=True)
        self.empty_trash()
        for path in sorted(self._paths.apps.glob(f"*/*/*{PARTIAL}")):
            path.unlink()
        for path in sorted(self._paths.apps.glob(f"*/*/*{COMMITTED}")):
            try:
                yield load(path).description
            except TornFile as error:
                # Not a crash's doing, since only complete files get this name: the disk lost something. The registry,
                # which knows of the commit, will report the output as lost.
                torn = path.with_suffix(".torn")
                path.rename(torn)
                log.error("%s: %s; set aside as %s", path, error, torn.name)

    def shuffles(self) -> list[ShuffleId]:
        """The shuffles that have a directory."""
        return [ShuffleId(p.parent.name, int(p.name)) for p in sorted(self._paths.apps.glob("*/*")) if p.is_dir()]

    def free_bytes(self) -> int:
        return shutil.disk_usage(self._paths.root).free + self._spares.bytes

    def statistics(self) -> StoreStatistics:
        with self._lock:
            staged, index_bytes = list(self._staged.values()), self._index_bytes
        return StoreStatistics(
            staged_outputs=len(staged),
            staged_bytes=sum(output.totals.bytes for output in staged),
            spare_bytes=self._spares.bytes,
            index_bytes=index_bytes,
            disks=(disk_space(self._paths.root),),
        )

    def close(self) -> None:
        """Drop what is staged or spare. Committed outputs stay."""
        with self._lock:
            staged = list(self._staged)
        for shuffle, output in staged:
            self.drop_staged(shuffle, output)
        self._spares.drop()


def lock_directory(root: Path) -> int:
    """Claim a data directory for this process; the descriptor holds the claim. Raises StorageFailed naming it."""
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)  # map outputs are for their applications only
        fd = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    except OSError as error:
        raise StorageFailed(
            f"data directory {root}: {error.strerror}", remedy="give --data-dir a directory that this user can write to"
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise StorageFailed(
            f"data directory {root} is in use by another server",
            remedy="stop that server or give --data-dir another directory",
        ) from None
    return fd


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _gone(shuffle: ShuffleId) -> UnknownShuffle:
    return UnknownShuffle(
        f"shuffle {shuffle.shuffle} of app {shuffle.app} is not registered here",
        remedy="it was unregistered, or never registered",
        shuffle=shuffle,
    )


def _lost(shuffle: ShuffleId, output: MapAttempt, reason: str) -> MapOutputLost:
    return MapOutputLost(
        f"attempt {output.attempt} of map {output.map} of shuffle {shuffle.shuffle} of app {shuffle.app}: {reason}",
        remedy="run this map again",
        shuffle=shuffle,
        output=output,
    )
