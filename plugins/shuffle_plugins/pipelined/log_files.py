"""The files of in-flight logs: segments that are written at their end and read where blocks are wanted again.

A segment is as long as it may become from the start, with zeros at its end (`shuffle_transport.frames`). A stored block
takes no memory until it is sent.

A frame holds a block, a marker, or (first in a log) what the log goes on from.

block  = 0x04, uint32 partition, uint64 number, uint64 records, uint32 crc32c of the payload; the payload
marker = 0x02; JSON as on the wire (wire.py), an end without its numbers
base   = 0x03; JSON {"parent": directory, "begin": POSITION}
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

from shuffle_api.buffer import Buffer
from shuffle_api.errors import ShuffleError
from shuffle_api.streaming import EndOfPartition, Position
from shuffle_plugins.pipelined import wire
from shuffle_plugins.pipelined.entries import (
    Entry,
    Later,
    PayloadFile,
    PayloadRange,
    SequencedBlock,
    SequencedMarker,
    at_once,
)
from shuffle_transport.frames import HEAD_SIZE, IN_FLIGHT, FileHeader, Frame, FrameFile

log = logging.getLogger(__name__)

_MOST_PIECES = 1000
"""Buffers in one write: below the system's IOV_MAX."""
_BLOCK, _MARK, _BASE = 4, 2, 3
_HEAD = struct.Struct("<BIQQI")


@dataclass(frozen=True, slots=True)
class Base:
    """What a log goes on from: what is before `begin` may be in the log `parent` (a directory).

    What that one has from there on was written by somebody whose time was over.
    """

    parent: str
    begin: Position

    def follows(self, entry: Stored | SequencedMarker) -> bool:
        """The entry is before it."""
        if isinstance(entry, SequencedMarker):
            return entry.number < self.begin.markers
        return entry.number < self.begin.blocks.get(entry.partition, 0)


@dataclass(frozen=True, slots=True)
class Stored:
    """A block in a file: its `size` bytes begin `skip` bytes into the frame's payload."""

    partition: int
    number: int
    records: int
    size: int
    checksum: int
    skip: int = _HEAD.size


Found: TypeAlias = Stored | SequencedMarker | Base


def encode_entry(entry: SequencedBlock | SequencedMarker | Base) -> tuple[Buffer, ...]:
    """The payload of its frame, in pieces; a block's own is not copied."""
    if isinstance(entry, SequencedBlock):
        return _HEAD.pack(_BLOCK, entry.partition, entry.number, entry.records, entry.crc32c), entry.payload
    if isinstance(entry, SequencedMarker):
        return (bytes([_MARK]) + wire.encode_marks([entry], dict),)
    fields = wire.encode(parent=entry.parent, begin=wire.position_fields(entry.begin))
    return (bytes([_BASE]) + fields,)


def decode_entry(payload: bytes) -> Found:
    """:raises InvalidArgument: it is none of the three."""

    def parse() -> Found:
        if payload[0] == _BLOCK:
            if len(payload) < _HEAD.size:
                raise ValueError("a block without its numbers")
            _, partition, number, records, checksum = _HEAD.unpack_from(payload)
            return Stored(partition, number, records, len(payload) - _HEAD.size, checksum)
        fields = wire.decode(payload[1:])
        if payload[0] == _MARK:
            return wire.decode_mark(fields["marks"][0])[0]
        if payload[0] == _BASE:
            begin = wire.parse_position(fields["begin"])
            return Base(str(fields["parent"]), begin or Position())
        raise ValueError("no such entry")

    return wire.checked(parse, payload[:64])


class Segment:
    """One file. One thread writes.

    :ivar end: bytes written.
    :ivar last: by partition, the highest number of a block in it; `last_mark` of a marker, -1 for none.
    """

    def __init__(self, file: PayloadFile, size: int) -> None:
        self.file, self.path, self.end, self.size = file, file.path, 0, size
        self.last: dict[int, int] = {}
        self.last_mark = -1

    @classmethod
    def create(cls, path: Path, lsn: int, size: int, later: Later = at_once) -> Segment:
        """A new file with a header. Raises OSError."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        segment = cls(PayloadFile(path, fd, later), size)
        os.ftruncate(fd, size)
        segment.append([FileHeader(IN_FLIGHT, 0, lsn).encode()])
        return segment

    @classmethod
    def open(cls, path: Path, later: Later = at_once) -> Segment:
        """A file that is there, to be read. Raises OSError."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        segment = cls(PayloadFile(path, fd, later), os.fstat(fd).st_size)
        segment.end = segment.size
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


class OpenSegments:
    """The segments of a log that is read, and of those that it goes on from.

    :param later: has their files closed.
    :ivar found: in the order opened.
    :ivar calls: to the file system, that have returned.
    """

    def __init__(self, later: Later = at_once) -> None:
        self.found: list[Segment] = []
        self.calls, self._later = 0, later

    def open(self, path: Path) -> Segment:
        """One more. Raises OSError."""
        segment = Segment.open(path, self._later)
        self.found.append(segment)
        self.calls += 1
        return segment

    def counted(self, file: BinaryIO) -> BinaryIO:
        """The same, whose reads are counted."""
        read = file.read

        def counted_read(size: int = -1) -> bytes:
            found = read(size)
            self.calls += 1
            return found

        file.read = counted_read  # type: ignore[method-assign]
        return file


