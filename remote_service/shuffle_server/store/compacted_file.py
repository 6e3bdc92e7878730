"""A compacted file: the blocks of many map outputs in one file, ordered by partition.

    partition by partition, of those that have blocks: [rows: one COMPACTED_ROW per block][payloads]
    output by output: [index: one INDEX_ROW per block, sorted by partition][number of each block: int32][description]
    [outputs: one OUTPUT_ROW each][partitions][starts][firsts][checksums][a byte per output: 1 if it is gone][trailer]

Inside a partition both are ordered by output, and as they were written. So a reduce task reads its part of all these
outputs, table included, as one run of bytes, and that of some neighbours among them as two. Who wants one output reads
its index, which says where in this file its blocks lie.

The file is written front to back and gets its name when it is complete. From then on it is what holds these outputs.
Nothing of it changes but the bytes that say which outputs are gone.
"""

from __future__ import annotations

import os
import struct
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store import page_cache
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.format import INDEX_ROW, Description, TornFile
from shuffle_server.store.output_file import OutputFile, read_range, read_ranges
from shuffle_transport.checksum import crc32c
from shuffle_transport.files import FileIdentity

COMPACTED_ROW = np.dtype([*((name, INDEX_ROW[name]) for name in INDEX_ROW.names or ()), ("output", "<i4")])
OUTPUT_ROW = np.dtype(
    [("map", "<i8"), ("attempt", "<i8"), ("tail", "<i8"), ("blocks", "<i8"), ("text", "<i8"), ("crc32c", "<u4")]
)
NUMBER = np.dtype("<i4")
MAGIC = b"FLSHCMP1"
TRAILER = struct.Struct("<QQQI8s")  # where the outputs' rows begin, outputs, partitions, crc32c of what precedes, magic
_HEAD = struct.Struct("<QQQ")


@dataclass(frozen=True, slots=True)
class Layout:
    """Of the partitions that have blocks, ascending: where their rows begin in the file, and how many they are.

    `starts` and `firsts` (the number of a partition's first row) have one more, the end. `checksums` are of their rows.
    """

    partitions: np.ndarray
    starts: np.ndarray
    firsts: np.ndarray
    checksums: np.ndarray

    def encode(self) -> bytes:
        """As it lies in the file."""
        return b"".join(
            part.astype(kind).tobytes()
            for part, kind in zip((self.partitions, self.starts, self.firsts, self.checksums), _KINDS, strict=True)
        )


_KINDS = ("<i4", "<i8", "<i8", "<u4")


def encode_tables(outputs: np.ndarray, layout: Layout, at: int) -> bytes:
    """What follows the outputs' tails, in a file in which none is gone. `at`: where it begins."""
    body = outputs.tobytes() + layout.encode()
    head = _HEAD.pack(at, len(outputs), len(layout.partitions))
    return body + bytes(len(outputs)) + head + struct.pack("<I8s", crc32c(head, crc32c(body)), MAGIC)


class CompactedPlace(NamedTuple):
    """Where an output lies: the compacted file, and which of its outputs it is."""

    file: CompactedFile
    number: int


