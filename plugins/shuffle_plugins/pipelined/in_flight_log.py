"""A writer's in-flight log on disk: entries sent and not acknowledged, for longer than memory holds them.

As Flink's changelog (FLIP-158) and Clonos's in-flight log: a consumer need not write all of its state at each
checkpoint. It does so now and then (the materialization, which it acknowledges); to go back to a later checkpoint it
takes the last one and is replayed to. Blocks and markers are appended by a thread beside the stream, in the form of the
registry's log. The entries that a checkpoint relies on are in the file before the writer's state is given away: they
survive the process, as pages of the system's cache do, and the next attempt goes on from there.

    queued -> written -> [ segment ][ segment ][ segment ... ]
                           ^ all acknowledged, or too much: deleted, oldest first
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from shuffle_api.buffer import Buffer
from shuffle_api.errors import ShuffleError, StorageFailed
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.periodic import StreamThread
from shuffle_api.streaming import Position
from shuffle_plugins.pipelined.entries import Entry, PayloadRange, SequencedBlock
from shuffle_plugins.pipelined.log_files import Base, RecoveredLog, Segment, encode_entry
from shuffle_transport.checksum import crc32c
from shuffle_transport.files import make_private
from shuffle_transport.frames import FILE_SIZE, FRAME_SIZE, frame_parts

GATHER_BYTES = 512 << 10
"""Queued payload that is written without waiting for more."""

GATHER_SECONDS = 0.01
SEGMENTS = 16
"""A log's bound is so many segments: what is deleted together."""

_SMALLEST_SEGMENT = 64 << 10

Step: TypeAlias = Callable[[Mapping[int, int]], tuple[Mapping[int, int], int]]
"""Called after each write, with the numbers (by partition) up to which blocks are about to be deleted; returns what is
not acknowledged: the first block by partition, and the first marker."""


class NoInFlightLog:
    """The log of a writer that has none on disk: entries that leave its memory are gone."""

    path, pending, size = "", 0, 0

    def __init__(self, begin: Position) -> None:
        self.recovered = RecoveredLog(begin)

    def start(self, step: Step) -> None: ...
    def put(self, entry: Entry) -> None: ...
    def look(self) -> None: ...
    def close(self) -> None: ...
    def delete(self, *, shuffle: bool) -> None: ...

    def checksum(self, payload: Buffer) -> int | None:
        return None

    def holds(self, order: int) -> bool:
        return True

    def stored(self, block: SequencedBlock) -> SequencedBlock | None:
        return None


