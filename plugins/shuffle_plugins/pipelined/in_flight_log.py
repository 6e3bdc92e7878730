"""A writer's in-flight log on disk: entries sent and not acknowledged, for longer than memory holds them.

As Flink's changelog (FLIP-158) and Clonos's in-flight log: a consumer need not write all of its state at each
checkpoint. It does so now and then (the materialization, which it acknowledges); to go back to a later checkpoint it
takes the last one and is replayed to. Blocks and markers are appended by a thread beside the stream, in the form of the
registry's log. The entries that a checkpoint relies on are in the file before the writer's state is given away: they
survive the process, as pages of the system's cache do, and the next attempt goes on from there.

Only the log's own thread, and the caretaker that ends it, wait for the disk. A log fails when its disk hangs, as when
that is full: the stream goes on, its checkpoints do not.

    queued -> written -> [ segment ][ segment ][ segment ... ]
                           ^ all acknowledged, or too much: deleted, oldest first
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

from shuffle_api.buffer import Buffer
from shuffle_api.clock import LOOK_SHARE, Silence
from shuffle_api.errors import ShuffleError, StorageFailed
from shuffle_api.periodic import StreamThread
from shuffle_api.streaming import Position
from shuffle_plugins.pipelined.entries import Entry, Later, PayloadRange, SequencedBlock, at_once
from shuffle_plugins.pipelined.log_files import Base, RecoveredLog, Segment, encode_entry
from shuffle_transport.checksum import crc32c
from shuffle_transport.files import make_private
from shuffle_transport.frames import FILE_SIZE, FRAME_SIZE, frame_parts

log = logging.getLogger(__name__)

GATHER_BYTES = 512 << 10
"""Queued payload that is written without waiting for more."""

GATHER_SECONDS = 0.01
SEGMENTS = 16
"""A log's bound is so many segments: what is deleted together."""

_SMALLEST_SEGMENT = 64 << 10

Step: TypeAlias = Callable[[Mapping[int, int]], tuple[Mapping[int, int], int]]
"""Called after each write, with the numbers (by partition) up to which blocks are about to be deleted; returns what is
not acknowledged: the first block by partition, and the first marker."""


class DiskWatch:
    """Whether calls to a file system return. The time in which the process stands still does not count.

    :param limit: seconds after which a call hangs.
    :param source: gives the time.
    """

    def __init__(self, limit: float, source: Callable[[], float] = time.monotonic) -> None:
        self.limit, self._silence = limit, Silence(LOOK_SHARE * limit, source)
        self._calls = self._under_way = 0

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Several calls by one thread, between which it says `returned`."""
        self.returned()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def returned(self) -> None:
        """One of the calls."""
        self._calls += 1

    def hung(self) -> float:
        """Seconds for which a call has not returned, 0.0 if none hangs. To be asked LOOKS_PER_TIMEOUT times within the
        limit."""
        seconds = self._silence.look((self._calls, self._under_way))
        return seconds if self._under_way and seconds >= self.limit else 0.0


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a log is written.

    :ivar directory: of this log alone; made when the first entry is written.
    :ivar limit: bytes; the oldest segments are deleted above it.
    :ivar base: the log and the position that it goes on from.
    :ivar later: has something done that waits for the disk.
    """

    directory: Path
    limit: int
    base: Base
    later: Later = at_once


class NoInFlightLog:
    """The log of a writer that has none on disk: entries that leave its memory are gone."""

    path, pending, size = "", 0, 0

    def __init__(self, begin: Position) -> None:
        self.recovered = RecoveredLog(begin)

    def start(self, step: Step) -> None: ...
    def put(self, entry: Entry) -> None: ...
    def look(self) -> None: ...
    def end(self, *, delete: bool, shuffle: bool) -> None: ...

    def checksum(self, payload: Buffer) -> int | None:
        return None

    def holds(self, order: int) -> bool:
        return True

    def stored(self, block: SequencedBlock) -> SequencedBlock | None:
        return None