def read_logs(directory: Path, segments: OpenSegments) -> Rows:
    """What is in a log and in those it goes on from, in the order written; opens their segments.

    Frames are numbered, so a file that is missing is a gap, and so is what is damaged, which the process's log names.
    Nobody can tell whether there was more behind the last entry: there is a gap too, if the directory is there.
    """
    if not directory.is_dir():
        return []
    rows: Rows = []
    expected = -1
    for name in sorted(os.listdir(directory)):
        try:
            segment = segments.open(directory / name)
            with FrameFile(_Readable(directory, segments), name, IN_FLIGHT) as file:
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


def _rows(segment: Segment, frame: Frame, segments: OpenSegments) -> Rows:
    """Raises InvalidArgument: the frame holds no entry."""
    entry, at = decode_entry(frame.payload), frame.offset + HEAD_SIZE
    segment.end = at + len(frame.payload)
    if not isinstance(entry, Base):
        return [Row(segment, at, entry)]
    older = read_logs(Path(entry.parent), segments) if entry.parent else []
    return [row for row in older if isinstance(row, Gap) or entry.follows(row.entry)]


class _Readable:
    def __init__(self, directory: Path, segments: OpenSegments) -> None:
        self._directory, self._segments = directory, segments

    def open(self, name: str) -> BinaryIO:
        return self._segments.counted(open(self._directory / name, "rb", buffering=1 << 20))

    def describe(self, name: str) -> str:
        return str(self._directory / name)


class RecoveredLog:
    """What logs on disk still have of what was written before `begin`; no gap, and nothing of others' in it.

    :ivar entries: blocks and markers in order; their `order` is below zero.
    :ivar start, markers: the lowest numbers that are there.
    :ivar places: where blocks are, by partition and number.
    :ivar damage: why there is no more; "" if nothing is missing but what was deleted.
    """

    def __init__(self, begin: Position, later: Later = at_once) -> None:
        self.entries: list[Entry] = []
        self.start, self.markers = dict(begin.blocks), begin.markers
        self.segments = OpenSegments(later)
        self.places: dict[tuple[int, int], PayloadRange] = {}
        self.damage = ""

    @property
    def progress(self) -> tuple[int, int]:
        """Changes while `read` reads."""
        return self.segments.calls, len(self.entries)

    def read(self, parent: str) -> None:
        """Take in what the log in the directory `parent` has, and those that it goes on from.

        :raises OSError: its directory cannot be read.
        """
        found = read_logs(Path(parent), self.segments)
        base = Base(parent, Position(dict(self.start), self.markers))
        rows = [row for row in found if isinstance(row, Gap) or base.follows(row.entry)]
        before = _before_gaps(rows)
        blocked: set[int] = set()
        for row in reversed(rows):
            if isinstance(row, Gap):
                if self._misses(row, before.pop(), blocked):
                    break
            else:
                row.segment.contains(row.entry)
                self._take(row, row.entry, blocked)
        count = len(self.entries)
        self.entries = [entry._replace(order=i - count) for i, entry in enumerate(reversed(self.entries))]

    def _misses(self, gap: Gap, before: Position, blocked: set[int]) -> bool:
        """A marker is missing in the gap: as nobody can tell what came before it, nothing older is of use."""
        markers = self.markers > before.markers
        blocks = any(n > before.blocks.get(p, 0) for p, n in self.start.items() if p not in blocked)
        if markers or blocks:
            self.damage = self.damage or gap.why
        return markers

    def _take(self, row: Row, entry: Stored | SequencedMarker, blocked: set[int]) -> None:
        if isinstance(entry, SequencedMarker):
            self._mark(entry)
        elif entry.number == self.start[entry.partition] - 1 and entry.partition not in blocked:
            self._block(row, entry)
        else:
            blocked.add(entry.partition)

    def _mark(self, mark: SequencedMarker) -> None:
        if mark.number == self.markers - 1:
            self.markers -= 1
            if not isinstance(mark.marker, EndOfPartition):  # whoever goes on says that again
                self.entries.append(mark)

    def _block(self, row: Row, entry: Stored) -> None:
        self.start[entry.partition] -= 1
        place = self.places[entry.partition, entry.number] = PayloadRange(row.segment.file, row.offset + entry.skip)
        self.entries.append(
            SequencedBlock(0, entry.partition, entry.number, entry.records, b"", entry.size, entry.checksum, place)
        )


def _before_gaps(rows: Rows) -> list[Position]:
    """For each gap, the numbers that come next after what is before it."""
    positions, blocks, markers = list[Position](), dict[int, int](), 0
    for row in rows:
        if isinstance(row, Gap):
            positions.append(Position(dict(blocks), markers))
        elif isinstance(row.entry, SequencedMarker):
            markers = row.entry.number + 1
        else:
            blocks[row.entry.partition] = row.entry.number + 1
    return positions
