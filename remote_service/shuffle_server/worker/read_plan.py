"""What a pull asks for, chunk by chunk out of files and compacted files, in the order of its ticket."""

from __future__ import annotations

import logging
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from shuffle_api.errors import MapOutputLost, Overloaded, ShuffleError, StorageFailed, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.compacted_file import CompactedFile
from shuffle_server.store.compacted_files import LITTLE_BYTES
from shuffle_server.store.compacted_run import CompactedRun
from shuffle_server.store.failures import UNREADABLE, busy
from shuffle_server.store.file_cache import OpenOutput
from shuffle_server.store.format import PACKED_ROW
from shuffle_server.store.output_file import OutputFile, encoded_table
from shuffle_server.store.page_cache import read_ahead
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from shuffle_transport.blocks import BATCH_BYTES
from shuffle_transport.checksum import BLOCK_ROW

MAX_BATCH_ROWS = 4096
MOST_CHUNKS = 64  # that are read at once: their files are open until then
CLOSE = 2  # times the bytes that are wanted: stretches so close together are read at once
FEW_BLOCKS = 16  # of a file, which are looked at one by one
_INT64 = struct.Struct("<q")

log = logging.getLogger(__name__)


class ChunkBlocks(NamedTuple):
    """Blocks: how many, their payload bytes, their block table rows, and the stretches of files in which the payloads
    lie, neighbours joined: each one's file (a descriptor), offset and length."""

    number: int
    size: int
    table: bytes | memoryview
    fds: list[int]
    offsets: list[int]
    lengths: list[int]


@dataclass(slots=True, eq=False)
class ReadSource:
    """What is read for one range of a ticket, or for one run of ranges, and out of which files: their descriptors are
    open as long as there is a reference. `failed` ends it."""

    files: Sequence[OpenOutput | CompactedFile]
    failed: bool = False


class FetchChunk(NamedTuple):
    """Blocks of a part, and block by block the id of their map and its attempt, int64.

    `instead` is what the pull has from there on when they cannot be read.
    """

    part: ReadSource
    maps: bytes
    attempts: bytes
    blocks: ChunkBlocks
    instead: Callable[[Exception], Iterator[Any]]


class ChunkBatch(ABC):
    """What the next message is made of: chunks, whose payloads have been read. Where they go is a subclass's.

    Ids and table rows are gathered as bytes: most chunks are of a block or two, for which arrays cost more than
    reading. `last` says that no more follows.
    """

    def __init__(self) -> None:
        self._maps: list[bytes] = []
        self._attempts: list[bytes] = []
        self._tables: list[bytes | memoryview] = []
        self.blocks = self.bytes = 0
        self.last = False

    @abstractmethod
    def takes(self, blocks: int, size: int) -> bool:
        """Whether so much goes in besides what is there. If not, it goes into the next one, which is not asked.

        What it raises ends the pull.
        """

    @abstractmethod
    def _read(self, chunks: Sequence[FetchChunk], size: int) -> None:
        """Read the payloads of chunks, `size` bytes. Raises TornFile, OSError; then all is as it was."""

    def add(self, chunks: Sequence[FetchChunk]) -> None:
        """Read chunks. Raises UNREADABLE; then what was gathered is as it was."""
        size = sum([chunk.blocks.size for chunk in chunks])
        with ExitStack() as calls:
            for home in {file.home for chunk in chunks for file in chunk.part.files}:
                calls.enter_context(home.calls.request())
            self._read(chunks, size)
        for _, maps, attempts, blocks, _ in chunks:  # which are not kept: their files may be closed
            self._maps.append(maps)
            self._attempts.append(attempts)
            self._tables.append(blocks.table)
            self.blocks += blocks.number
        self.bytes += size

    @property
    def maps(self) -> bytes:
        """Block by block the id of its map, int64."""
        return b"".join(self._maps)

    @property
    def attempts(self) -> bytes:
        """Block by block the attempt of its map, int64."""
        return b"".join(self._attempts)

    @property
    def table(self) -> bytes:
        """The block table, rows of BLOCK_ROW."""
        return b"".join(self._tables)


G = TypeVar("G", bound=ChunkBatch)


