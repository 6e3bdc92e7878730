"""The pull side of a worker: a ticket becomes a sequence of block batches of bounded size."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Generator, Iterator, Sequence

import numpy as np
import pyarrow as pa

from shuffle_api.errors import MapOutputLost, Overloaded, ShuffleError, StorageFailed, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_server.store.directory import busy
from shuffle_server.store.format import TornFile
from shuffle_server.store.output_file import encoded_table, read_into
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.region import REGION_ROW
from shuffle_server.store.regions import LITTLE_BYTES, Run
from shuffle_server.store.store import Store
from shuffle_transport import messages
from shuffle_transport.blocks import BATCH_BYTES, add_rows, get_batch
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.proto import flight_shuffle_pb2 as pb

MAX_BATCH_ROWS = 4096
_INT64 = struct.Struct("<q")

log = logging.getLogger(__name__)


class _Gathered:
    """What the next batch is made of: pieces of files, read one behind the other into one buffer.

    Ids and table rows are gathered as bytes: most pieces are of a block or two, for which arrays cost more than
    reading. `last` says that no more batches follow.
    """

    def __init__(self) -> None:
        self._maps: list[bytes] = []
        self._attempts: list[bytes] = []
        self._rows: list[bytes] = []
        self.blocks = self.bytes = 0
        self._buffer: pa.Buffer | None = None
        self.last = False

    def takes(self, blocks: int, size: int) -> bool:
        """Whether there is room for so much besides what is there. Anything fits into an empty batch."""
        return not self.blocks or (self.bytes + size <= BATCH_BYTES and self.blocks + blocks <= MAX_BATCH_ROWS)

    def read(self, maps: bytes, attempts: bytes, fd: int, entries: np.ndarray, size: int) -> None:
        """Read the blocks of some index rows, `size` bytes, whose outputs are given row by row (int64).

        Raises TornFile, OSError; then the batch is as it was.
        """
        if not self.blocks:  # also after a read that failed, whose buffer may be too small for this one
            self._buffer = pa.allocate_buffer(max(size, BATCH_BYTES))
        assert self._buffer is not None
        target = memoryview(self._buffer).cast("B")[self.bytes : self.bytes + size]
        for offset, length in _runs(entries):
            read_into(fd, offset, target[:length])
            target = target[length:]
        self._maps.append(maps)
        self._attempts.append(attempts)
        self._rows.append(encoded_table(entries))
        self.bytes += size
        self.blocks += len(entries)

    @property
    def rows(self) -> np.ndarray:
        return np.frombuffer(b"".join(self._rows), BLOCK_ROW)

    def batch(self, schema: pa.Schema, rows: np.ndarray) -> pa.RecordBatch:
        """The message; `rows` are its own."""
        assert self._buffer is not None
        maps, attempts = (np.frombuffer(b"".join(ids), np.int64) for ids in (self._maps, self._attempts))
        return get_batch(schema, maps, attempts, rows, self._buffer.slice(0, self.bytes))


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
    ended = False
    for item in _Pull(store, shuffle).batches(ranges):
        if isinstance(item, ShuffleError):
            item.worker = worker
            if isinstance(item, MapOutputLost):
                lost(item)
            yield _empty(schema), pb.GetControl(error=messages.error_message(item)).SerializeToString()
            continue
        rows = item.rows
        totals = add_rows(totals, rows)
        served(item.blocks, item.bytes)
        ended = item.last
        yield item.batch(schema, rows), _end(totals) if ended else b""
    if not ended:
        yield _empty(schema), _end(totals)


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
        self._store.regions.note(self._shuffle, self._little)
        self._batch.last = True
        yield from self._sent()

    def _of_region(self, run: Run) -> Batches:
        region, wanted = run.region, run.ranges[0]
        served = 0
        rows = np.empty(0, REGION_ROW)
        try:
            rows = region.rows(wanted.first, wanted.end, run.places)
            for entries, size in _slices(rows):
                yield from self._room_for(len(entries), size)
                places = entries["output"]
                maps, attempts = region.maps[places].tobytes(), region.attempts[places].tobytes()
                self._batch.read(maps, attempts, region.fd, entries, size)
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
            total = 0
            for entries, size in _slices(found):
                yield from self._room_for(len(entries), size)
                maps, attempts = (
                    _INT64.pack(each) * len(entries) for each in (wanted.output.map, wanted.output.attempt)
                )
                self._batch.read(maps, attempts, fd, entries, size)
                total += size
            if total <= LITTLE_BYTES:
                self._little.append(wanted.output)
        except (TornFile, OSError) as error:
            yield from self._sent()
            yield busy(error, self._shuffle, wanted.output) or MapOutputLost(
                f"{file.path}: {error}", remedy="run this map again", shuffle=self._shuffle, output=wanted.output
            )
        finally:
            os.close(fd)

    def _room_for(self, blocks: int, size: int) -> Batches:
        if not self._batch.takes(blocks, size):
            yield from self._sent()

    def _sent(self) -> Batches:
        if self._batch.blocks:
            yield self._batch
        self._batch = _Gathered()


def _end(totals: Totals) -> bytes:
    return pb.GetControl(end=messages.totals_message(totals)).SerializeToString()


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


def _runs(entries: np.ndarray) -> Iterator[tuple[int, int]]:
    """Offset and length of the stretches of the file in which the blocks lie, blocks that are neighbours joined."""
    if len(entries) == 1:
        yield int(entries["offset"][0]), int(entries["length"][0])
        return
    ends = entries["offset"] + entries["length"]
    last = np.flatnonzero(entries["offset"][1:] != ends[:-1])
    starts = entries["offset"][np.concatenate(([0], last + 1))]
    stops = ends[np.concatenate((last, [len(entries) - 1]))]
    yield from zip(starts.tolist(), (stops - starts).tolist(), strict=True)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    none = np.empty(0, np.int64)
    return get_batch(schema, none, none, np.empty(0, BLOCK_ROW), b"")
