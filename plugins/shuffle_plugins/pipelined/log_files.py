"""The files of in-flight logs: segments that are written at their end and read where blocks are wanted again.

A segment is as long as it may become from the start, with zeros at its end (`shuffle_transport.frames`). A stored block
takes no memory until it is sent.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from shuffle_api.buffer import Buffer
from shuffle_api.errors import ShuffleError
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.log_entries import Base, Stored, decode_entry
from shuffle_plugins.pipelined.payload_file import PayloadFile
from shuffle_transport.frames import HEAD_SIZE, IN_FLIGHT, FileHeader, Frame, FrameFile

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
        self.file = PayloadFile(path, fd)

    @classmethod
    def create(cls, path: Path, lsn: int, size: int) -> Segment:
        """A new file with a header. Raises OSError."""
        segment = cls(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), size)
        os.ftruncate(segment.file.fd, size)
        segment.end = 0
        segment.append([FileHeader(IN_FLIGHT, 0, lsn).encode()])
        return segment

    @classmethod
    def open(cls, path: Path) -> Segment:
        """A file that is there, to be read. Raises OSError."""
        segment = cls(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC), 0)
        segment.end = segment.size = os.fstat(segment.file.fd).st_size
        return segment

    def append(self, pieces: list[Buffer]) -> None:
        """Write at the end. Raises OSError; then the end stays where it was."""
        at = self.end
        for i in range(0, len(pieces), _MOST_PIECES):
            some = pieces[i : i + _MOST_PIECES]
            written, whole = os.pwritev(self.file.fd, some, at), sum(memoryview(piece).nbytes for piece in some)
            rest = memoryview(b"".join(some))[written:] if written < whole else memoryview(b"")
            while rest:
                rest = rest[os.pwrite(self.file.fd, rest, at + whole - len(rest)) :]
            at += whole
        self.end = at

    def contains(self, entry: SequencedBlock | Stored | SequencedMarker) -> None:
        """Note that it is in here."""
        if isinstance(entry, SequencedMarker):
            self.last_mark = max(self.last_mark, entry.number)
        else:
            self.last[entry.partition] = max(self.last.get(entry.partition, -1), entry.number)

    def before(self, start: Mapping[int, int], markers: int) -> bool:
        """All in it is before these numbers."""
        if self.last_mark >= markers:
            return False
        return all(number < start.get(partition, 0) for partition, number in self.last.items())

    def remove(self) -> None:
        """Delete the file, with its directory if that is empty then. Blocks in it can be read still."""
        try:
            self.path.unlink(missing_ok=True)
            self.path.parent.rmdir()
        except OSError:
            pass  # others are in there; or it is gone: an attempt that goes on from this log may delete it too


class Row(NamedTuple):
    """An entry, and where its frame's payload begins in which segment."""

    segment: Segment
    offset: int
    entry: Stored | SequencedMarker


class Gap(NamedTuple):
    """Entries may be missing here."""

    why: str


Rows: TypeAlias = list[Row | Gap]


def read_logs(directory: Path, segments: list[Segment]) -> Rows:
    """What is in a log and in those it goes on from, in the order written; appends their segments.

    Frames are numbered, so a file that is missing is a gap, and so is what is damaged, which the process's log names.
    Nobody can tell whether there was more behind the last entry: there is a gap too, if the directory is there.
    """
    if not directory.is_dir():
        return []
    rows: Rows = []
    expected = -1
    for name in sorted(os.listdir(directory)):
        try:
            segment = Segment.open(directory / name)
            segments.append(segment)
            with FrameFile(_Readable(directory), name, IN_FLIGHT) as file:
                if expected not in (-1, file.header.lsn):
                    rows.append(Gap(f"{directory} has no entries {expected} to {file.header.lsn - 1}"))
                expected = file.header.lsn
                for frame in file.frames():
                    rows += _rows(segment, frame, segments)
                    expected = frame.lsn + 1
        except (ShuffleError, OSError) as error:
            why = error.message if isinstance(error, ShuffleError) else f"{directory / name}: {error.strerror}"
            log.warning("in-flight log: %s; what it held from there on cannot be replayed", why)
            rows.append(Gap(why))
            expected = -1
    return [*rows, Gap(f"{directory} ends before the checkpoint")]


def _rows(segment: Segment, frame: Frame, segments: list[Segment]) -> Rows:
    """Raises InvalidArgument: the frame holds no entry."""
    entry, at = decode_entry(frame.payload), frame.offset + HEAD_SIZE
    segment.end = at + len(frame.payload)
    if not isinstance(entry, Base):
        return [Row(segment, at, entry)]
    older = read_logs(Path(entry.parent), segments) if entry.parent else []
    return [row for row in older if isinstance(row, Gap) or entry.follows(row.entry)]


class _Readable:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def open(self, name: str) -> BinaryIO:
        return open(self._directory / name, "rb", buffering=1 << 20)

    def describe(self, name: str) -> str:
        return str(self._directory / name)
