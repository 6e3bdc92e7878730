"""The form of log files, the registry's and the in-flight log's: a header, then frames with checksums of their own.

    file   = a kind of four letters, uint32 format, uint64 epoch, uint64 lsn, uint32 crc32c of these
    frame  = uint32 length, uint32 crc32c of the payload, uint64 lsn, uint32 crc32c of these; payload; 0xA5

All numbers are little-endian. The registry's payloads are operations back to back (`shuffle_api.registry.encoding`); an
lsn is the number of an operation, counted from 1 since the registry began.

Two things must be told apart. A *torn tail* is what a crash leaves of the last write; nobody was told that it is there,
and it is cut off. A *damaged* file has changed after it was written, and nothing of it may be believed. A tail is torn
if the file ends before the frame does; since the header of a frame has its own checksum, a flipped bit in the length
can't look like that. A file system may also have made the file longer without having written the bytes, which then read
as zeros: as every frame ends in 0xA5, zeros at the end of a file are never part of one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from shuffle_api.buffer import Buffer
from shuffle_api.errors import InvalidArgument, StorageFailed
from shuffle_transport.checksum import crc32c

LOG, SNAPSHOT, IN_FLIGHT = b"FSRL", b"FSRS", b"FSRI"
FORMAT = 2

_FILE = struct.Struct("<4sIQQI")
_FRAME = struct.Struct("<IIQI")
_SUM = 4  # the checksum at the end of both
_END = b"\xa5"
_TAIL = 1 << 16  # bytes looked at at once, from the end
_ZEROS = bytes(_TAIL)
FILE_SIZE, FRAME_SIZE = _FILE.size, _FRAME.size + len(_END)
HEAD_SIZE = _FRAME.size
"""Bytes of a frame before its payload."""

REGISTRY_REMEDY = (
    "put back an undamaged copy of the file, or move the directory it is in away to begin with an empty registry: what"
    " applications have stored until now is then given up"
)


class Readable(Protocol):
    """What reading asks of a directory."""

    def open(self, name: str) -> BinaryIO:
        """For reading, buffered."""
        ...

    def describe(self, name: str) -> str:
        """The file's name for people."""
        ...


class DamagedFile(StorageFailed):
    """A log file is not what was written; the message names it and the offset."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    """`lsn`: of a log, its first operation; of a snapshot, the last operation that went into it."""

    kind: bytes
    epoch: int
    lsn: int

    def encode(self) -> bytes:
        head = _FILE.pack(self.kind, FORMAT, self.epoch, self.lsn, 0)[:-_SUM]
        return head + crc32c(head).to_bytes(_SUM, "little")


@dataclass(frozen=True, slots=True)
class Frame:
    """`offset` in its file; `lsn` of its first operation (in a snapshot: how many operations come before)."""

    offset: int
    lsn: int
    payload: bytes


def encode_frame(lsn: int, payload: bytes) -> bytes:
    """One frame; the payload may be empty."""
    return b"".join(frame_parts(lsn, (payload,)))


def frame_parts(lsn: int, pieces: Sequence[Buffer]) -> list[Buffer]:
    """One frame whose payload is `pieces` back to back, as parts to be written one after the other; copies nothing."""
    length, checksum = 0, 0
    for piece in pieces:
        length += memoryview(piece).nbytes
        checksum = crc32c(piece, checksum)
    head = _FRAME.pack(length, checksum, lsn, 0)[:-_SUM]
    return [head + crc32c(head).to_bytes(_SUM, "little"), *pieces, _END]


class FrameFile:
    """A file to be read from its beginning; use as a context manager.

    `header` is known at once; `end` is the offset after the last whole frame read so far; `torn`, once `frames` has
    ended, how many bytes of an unfinished frame follow there (zeros after that not counted).

    :param remedy: what to do about damage.
    :raises DamagedFile: the file, or its header, is not what was written.
    :raises InvalidArgument: it is in another format.
    """

    def __init__(self, directory: Readable, name: str, kind: bytes, *, remedy: str = REGISTRY_REMEDY) -> None:
        self.name, self._remedy = directory.describe(name), remedy
        self._file = directory.open(name)
        try:
            self.header = self._header(kind)
            self._size = max(_size_without_zeros(self._file), FILE_SIZE)
        except BaseException:
            self._file.close()
            raise
        self._file.seek(FILE_SIZE)
        self.end = FILE_SIZE
        self.torn = 0

    def __enter__(self) -> FrameFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def frames(self) -> Iterator[Frame]:
        """The whole frames, in order; call once. Raises DamagedFile at the first that is damaged."""
        while self.end < self._size:
            head = self._file.read(_FRAME.size)
            if self.end + FRAME_SIZE > self._size:
                break
            length, checksum, lsn, head_sum = _FRAME.unpack(head)
            if crc32c(head[:-_SUM]) != head_sum:
                raise self.damaged(self.end, "the header of a frame does not match its checksum")
            if self.end + FRAME_SIZE + length > self._size:
                break
            payload = self._file.read(length)
            if crc32c(payload) != checksum or self._file.read(1) != _END:
                raise self.damaged(self.end, f"a frame of {length} bytes does not match its checksum")
            yield Frame(self.end, lsn, payload)
            self.end += FRAME_SIZE + length
        self.torn = self._size - self.end

    def damaged(self, offset: int, why: str) -> DamagedFile:
        """The error for what is wrong at `offset`."""
        return DamagedFile(f"{self.name} is damaged at offset {offset}: {why}", remedy=self._remedy)

    def _header(self, kind: bytes) -> FileHeader:
        head = self._file.read(FILE_SIZE)
        if len(head) < FILE_SIZE or head[:4] != kind:
            raise self.damaged(0, f"it does not begin as a file of its kind ({kind.decode()})")
        magic, format, epoch, lsn, checksum = _FILE.unpack(head)
        if crc32c(head[:-_SUM]) != checksum:
            raise self.damaged(0, "its header does not match its checksum")
        if format != FORMAT:
            raise InvalidArgument(
                f"{self.name} is in format {format}, this release reads format {FORMAT}",
                remedy="start the release of flight-shuffle that wrote it, or give an empty data directory",
            )
        return FileHeader(magic, epoch, lsn)


def _size_without_zeros(file: BinaryIO) -> int:
    """The file's size, less the zeros at its end."""
    end = file.seek(0, os.SEEK_END)
    while end:
        begin = max(0, end - _TAIL)
        file.seek(begin)
        data = file.read(end - begin)
        if not _ZEROS.startswith(data):  # a hundred times as fast as to strip it
            return begin + len(data.rstrip(b"\0"))
        end = begin
    return 0
