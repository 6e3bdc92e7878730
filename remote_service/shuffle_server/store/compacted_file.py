"""A compacted file: the blocks of many small map outputs in one file, ordered by partition.

    [payloads][rows: one REGION_ROW per block]      both ordered by partition, output, order written

The file has no name: it is deleted as soon as it is open, and gone with whoever has it open last. The map outputs
themselves stay as they are, so nothing depends on a compacted file: it is made anew when it is missed.
"""

from __future__ import annotations

import os
import uuid
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shuffle_server.store.catalog import CatalogEntry
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.format import INDEX_ROW, TABLE_FIELDS
from shuffle_server.store.output_file import OutputFile, read_into, read_range
from shuffle_transport.blocks import payload_array

COMPACTED_ROW = np.dtype([*((name, INDEX_ROW[name]) for name in INDEX_ROW.names or ()), ("output", "<i4")])


@dataclass(frozen=True, slots=True)
class CompactionInput:
    """A map output that goes into a compacted file, its file open for reading."""

    held: CatalogEntry
    file: OutputFile
    fd: int


class CompactedFile:
    """A compacted file on the disk. An output in it is known by its place in `held`. Thread-safe.

    `maps` and `attempts` are theirs, int64; `bytes` is the size of the file. The descriptor is closed with the last
    reference, so who reads may go on.
    """

    def __init__(
        self, home: DataDirectory, fd: int, held: Sequence[CatalogEntry], partitions: np.ndarray, rows_at: int
    ) -> None:
        """`partitions`: of all rows, ascending. Kept is where each one that has rows begins: no more than there are
        blocks, however many partitions the shuffle has."""
        self.home, self.fd = home, fd
        weakref.finalize(self, os.close, fd)
        self.held = tuple(held)
        self.maps = np.array([each.output.map for each in held], np.int64)
        self.attempts = np.array([each.output.attempt for each in held], np.int64)
        self._partitions, starts = np.unique(partitions.astype(np.int64), return_index=True)
        self._starts, self._rows_at = np.append(starts, len(partitions)), rows_at
        self.bytes = rows_at + len(partitions) * COMPACTED_ROW.itemsize

    def rows(self, first: int, end: int, places: np.ndarray) -> np.ndarray:
        """The rows (dtype REGION_ROW) of partitions [first, end) of the outputs at `places`, which ascend: output by
        output, by partition, in the order written. Raises TornFile, OSError.
        """
        low, high = self._starts[np.searchsorted(self._partitions, (first, end))].tolist()
        size = COMPACTED_ROW.itemsize
        rows = np.frombuffer(read_range(self.fd, self._rows_at + low * size, (high - low) * size), COMPACTED_ROW)
        if len(places) < len(self.held):
            wanted = np.zeros(len(self.held), bool)
            wanted[places] = True
            rows = rows[wanted[rows["output"]]]
        return rows if end - first == 1 else rows[np.argsort(rows["output"], kind="stable")]


def build(home: DataDirectory, sources: Sequence[CompactionInput]) -> CompactedFile | None:
    """The compacted file of these outputs, below `home`; None when one's payloads do not lie back to back.

    :raises StorageFull: the disk would fall below its floor.
    :raises TornFile, OSError: something cannot be read or written. There is no file then.
    """
    sizes = np.array([source.held.bytes for source in sources], np.int64)
    payload = bytearray(int(sizes.sum()))
    bases = np.cumsum(sizes) - sizes
    for source, base, size in zip(sources, bases.tolist(), sizes.tolist(), strict=True):
        read_into(source.fd, 0, memoryview(payload)[base : base + size])
    rows, order = _rows(sources, bases)
    by_offset = np.lexsort((rows["length"], rows["offset"]))  # an empty block before the one that begins where it lies
    lengths = rows["length"][by_offset]
    if not np.array_equal(np.cumsum(lengths) - lengths, rows["offset"][by_offset]):
        return None
    place = np.empty(len(rows), np.int64)
    place[by_offset] = np.arange(len(rows))
    moved = payload_array(lengths, payload).take(pa.array(place[order]))
    rows = rows[order]
    rows["offset"] = np.cumsum(rows["length"]) - rows["length"]
    home.check_room(len(payload) + rows.nbytes)
    fd = _nameless(home)
    try:
        if len(payload):
            _write(fd, memoryview(moved.buffers()[2]))
        _write(fd, memoryview(rows.view(np.uint8)))
    except BaseException:
        os.close(fd)
        raise
    return CompactedFile(home, fd, [source.held for source in sources], rows["partition"], len(payload))


def _rows(sources: Sequence[CompactionInput], bases: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All rows, their offsets counted through all payloads, and the order in which a compacted file has them."""
    counts = [len(source.file.index) for source in sources]
    index = np.concatenate([source.file.index for source in sources])
    rows = np.empty(len(index), COMPACTED_ROW)
    for name in TABLE_FIELDS:
        rows[name] = index[name]
    rows["output"] = np.repeat(np.arange(len(sources)), counts)
    rows["offset"] = index["offset"] + np.repeat(bases, counts)
    return rows, np.lexsort((rows["output"], rows["partition"]))  # stable: inside a partition as it was written


def _nameless(home: DataDirectory) -> int:
    """A file that nobody finds: after a crash between the two calls it lies in the trash."""
    path = home.paths.trash / uuid.uuid4().hex
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with suppress(FileNotFoundError):  # the trash was emptied between the two calls
        os.unlink(path)
    return fd


def _write(fd: int, data: memoryview) -> None:
    data = data.cast("B")
    while data:
        data = data[os.write(fd, data) :]
