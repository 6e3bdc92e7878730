"""The pull side of a worker: a ticket becomes a sequence of block batches of bounded size."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterator, Sequence

import numpy as np
import pyarrow as pa

from shuffle_api.errors import MapOutputLost, Overloaded, ShuffleError, StorageFailed, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_server.store.directory import busy
from shuffle_server.store.format import TornFile
from shuffle_server.store.output_file import read_into, table_of
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.region import REGION_ROW
from shuffle_server.store.regions import LITTLE_BYTES, Run
from shuffle_server.store.store import Store
from shuffle_transport import messages
from shuffle_transport.blocks import BATCH_BYTES, add_rows, get_batch
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.proto import flight_shuffle_pb2 as pb

MAX_BATCH_ROWS = 4096

log = logging.getLogger(__name__)


class _Gathered:
    """What the next batch is made of: pieces of files, read one behind the other into one buffer."""

    def __init__(self) -> None:
        self.maps: list[np.ndarray] = []
        self.attempts: list[np.ndarray] = []
        self.rows: list[np.ndarray] = []
        self.blocks = self.bytes = 0
        self._buffer: pa.Buffer | None = None

    def takes(self, entries: np.ndarray) -> bool:
        """Whether there is room for these besides what is there. Anything fits into an empty batch."""
        return not self.blocks or (
            self.bytes + _size(entries) <= BATCH_BYTES and self.blocks + len(entries) <= MAX_BATCH_ROWS
        )

    def read(self, maps: np.ndarray, attempts: np.ndarray, fd: int, entries: np.ndarray) -> None:
        """Read the blocks of some index rows, whose outputs are given row by row. Raises TornFile, OSError; then the
        batch is as it was.
        """
        size = _size(entries)
        if self._buffer is None:
            self._buffer = pa.allocate_buffer(max(size, BATCH_BYTES))
        target = memoryview(self._buffer).cast("B")[self.bytes : self.bytes + size]
        for offset, length in _runs(entries):
            read_into(fd, offset, target[:length])
            target = target[length:]
        self.maps.append(maps)
        self.attempts.append(attempts)
        self.rows.append(table_of(entries))
        self.bytes += size
        self.blocks += len(entries)

    @property
    def payload(self) -> pa.Buffer:
        assert self._buffer is not None
        return self._buffer.slice(0, self.bytes)


def serve(
    store: Store,
    worker: str,
    schema: pa.Schema,
    shuffle: ShuffleId,
    ranges: Sequence[OutputRange],
    served: Callable[[int, int], None],
    lost: Callable[[MapOutputLost], None],
) -> Generator[tuple[pa.RecordBatch, bytes], None, None]:
    """The messages of one pull: batches with their application metadata, the end last (docs/protocol.md, Pull).

    `served` hears of the blocks and payload bytes of each batch, `lost` of every map output that turned out to be gone.
    """
    totals = Totals()
    for item in _Pull(store, shuffle).batches(ranges):
        if isinstance(item, ShuffleError):
            item.worker = worker
            if isinstance(item, MapOutputLost):
                lost(item)
            yield _empty(schema), pb.GetControl(error=messages.error_message(item)).SerializeToString()
            continue
        rows, maps, attempts = _joined(item.rows), _joined(item.maps), _joined(item.attempts)
        totals = add_rows(totals, rows)
        served(item.blocks, item.bytes)
        yield get_batch(schema, maps, attempts, rows, item.payload), b""
    yield _empty(schema), pb.GetControl(end=messages.totals_message(totals)).SerializeToString()


Batches = Iterator[_Gathered | ShuffleError]


class _Pull:
    """Batches to send, and in their place in the order the errors of outputs that cannot be served."""

    def __init__(self, store: Store, shuffle: ShuffleId) -> None:
        self._store, self._shuffle = store, shuffle
        self._batch = _Gathered()
        self._little: list[MapAttempt] = []  # outputs of which little was read, file by file

    def batches(self, ranges: Sequence[OutputRange]) -> Batches:
        """Those of one pull; call once."""
        for piece in self._store.merged(self._shuffle, ranges):
            yield from self._of_region(piece) if isinstance(piece, Run) else self._of_file(piece)
        yield from self._sent()
        self._store.regions.note(self._shuffle, self._little)

    def _of_region(self, run: Run) -> Batches:
        region, wanted = run.region, run.ranges[0]
        served = 0
        rows = np.empty(0, REGION_ROW)
        try:
            rows = region.rows(wanted.first, wanted.end, run.places)
            for entries in _slices(rows):
                yield from self._room_for(entries)
                places = entries["output"]
                self._batch.read(region.maps[places], region.attempts[places], region.fd, entries)
                served += len(entries)
        except (TornFile, OSError) as error:
            log.warning("a merged region of %s cannot be read, the outputs themselves are: %s", self._shuffle, error)
            self._store.regions.forget(lambda shuffle: shuffle == self._shuffle)
            for place, each in zip(run.places.tolist(), run.ranges, strict=True):
                yield from self._of_file(each, int(np.count_nonzero(rows["output"][:served] == place)))

    def _of_file(self, wanted: OutputRange, skip: int = 0) -> Batches:
        """The blocks of a range but for the first `skip`."""
        try:
            file, fd = self._store.open_output(self._shuffle, wanted.output)
        except (MapOutputLost, StorageFull, StorageFailed, Overloaded) as error:
            error.output = wanted.output
            yield from self._sent()
            yield error
            return
        try:
            found = file.entries(wanted.first, wanted.end)[skip:]
            for entries in _slices(found):
                yield from self._room_for(entries)
                count = len(entries)
                maps, attempts = np.full(count, wanted.output.map), np.full(count, wanted.output.attempt)
                self._batch.read(maps, attempts, fd, entries)
            if _size(found) <= LITTLE_BYTES:
                self._little.append(wanted.output)
        except (TornFile, OSError) as error:
            yield from self._sent()
            yield busy(error, self._shuffle, wanted.output) or MapOutputLost(
                f"{file.path}: {error}", remedy="run this map again", shuffle=self._shuffle, output=wanted.output
            )
        finally:
            os.close(fd)

    def _room_for(self, entries: np.ndarray) -> Batches:
        if not self._batch.takes(entries):
            yield from self._sent()

    def _sent(self) -> Batches:
        if self._batch.blocks:
            yield self._batch
        self._batch = _Gathered()


def _joined(pieces: list[np.ndarray]) -> np.ndarray:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _size(entries: np.ndarray) -> int:
    return int(entries["length"].sum())


def _slices(entries: np.ndarray) -> Iterator[np.ndarray]:
    """Cut index rows into slices of at most about BATCH_BYTES; a larger block is alone."""
    ends = np.cumsum(entries["length"])
    start, taken = 0, 0
    while start < len(entries):
        end = int(np.searchsorted(ends, taken + BATCH_BYTES, side="right"))
        end = min(max(end, start + 1), start + MAX_BATCH_ROWS)
        yield entries[start:end]
        start, taken = end, int(ends[end - 1])


def _runs(entries: np.ndarray) -> Iterator[tuple[int, int]]:
    """Offset and length of the stretches of the file in which the blocks lie, blocks that are neighbours joined."""
    ends = entries["offset"] + entries["length"]
    last = np.flatnonzero(entries["offset"][1:] != ends[:-1])
    starts = entries["offset"][np.concatenate(([0], last + 1))]
    stops = ends[np.concatenate((last, [len(entries) - 1]))]
    yield from zip(starts.tolist(), (stops - starts).tolist(), strict=True)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    none = np.empty(0, np.int64)
    return get_batch(schema, none, none, np.empty(0, BLOCK_ROW), b"")