class ReadPlan(Generic[G]):
    """Reads one pull: what was gathered, in objects that `new` makes, and in their place in the order the errors of
    outputs that cannot be served.

    Pieces are noted, and read several at a time: as many as go into a message, but for no more files than may be open.
    """

    def __init__(self, store: Store, shuffle: ShuffleId, new: Callable[[], G]) -> None:
        self._store, self._shuffle, self._new = store, shuffle, new
        self._cached = store.cached_files(shuffle)
        self._ahead = store.compaction.reads_ahead
        self._batch = new()
        self._noted: list[FetchChunk] = []
        self._blocks = self._bytes = 0  # of what is noted
        self._little: list[MapAttempt] = []  # outputs of which little was read, file by file

    def batches(self, ranges: Sequence[OutputRange]) -> Generator[G | ShuffleError, None, None]:
        """Those of one pull; call once."""
        for part in self._store.merged(self._shuffle, ranges):
            yield from self._of_compacted(part) if isinstance(part, CompactedRun) else self._of_file(part)
        yield from self._read()
        self._store.compaction.note(self._shuffle, self._little)
        self._batch.last = True
        yield from self._sent()

    def _of_compacted(self, run: CompactedRun) -> Iterator[G | ShuffleError]:
        try:
            found = run.rows(ahead=self._ahead)
        except UNREADABLE as error:
            yield from self._without(run, np.empty(0, np.int64), error)
            return
        outputs = np.array([(each.output.map, each.output.attempt) for each in run.ranges], np.int64)[found.ranges]
        maps, attempts = outputs[:, 0], outputs[:, 1]
        sources = np.array([file.fd for file in found.files], np.int64)[found.sources]
        part, at = ReadSource(found.files), 0
        for entries, size in _slices(found.rows):
            end = at + len(entries)
            blocks = _blocks(entries, size, sources[at:end])
            ids = maps[at:end]
            instead = partial(self._without, run, maps[:at])
            yield from self._note(FetchChunk(part, ids.tobytes(), attempts[at:end].tobytes(), blocks, instead))
            if part.failed:
                return
            at = end

    def _without(self, run: CompactedRun, served: np.ndarray, error: Exception) -> Iterator[G | ShuffleError]:
        """The outputs of compacted files that cannot be read, but for the blocks that have been `served`: of these
        maps."""
        log.warning("compacted files of %s are read output by output: %s", self._shuffle, error)
        for each in run.ranges:
            yield from self._of_file(each, int(np.count_nonzero(served == each.output.map)))

    def _of_file(self, wanted: OutputRange, skip: int = 0) -> Iterator[G | ShuffleError]:
        """The blocks of a range but for the first `skip`."""
        try:
            opened = self._cached.find(wanted.output) or self._store.open_cached(self._shuffle, wanted.output)
        except (MapOutputLost, StorageFull, StorageFailed, Overloaded) as error:
            error.output = wanted.output
            yield from self._sent()
            yield error
            return
        part, total = ReadSource((opened,)), 0
        map_id, attempt = _INT64.pack(wanted.output.map), _INT64.pack(wanted.output.attempt)
        instead = partial(self._lost, wanted.output, opened.file)
        low, high = opened.file.span(wanted.first, wanted.end)
        for blocks in _chunks(opened, low + skip, high):
            yield from self._note(FetchChunk(part, map_id * blocks.number, attempt * blocks.number, blocks, instead))
            if part.failed:
                return
            total += blocks.size
        if total <= LITTLE_BYTES:
            self._little.append(wanted.output)

    def _lost(self, output: MapAttempt, file: OutputFile, error: Exception) -> Iterator[ShuffleError]:
        yield busy(error, self._shuffle, output) or MapOutputLost(
            f"{file.path}: {error}", remedy="run this map again", shuffle=self._shuffle, output=output
        )

    def _note(self, chunk: FetchChunk) -> Iterator[G | ShuffleError]:
        """Have a chunk read with the next ones, unless its part turns out to have failed meanwhile."""
        blocks = chunk.blocks
        if self._ahead:  # before this one waits for those in front of it
            _read_ahead(blocks)
        if not self._batch.takes(self._blocks + blocks.number, self._bytes + blocks.size):
            yield from self._sent()
        elif len(self._noted) == MOST_CHUNKS:
            yield from self._read()
        if chunk.part.failed:
            return
        self._noted.append(chunk)
        self._blocks += blocks.number
        self._bytes += blocks.size

    def _read(self) -> Iterator[G | ShuffleError]:
        """Read what is noted, all at once."""
        if not self._noted:
            return
        chunks, self._noted = self._noted, []
        self._blocks = self._bytes = 0
        try:
            self._batch.add(chunks)
        except UNREADABLE:
            yield from self._one_by_one(chunks)

    def _one_by_one(self, chunks: Sequence[FetchChunk]) -> Iterator[G | ShuffleError]:
        """Read chunks, to find out which of them it is that cannot be read, and go on without its part."""
        for chunk in chunks:
            if chunk.part.failed:
                continue
            if not self._batch.takes(chunk.blocks.number, chunk.blocks.size):
                yield from self._sent()
            try:
                self._batch.add([chunk])
            except UNREADABLE as error:
                chunk.part.failed = True
                yield from self._sent()
                yield from chunk.instead(error)
                yield from self._read()

    def _sent(self) -> Iterator[G | ShuffleError]:
        yield from self._read()
        if self._batch.blocks:
            yield self._batch
        self._batch = self._new()