class CompactedFile:
    """A compacted file on the disk. Thread-safe.

    `maps` and `attempts` are those of its outputs, int64; `bytes` is the size of the file. The descriptor is closed
    with the last reference, so who reads may go on when the file is deleted.
    """

    def __init__(self, home: DataDirectory, shuffle: ShuffleId, path: str, fd: int) -> None:
        """Takes the descriptor over, which is open for writing. Raises TornFile, OSError: it is none."""
        weakref.finalize(self, os.close, fd)
        self.home, self.shuffle, self.path, self.fd = home, shuffle, path, fd
        self.bytes = os.fstat(fd).st_size
        self._outputs, self._layout, self._gone_at = _read_tables(fd, self.bytes)
        self._gone = bytearray(read_range(fd, self._gone_at, len(self._outputs)))
        self._lock = threading.Lock()
        self.maps, self.attempts = self._outputs["map"].copy(), self._outputs["attempt"].copy()
        page_cache.read_exactly(fd)
        home.compacted.add(self)

    def __len__(self) -> int:
        """Its outputs, those that are gone too."""
        return len(self._outputs)

    def output(self, number: int) -> MapAttempt:
        return MapAttempt(int(self.maps[number]), int(self.attempts[number]))

    def span(self, first: int, end: int) -> tuple[int, int]:
        """Where in the file partitions [first, end) lie: the first byte, and the one behind the last."""
        low, high = self._layout.starts[np.searchsorted(self._layout.partitions, (first, end))].tolist()
        return low, high

    def blocks(self, first: int, end: int) -> int:
        """How many blocks partitions [first, end) have."""
        low, high = self._layout.firsts[np.searchsorted(self._layout.partitions, (first, end))].tolist()
        return int(high - low)

    def rows(self, first: int, end: int) -> np.ndarray:
        """The rows (dtype COMPACTED_ROW) of partitions [first, end): by partition, by output, in the order written.

        Raises TornFile, OSError.
        """
        low, high = np.searchsorted(self._layout.partitions, (first, end)).tolist()
        lengths = (np.diff(self._layout.firsts[low : high + 1]) * COMPACTED_ROW.itemsize).tolist()
        rows = bytearray(sum(lengths))
        read_ranges([self.fd] * (high - low), self._layout.starts[low:high].tolist(), lengths, memoryview(rows))
        at = 0
        for length, checksum in zip(lengths, self._layout.checksums[low:high].tolist(), strict=True):
            if crc32c(memoryview(rows)[at : at + length]) != checksum:
                raise TornFile("the checksum of rows of a compacted file does not match")
            at += length
        return np.frombuffer(rows, COMPACTED_ROW)

    @property
    def identity(self) -> FileIdentity:
        """Of the file as it is now. Raises OSError."""
        return FileIdentity.of(os.fstat(self.fd))

    def load(self, number: int) -> OutputFile:
        """One output: its index, with offsets in this file, and its description. Raises TornFile, OSError."""
        _, _, at, blocks, text, checksum = self._outputs[number].tolist()
        identity = self.identity
        size = blocks * (INDEX_ROW.itemsize + NUMBER.itemsize)
        tail = read_range(self.fd, at, size + text)
        if crc32c(tail) != checksum:
            raise TornFile(f"the checksum of the index of {self.output(number)} does not match")
        index = np.frombuffer(tail, INDEX_ROW, blocks)
        numbers = np.frombuffer(tail, NUMBER, blocks, blocks * INDEX_ROW.itemsize)
        description = Description.decode(tail[size:])
        description.check(self.shuffle, self.output(number))
        return OutputFile.of(Path(self.path), identity, index, description, numbers)

    def sweep(self, held: Callable[[MapAttempt], bool]) -> None:
        """Drop the outputs that are not held here any more, and write again which are gone: the disk failed then."""
        for number in range(len(self)):
            if self._gone[number] or not held(self.output(number)):
                self.drop(number)

    def gone(self, number: int) -> bool:
        """Whether an output is not held here any more."""
        return bool(self._gone[number])

    def drop(self, number: int) -> bool:
        """An output is not held here any more, also after a restart; with the last one the file goes. Whether the disk
        has it."""
        with self._lock:
            self._gone[number] = 1
            last = all(self._gone)
        try:
            os.pwrite(self.fd, b"\1", self._gone_at + number)
        except OSError as error:
            self.home.failure(error)
            if not last:
                return False
        return not last or self.home.unlink(self.path)


def open_compacted(home: DataDirectory, shuffle: ShuffleId, path: str) -> CompactedFile:
    """The file at `path`. Raises TornFile, OSError."""
    return CompactedFile(home, shuffle, path, os.open(path, os.O_RDWR | os.O_CLOEXEC))


def _read_tables(fd: int, size: int) -> tuple[np.ndarray, Layout, int]:
    """Outputs, layout, and where the bytes lie that say which outputs are gone. Raises TornFile, OSError."""
    if size < TRAILER.size:
        raise TornFile(f"{size} bytes are too short for a compacted file")
    trailer = os.pread(fd, TRAILER.size, size - TRAILER.size)
    if len(trailer) != TRAILER.size or trailer[-len(MAGIC) :] != MAGIC:
        raise TornFile("it does not end with a compacted file's trailer")
    at, outputs, partitions, checksum, _ = TRAILER.unpack(trailer)
    counts = (partitions, partitions + 1, partitions + 1, partitions)
    body_size = outputs * OUTPUT_ROW.itemsize + sum(
        count * np.dtype(kind).itemsize for count, kind in zip(counts, _KINDS, strict=True)
    )
    if at + body_size + outputs + TRAILER.size != size:
        raise TornFile(f"its trailer describes a file of another size than {size} bytes")
    body = read_range(fd, at, body_size)
    if crc32c(trailer[: _HEAD.size], crc32c(body)) != checksum:
        raise TornFile("the checksum of its tables does not match")
    parts, place = [], outputs * OUTPUT_ROW.itemsize
    for count, kind in zip(counts, _KINDS, strict=True):
        parts.append(np.frombuffer(body, kind, count, place).copy())
        place += parts[-1].nbytes
    return np.frombuffer(body, OUTPUT_ROW, outputs).copy(), Layout(*parts), at + body_size
