"""Writing compacted files: the blocks of map outputs are read out of their files, and written by partition."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shuffle_api.ids import ShuffleId
from shuffle_server.store import page_cache
from shuffle_server.store.catalog import CatalogEntry
from shuffle_server.store.compacted_file import (
    COMPACTED_ROW,
    NUMBER,
    OUTPUT_ROW,
    CompactedFile,
    Layout,
    encode_tables,
)
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.format import INDEX_ROW, TABLE_FIELDS
from shuffle_server.store.output_file import OutputFile, read_ranges
from shuffle_server.store.paths import PARTIAL
from shuffle_transport.checksum import crc32c

SLICE_BYTES = 8 << 20  # that are read, ordered, and written at a time, or more:
MOST_SLICES = 64  # of a file; of an output that the page cache does not hold, a piece is read for each
SLICE_PARTITIONS = 500  # twice as many pieces are written in one call


@dataclass(frozen=True, slots=True)
class CompactionInput:
    """A map output that goes into a compacted file, its file open for reading."""

    held: CatalogEntry
    file: OutputFile
    fd: int


def write_compacted(
    home: DataDirectory,
    shuffle: ShuffleId,
    sources: Sequence[CompactionInput],
    written: Callable[[int], None] = lambda size: None,
    *,
    sync: bool = False,
) -> CompactedFile:
    """The compacted file of these outputs, in the shuffle's directory below `home`. `written` is called with the size
    of each piece that was written, and may wait, or raise to give up.

    :param sync: it is on the disk, with its name, when this returns.
    :raises StorageFull: the disk would not have as much room again.
    :raises TornFile, OSError: something cannot be read or written. There is no file then.
    """
    rows, origins = _rows(sources)
    layout = _layout(rows)
    size = int(layout.starts[-1])
    home.check_spare(size + len(rows) * (INDEX_ROW.itemsize + NUMBER.itemsize))
    for source in sources:
        page_cache.read_ahead(source.fd, 0, source.held.bytes)
    fds = np.array([source.fd for source in sources], np.int64)
    path = _unused(home, shuffle)
    part = f"{path}{PARTIAL}"
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        for low, high in _slices(layout):
            first, end = layout.firsts[low], layout.firsts[high]
            with home.calls.request():
                _copy(fd, rows[first:end], origins[first:end], fds, layout, low, high)
            written(int(layout.starts[high] - layout.starts[low]))
        with home.calls.request():
            _write_tails(fd, sources, rows, layout)
            home.publish_compacted(part, path, shuffle, fd, sync=sync)
    except BaseException:
        os.close(fd)
        home.unlink(part)
        raise
    return CompactedFile(home, shuffle, path, fd)


def _unused(home: DataDirectory, shuffle: ShuffleId) -> str:
    """The path of a file that is not there; a process before this one may have left some."""
    paths = (home.paths.compacted_text(shuffle, str(number)) for number in home.numbers)
    return next(path for path in paths if not os.path.lexists(path))


def _write_tails(fd: int, sources: Sequence[CompactionInput], rows: np.ndarray, layout: Layout) -> None:
    """The index of each output, and what says where these lie."""
    by_output = np.argsort(rows["output"], kind="stable")  # of each output by partition, as in its own index
    outputs = np.zeros(len(sources), OUTPUT_ROW)
    at, first = int(layout.starts[-1]), 0
    for number, source in enumerate(sources):
        end = first + len(source.file.index)
        index = np.empty(end - first, INDEX_ROW)
        for name in INDEX_ROW.names or ():
            index[name] = rows[name][by_output[first:end]]
        numbers = np.empty(end - first, NUMBER)
        numbers[source.file.order()] = np.arange(end - first, dtype=NUMBER)
        text = source.file.description.encode()
        tail = index.tobytes() + numbers.tobytes() + text
        output = source.held.output
        outputs[number] = (output.map, output.attempt, at, len(index), len(text), crc32c(tail))
        _write(fd, [memoryview(tail)], at)
        at, first = at + len(tail), end
    _write(fd, [memoryview(encode_tables(outputs, layout, at))], at)


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


def _layout(rows: np.ndarray) -> Layout:
    partitions, firsts = np.unique(rows["partition"], return_index=True)
    firsts = np.append(firsts, len(rows))
    ends = np.concatenate(([0], np.cumsum(rows["length"])))
    starts = ends[firsts] + firsts * COMPACTED_ROW.itemsize
    table = rows.view(np.uint8).data
    bounds = (firsts * COMPACTED_ROW.itemsize).tolist()
    checksums = [crc32c(table[begin:end]) for begin, end in itertools.pairwise(bounds)]
    return Layout(partitions, starts, firsts, np.array(checksums, np.uint32))


def slice_bytes(payload: int) -> int:
    """Of a compacted file with so many bytes, how many are copied at a time."""
    return max(SLICE_BYTES, payload // MOST_SLICES)


def _slices(layout: Layout) -> Iterator[tuple[int, int]]:
    """Neighbouring partitions to copy at a time; a large one is alone."""
    low, count = 0, len(layout.partitions)
    step = slice_bytes(int(layout.starts[-1]))
    while low < count:
        high = int(np.searchsorted(layout.starts, layout.starts[low] + step, "right")) - 1
        high = min(max(high, low + 1), low + SLICE_PARTITIONS, count)
        yield low, high
        low = high


def _copy(fd: int, rows: np.ndarray, origins: np.ndarray, fds: np.ndarray, layout: Layout, low: int, high: int) -> None:
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


def _write(fd: int, pieces: Sequence[memoryview], offset: int) -> None:
    pieces = [piece for piece in pieces if len(piece)]
    while pieces:
        count = os.pwritev(fd, pieces, offset)
        offset += count
        while pieces and count >= len(pieces[0]):
            count -= len(pieces.pop(0))
        if count:
            pieces[0] = pieces[0][count:]
