"""What a pull asks for, read piece by piece out of files and merged regions, in the order of its ticket."""

from __future__ import annotations

import logging
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from shuffle_api.errors import MapOutputLost, Overloaded, ShuffleError, StorageFailed, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.directory import busy
from shuffle_server.store.format import PACKED_ROW, TornFile
from shuffle_server.store.output_file import OutputFile, encoded_table
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.region import REGION_ROW
from shuffle_server.store.regions import LITTLE_BYTES, Run
from shuffle_server.store.store import Store
from shuffle_transport.blocks import BATCH_BYTES
from shuffle_transport.checksum import BLOCK_ROW

MAX_BATCH_ROWS = 4096
FEW_BLOCKS = 16  # of a file, which are looked at one by one
_INT64 = struct.Struct("<q")

log = logging.getLogger(__name__)


class Piece(NamedTuple):
    """Blocks of one file: how many, their payload bytes, their block table rows, and offset and length of the stretches
    of the file in which the payloads lie, neighbours joined."""

    blocks: int
    size: int
    table: bytes | memoryview
    stretches: Iterable[tuple[int, int]]


class Gathered(ABC):
    """What the next message is made of: pieces of files. Where their payloads go is a subclass's.

    Ids and table rows are gathered as bytes: most pieces are of a block or two, for which arrays cost more than
    reading. `last` says that no more follows.
    """

    def __init__(self) -> None:
        self._maps: list[bytes] = []
        self._attempts: list[bytes] = []
        self._rows: list[bytes | memoryview] = []
        self.blocks = self.bytes = 0
        self.last = False

    @abstractmethod
    def takes(self, blocks: int, size: int) -> bool:
        """Whether so much goes in besides what is there. If not, it goes into the next one, which is not asked.

        What it raises ends the pull.
        """

    @abstractmethod
    def _read(self, fd: int, piece: Piece) -> None:
        """Read the payloads of a piece. Raises TornFile, OSError; then all is as it was."""

    def read(self, maps: bytes, attempts: bytes, fd: int, piece: Piece) -> None:
        """Read a piece, whose outputs are given block by block (int64).

        Raises TornFile, OSError; then what was gathered is as it was.
        """
        self._read(fd, piece)
        self._maps.append(maps)
        self._attempts.append(attempts)
        self._rows.append(piece.table)
        self.bytes += piece.size
        self.blocks += piece.blocks

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
        return b"".join(self._rows)


G = TypeVar("G", bound=Gathered)


class Gatherer(Generic[G]):
    """Reads one pull: what was gathered, in objects that `new` makes, and in their place in the order the errors of
    outputs that cannot be served."""

    def __init__(self, store: Store, shuffle: ShuffleId, new: Callable[[], G]) -> None:
        self._store, self._shuffle, self._new = store, shuffle, new
        self._kept = store.kept(shuffle)
        self._gathered = new()
        self._little: list[MapAttempt] = []  # outputs of which little was read, file by file

    def gathered(self, ranges: Sequence[OutputRange]) -> Generator[G | ShuffleError, None, None]:
        """Those of one pull; call once."""
        for piece in self._store.merged(self._shuffle, ranges):
            yield from self._of_region(piece) if isinstance(piece, Run) else self._of_file(piece)
        self._store.regions.note(self._shuffle, self._little)
        self._gathered.last = True
        yield from self._sent()

    def _of_region(self, run: Run) -> Iterator[G | ShuffleError]:
        region, wanted = run.region, run.ranges[0]
        served = 0
        rows = np.empty(0, REGION_ROW)
        try:
            rows = region.rows(wanted.first, wanted.end, run.places)
            for entries, size in _slices(rows):
                if not self._gathered.takes(len(entries), size):
                    yield from self._sent()
                places = entries["output"]
                maps, attempts = region.maps[places].tobytes(), region.attempts[places].tobytes()
                self._gathered.read(maps, attempts, region.fd, _piece(entries, size))
                served += len(entries)
        except (TornFile, OSError) as error:
            log.warning("a merged region of %s cannot be read, the outputs themselves are: %s", self._shuffle, error)
            self._store.regions.forget(lambda shuffle: shuffle == self._shuffle)
            for place, each in zip(run.places.tolist(), run.ranges, strict=True):
                yield from self._of_file(each, int(np.count_nonzero(rows["output"][:served] == place)))

    def _of_file(self, wanted: OutputRange, skip: int = 0) -> Iterator[G | ShuffleError]:
        """The blocks of a range but for the first `skip`."""
        try:
            opened = self._kept.find(wanted.output) or self._store.open_kept(self._shuffle, wanted.output)
        except (MapOutputLost, StorageFull, StorageFailed, Overloaded) as error:
            error.output = wanted.output
            yield from self._sent()
            yield error
            return
        file, total = opened.file, 0
        map_id, attempt = _INT64.pack(wanted.output.map), _INT64.pack(wanted.output.attempt)
        try:
            low, high = file.span(wanted.first, wanted.end)
            for piece in _pieces(file, low + skip, high):
                if not self._gathered.takes(piece.blocks, piece.size):
                    yield from self._sent()
                self._gathered.read(map_id * piece.blocks, attempt * piece.blocks, opened.fd, piece)
                total += piece.size
            if total <= LITTLE_BYTES:
                self._little.append(wanted.output)
        except (TornFile, OSError) as error:
            yield from self._sent()
            yield busy(error, self._shuffle, wanted.output) or MapOutputLost(
                f"{file.path}: {error}", remedy="run this map again", shuffle=self._shuffle, output=wanted.output
            )

    def _sent(self) -> Iterator[G | ShuffleError]:
        if self._gathered.blocks:
            yield self._gathered
        self._gathered = self._new()


def _pieces(file: OutputFile, low: int, high: int) -> Iterable[Piece]:
    """The blocks of the index rows from `low` on and below `high`."""
    if 0 < high - low <= FEW_BLOCKS:
        # A block or two of each of many files is what a stage with thousands of partitions asks for, and arrays of so
        # few rows take longer than the reading.
        piece = _small_piece(file.rows[low * PACKED_ROW.size : high * PACKED_ROW.size])
        if piece.size <= BATCH_BYTES or piece.blocks == 1:
            return (piece,)
    return (_piece(entries, size) for entries, size in _slices(file.index[low:high]))


def _small_piece(rows: memoryview) -> Piece:
    """The piece of a few index rows."""
    table: list[memoryview] = []
    stretches: list[tuple[int, int]] = []
    size = begin = end = 0
    for number, (_, _, length, _, _, offset) in enumerate(PACKED_ROW.iter_unpack(rows)):
        at = number * PACKED_ROW.size
        table.append(rows[at : at + BLOCK_ROW.itemsize])
        if offset != end:
            if end > begin:
                stretches.append((begin, end - begin))
            begin = offset
        end = offset + length
        size += length
    if end > begin:
        stretches.append((begin, end - begin))
    return Piece(len(table), size, b"".join(table), stretches)


def _piece(entries: np.ndarray, size: int) -> Piece:
    return Piece(len(entries), size, encoded_table(entries), _stretches(entries))


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


def _stretches(entries: np.ndarray) -> Iterator[tuple[int, int]]:
    if len(entries) == 1:
        yield int(entries["offset"][0]), int(entries["length"][0])
        return
    ends = entries["offset"] + entries["length"]
    last = np.flatnonzero(entries["offset"][1:] != ends[:-1])
    starts = entries["offset"][np.concatenate(([0], last + 1))]
    stops = ends[np.concatenate((last, [len(entries) - 1]))]
    yield from zip(starts.tolist(), (stops - starts).tolist(), strict=True)
