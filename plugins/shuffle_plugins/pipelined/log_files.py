"""The files of in-flight logs: segments that are written at their end and read through a mapping.

A segment is as long as it may become from the start, with zeros at its end (`shuffle_transport.frames`); so it is
mapped once, and the payload of a stored block is a view of the page cache: it takes none of the process's memory
budget, and is sent like any other.
"""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, TypeAlias

from shuffle_api.buffer import Buffer
from shuffle_api.errors import ShuffleError
from shuffle_api.streaming import EndOfPartition, Position
from shuffle_plugins.pipelined.entries import Block, Entry, Mark
from shuffle_plugins.pipelined.log_entries import Base, Stored, decode_entry
from shuffle_transport.frames import HEAD_SIZE, IN_FLIGHT, FileHeader, FrameFile

log = logging.getLogger(__name__)

_MOST_PIECES = 1000
"""Buffers in one write: below the system's IOV_MAX."""


class Segment:
    """One file. One thread writes.

    :ivar end: bytes written.
    :ivar last: by partition, the highest number of a block in it; `last_mark` of a marker, -1 for none.
    """

    def __init__(self, path: Path, fd: int, size: int) -> None:
        self.path, self.end, self.size = path, size, size
        self.last: dict[int, int] = {}
        self.last_mark = -1
        self._fd = fd
        self._mapping = mmap.mmap(fd, size, prot=mmap.PROT_READ)

    @classmethod
    def create(cls, path: Path, lsn: int, size: int) -> Segment:
        """A new file with a header. Raises OSError."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, size)
            segment = cls(path, fd, size)
            segment.end = 0
            segment.append([FileHeader(IN_FLIGHT, 0, lsn).encode()])
        except BaseException:
            os.close(fd)
            raise
        return segment

    @classmethod
    def open(cls, path: Path) -> Segment:
        """A file that is there, to be read. Raises OSError, ValueError if it is empty."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return cls(path, fd, os.fstat(fd).st_size)
        except BaseException:
            os.close(fd)
            raise

    def append(self, pieces: list[Buffer]) -> None:
        """Write at the end. Raises OSError; then the end stays where it was."""
        at = self.end
        for i in range(0, len(pieces), _MOST_PIECES):
            some = pieces[i : i + _MOST_PIECES]
            written, whole = os.pwritev(self._fd, some, at), sum(memoryview(piece).nbytes for piece in some)
            rest = memoryview(b"".join(some))[written:] if written < whole else memoryview(b"")
            while rest:
                rest = rest[os.pwrite(self._fd, rest, at + whole - len(rest)) :]
            at += whole
        self.end = at

    def contains(self, entry: Block | Stored | Mark) -> None:
        """Note that it is in here."""
        if isinstance(entry, Mark):
            self.last_mark = max(self.last_mark, entry.number)
        else:
            self.last[entry.partition] = max(self.last.get(entry.partition, -1), entry.number)

    def view(self, offset: int, size: int) -> memoryview:
        """What was written there; valid for as long as somebody holds it, whatever becomes of the file."""
        return memoryview(self._mapping)[offset : offset + size]

    def before(self, start: Mapping[int, int], markers: int) -> bool:
        """All in it is before these numbers."""
        if self.last_mark >= markers:
            return False
        return all(number < start.get(partition, 0) for partition, number in self.last.items())

    def close(self) -> None:
        """Write no more. Idempotent; views stay."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def remove(self) -> None:
        """Close, and delete the file, with its directory if that is empty then."""
        self.close()
        try:
            self.path.unlink(missing_ok=True)
            self.path.parent.rmdir()
        except OSError:
            pass  # others are in there; or it is gone: whoever goes on from this log may delete it too


class Kept:
    """What logs on disk still have of what was written before `begin`; no gap, and nothing of others' in it.

    :ivar entries: blocks and markers in order; their `order` is below zero.
    :ivar start, markers: the lowest numbers that are there.
    :ivar places: where blocks are, by partition and number.
    """

    def __init__(self, begin: Position) -> None:
        self.entries: list[Entry] = []
        self.start, self.markers = dict(begin.blocks), begin.markers
        self.segments: list[Segment] = []
        self.places: dict[tuple[int, int], tuple[Segment, int, int]] = {}

    def read(self, parent: str) -> None:
        """Take in what the log in the directory `parent` has, and those that it goes on from."""
        rows = _read_all(Path(parent), self.segments)
        base = Base(parent, Position(dict(self.start), self.markers))
        blocked: set[int] = set()
        for segment, offset, entry in reversed([row for row in rows if base.follows(row[2])]):
            segment.contains(entry)
            if isinstance(entry, Mark):
                if entry.number == self.markers - 1:
                    self.markers -= 1
                    if not isinstance(entry.marker, EndOfPartition):  # whoever goes on says that again
                        self.entries.append(entry)
            elif entry.number == self.start[entry.partition] - 1 and entry.partition not in blocked:
                self.start[entry.partition] -= 1
                self._take(segment, offset, entry)
            else:
                blocked.add(entry.partition)
        count = len(self.entries)
        self.entries = [entry._replace(order=i - count) for i, entry in enumerate(reversed(self.entries))]

    def _take(self, segment: Segment, offset: int, entry: Stored) -> None:
        begin, size = offset + entry.skip, entry.size
        self.places[entry.partition, entry.number] = segment, begin, size
        view = segment.view(begin, size)
        self.entries.append(Block(0, entry.partition, entry.number, entry.records, view, size, stored=True))


Row: TypeAlias = tuple[Segment, int, Stored | Mark]
"""A segment, where a frame's payload begins in it, and what that is."""


def _read_all(directory: Path, segments: list[Segment]) -> list[Row]:
    """What is in a log and in those it goes on from, in the order written; appends their segments."""
    rows: list[Row] = []
    for name in sorted(os.listdir(directory)) if directory.is_dir() else ():
        try:
            segment = Segment.open(directory / name)
        except (OSError, ValueError) as error:
            log.warning("in-flight log %s: %s; what it holds cannot be replayed", directory / name, error)
            continue
        segment.close()
        for offset, entry in _read(directory, name, segment):
            if isinstance(entry, Base):
                older = _read_all(Path(entry.parent), segments) if entry.parent else []
                rows += [row for row in older if entry.follows(row[2])]
            else:
                rows.append((segment, offset, entry))
        segments.append(segment)
    return rows


def _read(directory: Path, name: str, segment: Segment) -> Iterator[tuple[int, Stored | Mark | Base]]:
    """Entries, and where their frames' payloads begin; up to what is damaged, which the process's log names."""
    try:
        with FrameFile(_Readable(directory), name, IN_FLIGHT, remedy="what follows cannot be replayed") as file:
            for frame in file.frames():
                yield frame.offset + HEAD_SIZE, decode_entry(frame.payload)
                segment.end = frame.offset + HEAD_SIZE + len(frame.payload)
    except (ShuffleError, OSError) as error:
        log.warning("in-flight log: %s", error)


class _Readable:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self, name: str) -> BinaryIO:
        return open(self._directory / name, "rb", buffering=1 << 20)

    def describe(self, name: str) -> str:
        return str(self._directory / name)