class DiskInFlightLog:
    """
    :param directory: of this log alone; made when it is started.
    :param limit: bytes; the oldest segments are deleted above it.
    :param base: the log and the position that it goes on from.
    :param recovered: the entries found there.
    """

    def __init__(self, directory: Path, limit: int, base: Base, recovered: RecoveredLog) -> None:
        self.recovered, self._base = recovered, base
        self._directory, self._limit = directory, limit
        self._changed = threading.Condition()
        self._queue: list[Entry] = []
        self._pending = 0
        self._written = 0  # the order of the last entry that is in a file
        self._lsn = 0
        self._segments = list(recovered.segments)
        self._places = dict(recovered.places)  # of blocks that are in files
        self._error: StorageFailed | None = None
        self._urgent = self._closing = False
        self._thread: threading.Thread | None = None

    @property
    def path(self) -> str:
        """Where it is, for the attempt that goes on from it."""
        return str(self._directory)

    @property
    def pending(self) -> int:
        """Bytes that are not written yet."""
        return self._pending

    @property
    def size(self) -> int:
        """Bytes on disk."""
        with self._changed:
            return sum(segment.end for segment in self._segments)

    def start(self, step: Step) -> None:
        """Begin to write, unless it is closed. From here on this log may delete what the one before it has left."""
        if self._closing:
            return
        self._thread = StreamThread("pipelined-log", partial(self._run, step), self._ended)
        self._thread.start()

    def put(self, entry: Entry) -> None:
        """Append; returns at once."""
        with self._changed:
            if self._error is not None or self._closing:
                return
            self._queue.append(entry)
            self._pending += entry.size if isinstance(entry, SequencedBlock) else 0
            if len(self._queue) == 1 or self._pending >= GATHER_BYTES:
                self._changed.notify_all()

    def checksum(self, payload: Buffer) -> int | None:
        """For a block that is going to be `put`: the payload may come back from the disk another."""
        return crc32c(payload)

    def look(self) -> None:
        """Something was acknowledged."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()

    def holds(self, order: int) -> bool:
        """All up to the entry `order` is in the file; if not it will be soon, and `step` is called then.

        :raises StorageFailed: it never will be.
        """
        with self._changed:
            if self._written >= order:
                return True
            if self._error is not None:
                raise self._error.with_traceback(None)
            self._urgent = True
            self._changed.notify_all()
            return False

    def stored(self, block: SequencedBlock) -> SequencedBlock | None:
        """The block with its payload in the file; the block itself if it is not written yet; None: it is lost."""
        with self._changed:
            place = self._places.get((block.partition, block.number))
            if place is not None:
                return block._replace(payload=b"", place=place)
            return None if self._written >= block.order or self._error is not None else block

    def close(self) -> None:
        """Write what is queued and end. Idempotent."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def delete(self, *, shuffle: bool) -> None:
        """After `close`: nobody will go on from this log; with `shuffle` from no log of its shuffle."""
        if self._thread is None:
            return  # it was never started: the segments of the log before it are not its own
        for segment in self._segments:
            segment.remove()
        self._segments = []
        if shuffle:
            _delete(self._directory.parent)

    # ---------------------------------------------------------------------------------------- the thread

    def _run(self, step: Step) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(self._due)
                self._changed.wait_for(self._pressing, GATHER_SECONDS)
                entries, self._queue, self._urgent = self._queue, [], False
                if self._closing and not entries:
                    return
            try:
                self._write(entries)
            except OSError as error:
                self._fail(error)
            with self._changed:
                if entries and self._error is None:
                    self._written = entries[-1].order
                self._pending -= sum(entry.size for entry in entries if isinstance(entry, SequencedBlock))
            start, markers = step(self._excess())
            self._delete(start, markers)

    def _due(self) -> bool:
        return bool(self._queue) or self._urgent or self._closing

    def _pressing(self) -> bool:
        return self._urgent or self._closing or self._pending >= GATHER_BYTES

    def _write(self, entries: list[Entry]) -> None:
        if self._error is not None or not entries:
            return
        pieces, at = list[Buffer](), list[tuple[Entry, int]]()
        if self._lsn == 0:
            make_private(self._directory.parent)
            self._directory.mkdir(mode=0o700)
            self._roll(0)
            self._append(frame_parts(0, encode_entry(self._base)), [])
            self._lsn = 1
        segment = self._segments[-1]
        end = segment.end
        for entry in entries:
            parts = frame_parts(self._lsn, encode_entry(entry))
            size = sum(memoryview(part).nbytes for part in parts)
            if end + size > segment.size:
                self._append(pieces, at)
                pieces, at = [], []
                segment, end = self._roll(size), FILE_SIZE
            at.append((entry, end + size))
            pieces += parts
            end += size
            self._lsn += 1
        self._append(pieces, at)

    def _append(self, pieces: list[Buffer], at: list[tuple[Entry, int]]) -> None:
        """Write, then say where what is: each entry with the offset behind its frame."""
        segment = self._segments[-1]
        segment.append(pieces)
        with self._changed:
            for entry, end in at:
                segment.contains(entry)
                if isinstance(entry, SequencedBlock):
                    self._places[entry.partition, entry.number] = PayloadRange(segment.file, end - 1 - entry.size)

    def _roll(self, least: int) -> Segment:
        size = max(_SMALLEST_SEGMENT, self._limit // SEGMENTS, FILE_SIZE + FRAME_SIZE + least)
        segment = Segment.create(self._directory / f"{self._lsn:016x}", self._lsn, size)
        with self._changed:
            self._segments.append(segment)
        return segment

    def _fail(self, error: OSError) -> None:
        with self._changed:
            self._error = StorageFailed(
                f"the in-flight log in {self.path} cannot be written: {error.strerror}",
                remedy="free space, or leave out option 'log_dir'; the stream goes on, its checkpoints do not",
            )

    def _ended(self, error: ShuffleError) -> None:
        """The thread has: nothing is written any more."""
        with self._changed:
            self._error = self._error or StorageFailed(
                f"the in-flight log in {self.path} is not written any more: {error.message}",
                remedy="see the log of this process; the stream goes on, its checkpoints do not",
            )
            self._changed.notify_all()

    def _excess(self) -> dict[int, int]:
        """By partition, up to which block is to be deleted because there is too much."""
        with self._changed:
            size, last = sum(segment.end for segment in self._segments), dict[int, int]()
            for segment in self._segments[:-1]:
                if size <= self._limit:
                    break
                size -= segment.end
                for partition, number in segment.last.items():
                    last[partition] = max(number, last.get(partition, -1))
            return last

    def _delete(self, start: Mapping[int, int], markers: int) -> None:
        while len(self._segments) > 1:
            segment = self._segments[0]
            excess = self.size > self._limit
            if not excess and not segment.before(start, markers):
                return
            with self._changed:
                del self._segments[0]
                self._places = {key: place for key, place in self._places.items() if place.file is not segment.file}
            segment.remove()


InFlightLog: TypeAlias = DiskInFlightLog | NoInFlightLog


def open_log(
    root: str, limit: int, shuffle: ShuffleId, attempt: MapAttempt, parent: str, begin: Position
) -> InFlightLog:
    """The log of one attempt, below the directory `root` ("": in memory only).

    :param parent: the path of the log that it goes on from, at `begin`.
    """
    if not root:
        return NoInFlightLog(begin)
    recovered = RecoveredLog(begin)
    if parent:
        recovered.read(parent)
    name = f"{attempt.map}-{attempt.attempt}-{uuid.uuid4().hex[:8]}"
    directory = _directory_of(root, shuffle) / name
    return DiskInFlightLog(directory, limit, Base(parent, begin), recovered)


def delete_logs(root: str, shuffle: ShuffleId) -> None:
    """A shuffle has ended: nobody will go on from its logs below `root`, those of tasks that have left included."""
    if root:
        _delete(_directory_of(root, shuffle))


def _directory_of(root: str, shuffle: ShuffleId) -> Path:
    return Path(root).absolute() / shuffle.app / f"{shuffle.shuffle}.{shuffle.generation}"


def _delete(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    with contextlib.suppress(OSError):  # the application has others
        directory.parent.rmdir()