def _chunks(opened: OpenOutput, low: int, high: int) -> Iterable[ChunkBlocks]:
    """The blocks of the index rows from `low` on and below `high`."""
    file = opened.file
    if 0 < high - low <= FEW_BLOCKS:
        # A block or two of each of many files is what a stage with thousands of partitions asks for, and arrays of so
        # few rows take longer than the reading.
        few = _few_blocks(file.rows[low * PACKED_ROW.size : high * PACKED_ROW.size], opened.fd)
        if few.size <= BATCH_BYTES or few.number == 1:
            return (few,)
    return (_blocks(entries, size, opened.fd) for entries, size in _slices(file.index[low:high]))


def _few_blocks(rows: memoryview, fd: int) -> ChunkBlocks:
    """Those of a few index rows of a file."""
    table: list[memoryview] = []
    offsets: list[int] = []
    lengths: list[int] = []
    size = begin = end = 0
    for number, (_, _, length, _, _, offset) in enumerate(PACKED_ROW.iter_unpack(rows)):
        at = number * PACKED_ROW.size
        table.append(rows[at : at + BLOCK_ROW.itemsize])
        if offset != end:
            if end > begin:
                offsets.append(begin)
                lengths.append(end - begin)
            begin = offset
        end = offset + length
        size += length
    if end > begin:
        offsets.append(begin)
        lengths.append(end - begin)
    return ChunkBlocks(len(table), size, b"".join(table), [fd] * len(offsets), offsets, lengths)


def _blocks(entries: np.ndarray, size: int, files: int | np.ndarray) -> ChunkBlocks:
    """`files`: the descriptor of their file, or of each one's."""
    return ChunkBlocks(len(entries), size, encoded_table(entries), *_stretches(entries, files))


def _read_ahead(blocks: ChunkBlocks) -> None:
    """Have the disk read what is about to be asked for, as one run where little lies between the stretches."""
    for fd in set(blocks.fds):
        own = [
            (at, length) for of, at, length in zip(blocks.fds, blocks.offsets, blocks.lengths, strict=True) if of == fd
        ]
        low, high = min(at for at, _ in own), max(at + length for at, length in own)
        if high - low <= CLOSE * sum(length for _, length in own):
            own = [(low, high - low)]
        for at, length in own:
            read_ahead(fd, at, length)


def _slices(entries: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Cut index rows into slices of at most about BATCH_BYTES, with the bytes of each; a larger block is alone."""
    if len(entries) == 1:
        yield entries, int(entries["length"][0])
        return
    ends = np.cumsum(entries["length"])
    start, taken = 0, 0
    while start < len(entries):
        end = int(np.searchsorted(ends, taken + BATCH_BYTES, side="right"))
        end = min(max(end, start + 1), start + MAX_BATCH_ROWS)
        last = int(ends[end - 1])
        yield entries[start:end], last - taken
        start, taken = end, last


def _stretches(entries: np.ndarray, files: int | np.ndarray) -> tuple[list[int], list[int], list[int]]:
    """Descriptors, offsets and lengths."""
    offsets, lengths = entries["offset"], entries["length"]
    ends = offsets + lengths
    apart = offsets[1:] != ends[:-1]
    if isinstance(files, np.ndarray):
        apart |= files[1:] != files[:-1]
    last = np.flatnonzero(apart)
    firsts = np.concatenate(([0], last + 1))
    starts, stops = offsets[firsts], ends[np.concatenate((last, [len(entries) - 1]))]
    fds = files[firsts].tolist() if isinstance(files, np.ndarray) else [files] * len(firsts)
    return fds, starts.tolist(), (stops - starts).tolist()