class DiskInFlightLog:
    """
    :param recovered: the entries found in the log that it goes on from.
    :param watch: of this log's thread.
    """

    def __init__(self, place: LogPlace, recovered: RecoveredLog, watch: DiskWatch) -> None:
        self.recovered, self._place, self._watch = recovered, place, watch
        self._changed = threading.Condition()
        self._queue: list[Entry] = []
        self._pending = 0
        self._written = 0  # the order of the last entry that is in a file
        self._lsn = 0
        self._segments = list(recovered.segments.found)
        self._places = dict(recovered.places)  # of blocks that are in files
        self._error: StorageFailed | None = None
        self._urgent = self._closing = False
        self._step: Step | None = None
        self._thread: threading.Thread | None = None

    @property
    def path(self) -> str:
        """Where it is, for the attempt that goes on from it."""
        return str(self._place.directory)

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
        with self._changed:
            if self._closing:
                return
            self._step = step
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

    def check(self) -> None:
        """Let the log fail when its disk hangs. To be called LOOKS_PER_TIMEOUT times within the watch's limit."""
        over = self._closing or self._error is not None
        if self._step is not None and not over and (seconds := self._watch.hung()):
            limit = f"the limit is {self._watch.limit:g} s"
            self._fail(f"a call to the file system has not returned for {seconds:.1f} s, {limit}")
            self._step({})

    def end(self, *, delete: bool, shuffle: bool) -> None:
        """Write what is queued and end, then `delete` it if nobody will go on from it; returns at once. Idempotent.

        :param shuffle: nobody will go on from any log of its shuffle.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._place.later(partial(self._end, delete, shuffle))

    def _end(self, delete: bool, shuffle: bool) -> None:
        if self._thread is None:
            return  # it was never started: the segments of the log before it are not its own
        self._thread.join()
        if delete:
            for segment in self._segments:
                segment.remove()
            self.release()
        if shuffle:
            delete_directory(self._place.directory.parent)

    def release(self) -> None:
        """After its end: no file of it is open for its own sake."""
        with self._changed:
            self._segments, self._places = [], {}
            self.recovered = RecoveredLog(self._place.base.begin)

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
                with self._watch.call():
                    self._write(entries)
            except OSError as error:
                self._fail(str(error.strerror))
            with self._changed:
                if entries and self._error is None:  # else it has failed meanwhile
                    self._written = entries[-1].order
                    self._pending -= sum(entry.size for entry in entries if isinstance(entry, SequencedBlock))
            start, markers = step(self._excess())
            with self._watch.call():
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
            make_private(self._place.directory.parent)
            self._place.directory.mkdir(mode=0o700)
            self._roll(0)
            self._append(frame_parts(0, encode_entry(self._place.base)), [])
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
        self._watch.returned()
        with self._changed:
            for entry, end in at:
                segment.contains(entry)
                if isinstance(entry, SequencedBlock):
                    self._places[entry.partition, entry.number] = PayloadRange(segment.file, end - 1 - entry.size)

    def _roll(self, least: int) -> Segment:
        size = max(_SMALLEST_SEGMENT, self._place.limit // SEGMENTS, FILE_SIZE + FRAME_SIZE + least)
        path = self._place.directory / f"{self._lsn:016x}"
        segment = Segment.create(path, self._lsn, size, self._place.later)
        with self._changed:
            self._segments.append(segment)
        return segment

    def _fail(self, reason: str) -> None:
        with self._changed:
            if self._error is None:
                self._error = StorageFailed(
                    f"the in-flight log in {self.path} cannot be written: {reason}",
                    remedy="check this disk and its free space, or leave out option 'log_dir'; the stream goes on, its"
                    " checkpoints do not",
                )
                log.error("%s", self._error)
            self._queue, self._pending = [], 0

    def _ended(self, error: ShuffleError) -> None:
        """The thread has: nothing is written any more."""
        self._fail(error.message)

    def _excess(self) -> dict[int, int]:
        """By partition, up to which block is to be deleted because there is too much."""
        with self._changed:
            size, last = sum(segment.end for segment in self._segments), dict[int, int]()
            for segment in self._segments[:-1]:
                if size <= self._place.limit:
                    break
                size -= segment.end
                for partition, number in segment.last.items():
                    last[partition] = max(number, last.get(partition, -1))
            return last

    def _delete(self, start: Mapping[int, int], markers: int) -> None:
        while len(self._segments) > 1:
            segment = self._segments[0]
            excess = self.size > self._place.limit
            if not excess and not segment.before(start, markers):
                return
            with self._changed:
                del self._segments[0]
                self._places = {key: place for key, place in self._places.items() if place.file is not segment.file}
            segment.remove()
            self._watch.returned()


InFlightLog: TypeAlias = DiskInFlightLog | NoInFlightLog


def delete_directory(directory: Path) -> None:
    """Of a shuffle, with all its logs, and the application's if it has no others."""
    shutil.rmtree(directory, ignore_errors=True)
    if directory.exists():
        log.warning("%s is not removed; delete it", directory)
        return
    with contextlib.suppress(OSError):
        directory.parent.rmdir()
