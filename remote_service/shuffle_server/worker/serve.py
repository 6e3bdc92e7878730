"""The pull side of a worker: a ticket becomes a sequence of block batches of bounded size."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from shuffle_api.errors import MapOutputLost, Overloaded, ShuffleError, StorageFailed, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_server.store.directory import busy
from shuffle_server.store.format import TornFile
from shuffle_server.store.output_file import read_into, table_of
from shuffle_server.store.store import Store
from shuffle_transport import messages
from shuffle_transport.blocks import BATCH_BYTES, add_rows, get_batch
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.proto import flight_shuffle_pb2 as pb

MAX_BATCH_ROWS = 4096


@dataclass(frozen=True, slots=True)
class OutputRange:
    """Partitions [first, end) of one map output."""

    output: MapAttempt
    first: int
    end: int


class _Gathered:
    """What the next batch is made of: pieces of files, read one behind the other into one buffer."""

    def __init__(self) -> None:
        self.outputs: list[MapAttempt] = []
        self.rows: list[np.ndarray] = []
        self.blocks = self.bytes = 0
        self._buffer: pa.Buffer | None = None

    def takes(self, entries: np.ndarray) -> bool:
        """Whether there is room for these besides what is there. Anything fits into an empty batch."""
        return not self.blocks or (
            self.bytes + _size(entries) <= BATCH_BYTES and self.blocks + len(entries) <= MAX_BATCH_ROWS
        )

    def read(self, output: MapAttempt, fd: int, entries: np.ndarray) -> None:
        """Read the blocks of some index rows. Raises TornFile, OSError; then the batch is as it was."""
        size = _size(entries)
        if self._buffer is None:
            self._buffer = pa.allocate_buffer(max(size, BATCH_BYTES))
        target = memoryview(self._buffer).cast("B")[self.bytes : self.bytes + size]
        for offset, length in _runs(entries):
            read_into(fd, offset, target[:length])
            target = target[length:]
        self.outputs.append(output)
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
    for item in _batches(store, shuffle, ranges):
        if isinstance(item, ShuffleError):
            item.worker = worker
            if isinstance(item, MapOutputLost):
                lost(item)
            yield _empty(schema), pb.GetControl(error=messages.error_message(item)).SerializeToString()
            continue
        rows = item.rows[0] if len(item.rows) == 1 else np.concatenate(item.rows)
        counts = [len(r) for r in item.rows]
        maps = np.repeat(np.array([o.map for o in item.outputs], np.int64), counts)
        attempts = np.repeat(np.array([o.attempt for o in item.outputs], np.int64), counts)
        totals = add_rows(totals, rows)
        served(item.blocks, item.bytes)
        yield get_batch(schema, maps, attempts, rows, item.payload), b""
    yield _empty(schema), pb.GetControl(end=messages.totals_message(totals)).SerializeToString()


def _batches(store: Store, shuffle: ShuffleId, ranges: Sequence[OutputRange]) -> Iterator[_Gathered | ShuffleError]:
    """Batches to send, and in their place in the order the errors of outputs that cannot be served."""
    batch = _Gathered()
    for wanted in ranges:
        try:
            file, fd = store.open_output(shuffle, wanted.output)
        except (MapOutputLost, StorageFull, StorageFailed, Overloaded) as error:
            error.output = wanted.output
            if batch.blocks:
                yield batch
                batch = _Gathered()
            yield error
            continue
        try:
            for entries in _slices(file.entries(wanted.first, wanted.end)):
                if not batch.takes(entries):
                    yield batch
                    batch = _Gathered()
                batch.read(wanted.output, fd, entries)
        except (TornFile, OSError) as error:
            if batch.blocks:
                yield batch
            batch = _Gathered()
            yield busy(error, shuffle, wanted.output) or MapOutputLost(
                f"{file.path}: {error}", remedy="run this map again", shuffle=shuffle, output=wanted.output
            )
        finally:
            os.close(fd)
    if batch.blocks:
        yield batch


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
