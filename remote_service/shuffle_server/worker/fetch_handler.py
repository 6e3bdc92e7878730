"""The pull side of a worker: a ticket becomes a sequence of block batches of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from shuffle_api.errors import MapOutputLost, ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_api.values import Totals
from shuffle_server.store.output_file import read_ranges
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from shuffle_server.worker.pull_room import PullRoom
from shuffle_server.worker.read_plan import MAX_BATCH_ROWS, ChunkBatch, FetchChunk, ReadPlan
from shuffle_transport import messages
from shuffle_transport.blocks import BATCH_BYTES, add_rows, get_batch
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.proto import flight_shuffle_pb2 as pb


class _FetchBatch(ChunkBatch):
    """The next batch: its payloads are read one behind the other into one buffer."""

    def __init__(self, room: PullRoom) -> None:
        super().__init__()
        self._room = room
        self._buffer: pa.Buffer | None = None

    def takes(self, blocks: int, size: int) -> bool:
        return self.bytes + size <= BATCH_BYTES and self.blocks + blocks <= MAX_BATCH_ROWS

    def _read(self, chunks: Sequence[FetchChunk], size: int) -> None:
        if self.blocks:
            self._room.grow(self.bytes + size)
        else:  # also after a read that failed, whose buffer may be too small for this one
            self._room.begin(size)
            self._buffer = pa.allocate_buffer(max(size, BATCH_BYTES))
        assert self._buffer is not None
        fds: list[int] = []
        offsets: list[int] = []
        lengths: list[int] = []
        for _, _, _, blocks, _ in chunks:
            fds += blocks.fds
            offsets += blocks.offsets
            lengths += blocks.lengths
        read_ranges(fds, offsets, lengths, memoryview(self._buffer).cast("B")[self.bytes : self.bytes + size])

    def message(self, schema: pa.Schema, rows: np.ndarray) -> pa.RecordBatch:
        """`rows` are its own."""
        assert self._buffer is not None
        maps, attempts = (np.frombuffer(ids, np.int64) for ids in (self.maps, self.attempts))
        return get_batch(schema, maps, attempts, rows, self._buffer.slice(0, self.bytes))


def serve(
    store: Store,
    worker: str,
    schema: pa.Schema,
    shuffle: ShuffleId,
    ranges: Sequence[OutputRange],
    served: Callable[[int, int], None],
    lost: Callable[[MapOutputLost], None],
    room: PullRoom,
) -> Generator[tuple[pa.RecordBatch, bytes], None, None]:
    """The messages of one pull: batches with their application metadata, the end last (docs/protocol.md, Pull).

    `served` receives the blocks and payload bytes of each batch, `lost` every map output that turned out to be gone.
    Raises Overloaded when there is no memory for it in time.
    """
    with room:
        yield from _served(
            ReadPlan(store, shuffle, partial(_FetchBatch, room)).batches(ranges), worker, schema, served, lost
        )


def _served(
    batches: Iterable[_FetchBatch | ShuffleError],
    worker: str,
    schema: pa.Schema,
    served: Callable[[int, int], None],
    lost: Callable[[MapOutputLost], None],
) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    totals = Totals()
    ended = False
    for item in batches:
        if isinstance(item, ShuffleError):
            item.worker = worker
            if isinstance(item, MapOutputLost):
                lost(item)
            yield _empty(schema), pb.GetControl(error=messages.error_message(item)).SerializeToString()
            continue
        rows = np.frombuffer(item.table, BLOCK_ROW)
        totals = add_rows(totals, rows)
        served(item.blocks, item.bytes)
        ended = item.last
        yield item.message(schema, rows), _end(totals) if ended else b""
    if not ended:
        yield _empty(schema), _end(totals)


def _end(totals: Totals) -> bytes:
    return pb.GetControl(end=messages.totals_message(totals)).SerializeToString()


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    none = np.empty(0, np.int64)
    return get_batch(schema, none, none, np.empty(0, BLOCK_ROW), b"")
