"""A compacted file: the blocks of many map outputs in one file, ordered by partition.

    partition by partition, of those that have blocks: [rows: one COMPACTED_ROW per block][payloads]

Inside a partition both are ordered by output, and as they were written. So a reduce task reads its part of all these
outputs, table included, as one run of bytes, and that of some neighbours among them as two.

The file has no name: it is deleted as soon as it is open, and gone with whoever has it open last. The map outputs
themselves stay as they are, so nothing depends on a compacted file: it is made anew when it is missed.
"""

from __future__ import annotations

import itertools
import os
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from shuffle_server.store import page_cache
from shuffle_server.store.catalog import CatalogEntry
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.format import INDEX_ROW, TABLE_FIELDS, TornFile
from shuffle_server.store.output_file import OutputFile, read_ranges
from shuffle_transport.checksum import crc32c

COMPACTED_ROW = np.dtype([*((name, INDEX_ROW[name]) for name in INDEX_ROW.names or ()), ("output", "<i4")])
SLICE_BYTES = 8 << 20  # that are read, ordered, and written at a time
SLICE_PARTITIONS = 500  # twice as many pieces are written in one call


@dataclass(frozen=True, slots=True)
class CompactionInput:
    """A map output that goes into a compacted file, its file open for reading."""

    held: CatalogEntry
    file: OutputFile
    fd: int


@dataclass(frozen=True, slots=True)
class _Layout:
    """Of the partitions that have blocks, ascending: where their rows begin in the file, and how many they are.

    `starts` and `firsts` (the number of a partition's first row) have one more, the end. `checksums` are of their rows.
    """

    partitions: np.ndarray
    starts: np.ndarray
    firsts: np.ndarray
    checksums: np.ndarray


class CompactedFile:
    """A compacted file on the disk. An output in it is known by its place in `held`. Thread-safe.

    `maps` and `attempts` are theirs, int64; `bytes` is the size of the file. The descriptor is closed with the last
    reference, so who reads may go on.
    """

    def __init__(self, home: DataDirectory, fd: int, held: Sequence[CatalogEntry], layout: _Layout) -> None:
        """Kept is where each partition that has rows begins: no more than there are blocks, however many partitions
        the shuffle has."""
        self.home, self.fd = home, fd
        weakref.finalize(self, os.close, fd)
        self.held = tuple(held)
        self.maps = np.array([each.output.map for each in held], np.int64)
        self.attempts = np.array([each.output.attempt for each in held], np.int64)
        self._layout = layout
        self.bytes = int(layout.starts[-1])
        home.copies.add(self)

    def span(self, first: int, end: int) -> tuple[int, int]:
        """Where in the file partitions [first, end) lie: the first byte, and the one behind the last."""
        low, high = self._layout.starts[np.searchsorted(self._layout.partitions, (first, end))].tolist()
        return low, high

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


def build(
    home: DataDirectory, sources: Sequence[CompactionInput], written: Callable[[int], None] = lambda size: None
) -> CompactedFile:
    """The compacted file of these outputs, below `home`. `written` is called with the size of each piece that was
    written, and may wait, or raise to give up.

    :raises StorageFull: the disk would not have as much room again.
    :raises TornFile, OSError: something cannot be read or written. There is no file then.
    """
    rows, origins = _rows(sources)
    layout = _layout(rows)
    size = int(layout.starts[-1])
    home.check_spare(size)
    for source in sources:
        page_cache.read_ahead(source.fd, 0, source.held.bytes)
    fds = np.array([source.fd for source in sources], np.int64)
    fd = _nameless(home)
    try:
        for low, high in _slices(layout):
            first, end = layout.firsts[low], layout.firsts[high]
            with home.calls.request():
                _copy(fd, rows[first:end], origins[first:end], fds, layout, low, high)
            written(int(layout.starts[high] - layout.starts[low]))
    except BaseException:
        os.close(fd)
        raise
    page_cache.read_exactly(fd)
    return CompactedFile(home, fd, [source.held for source in sources], layout)


def _rows(sources: Sequence[CompactionInput]) -> tuple[np.ndarray, np.ndarray]:
    """All rows in the order of a compacted file, with their offsets in it; and their offsets in their outputs."""
    counts = [len(source.file.index) for source in sources]
    index = np.concatenate([source.file.index for source in sources])
    outputs = np.repeat(np.arange(len(sources), dtype=np.int32), counts)
    order = np.lexsort((outputs, index["partition"]))  # stable: inside a partition as it was written
    rows = np.empty(len(index), COMPACTED_ROW)
    for name in TABLE_FIELDS:
        rows[name] = index[name][order]
    rows["output"] = outputs[order]
    payloads = np.cumsum(rows["length"]) - rows["length"]
    # In front of a block lie the rows of its partition and of those before, and the payloads before it.
    rows["offset"] = payloads + COMPACTED_ROW.itemsize * np.searchsorted(rows["partition"], rows["partition"], "right")
    return rows, index["offset"][order]


def _layout(rows: np.ndarray) -> _Layout:
    partitions, firsts = np.unique(rows["partition"], return_index=True)
    firsts = np.append(firsts, len(rows))
    ends = np.concatenate(([0], np.cumsum(rows["length"])))
    starts = ends[firsts] + firsts * COMPACTED_ROW.itemsize
    table = rows.view(np.uint8).data
    bounds = (firsts * COMPACTED_ROW.itemsize).tolist()
    checksums = [crc32c(table[begin:end]) for begin, end in itertools.pairwise(bounds)]
    return _Layout(partitions, starts, firsts, np.array(checksums, np.uint32))


def _slices(layout: _Layout) -> Iterator[tuple[int, int]]:
    """Neighbouring partitions to copy at a time; a large one is alone."""
    low, count = 0, len(layout.partitions)
    while low < count:
        high = int(np.searchsorted(layout.starts, layout.starts[low] + SLICE_BYTES, "right")) - 1
        high = min(max(high, low + 1), low + SLICE_PARTITIONS, count)
        yield low, high
        low = high


def _copy(
    fd: int, rows: np.ndarray, origins: np.ndarray, fds: np.ndarray, layout: _Layout, low: int, high: int
) -> None:
    """Read the blocks of these rows, those of partitions number [low, high), out of the outputs, and write both.

    Of a partition larger than a slice, a slice is in memory at a time.
    """
    lengths = rows["length"]
    ends = np.cumsum(lengths)
    if high - low == 1 and len(rows) and int(ends[-1]) > SLICE_BYTES:
        _write(fd, [memoryview(rows.tobytes())], int(layout.starts[low]))
        at = 0
        while at < len(rows):
            end = max(at + 1, int(np.searchsorted(ends, ends[at] - lengths[at] + SLICE_BYTES, "right")))
            payload = _payload(rows[at:end], origins[at:end], fds)
            _write(fd, [payload], int(rows["offset"][at]))
            at = end
        return
    payload, table = _payload(rows, origins, fds), memoryview(rows.tobytes())
    pieces: list[memoryview] = []
    firsts = (layout.firsts[low : high + 1] - layout.firsts[low]).tolist()
    marks = np.concatenate(([0], ends))[firsts].tolist()
    for number in range(high - low):
        begin, end = firsts[number], firsts[number + 1]
        pieces.append(table[begin * COMPACTED_ROW.itemsize : end * COMPACTED_ROW.itemsize])
        pieces.append(payload[marks[number] : marks[number + 1]])
    _write(fd, pieces, int(layout.starts[low]))


def _payload(rows: np.ndarray, origins: np.ndarray, fds: np.ndarray) -> memoryview:
    """The payloads of these rows, one behind the other; neighbours in an output are read together."""
    lengths, outputs = rows["length"], rows["output"]
    apart = (outputs[1:] != outputs[:-1]) | (origins[1:] != origins[:-1] + lengths[:-1])
    starts = np.concatenate(([0], np.flatnonzero(apart) + 1))
    total = np.add.reduceat(lengths, starts)
    filled = total > 0
    starts, total = starts[filled], total[filled]
    payload = memoryview(bytearray(int(total.sum())))
    read_ranges(fds[outputs[starts]].tolist(), origins[starts].tolist(), total.tolist(), payload)
    return payload


def _nameless(home: DataDirectory) -> int:
    """A file that nobody finds: after a crash between the two calls it lies in the trash."""
    path = home.paths.trash / uuid.uuid4().hex
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with suppress(FileNotFoundError):  # the trash was emptied between the two calls
        os.unlink(path)
    return fd


def _write(fd: int, pieces: Sequence[memoryview], offset: int) -> None:
    pieces = [piece for piece in pieces if len(piece)]
    while pieces:
        count = os.pwritev(fd, pieces, offset)
        offset += count
        while pieces and count >= len(pieces[0]):
            count -= len(pieces.pop(0))
        if count:
            pieces[0] = pieces[0][count:]
