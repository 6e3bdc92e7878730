"""The pull side of a worker: a ticket becomes a sequence of block batches of bounded size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from shuffle_api.errors import MapOutputLost, ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
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


@dataclass(slots=True)
class _Pieces:
    """What the next batch is made of: pieces of files, read already, of at most about BATCH_BYTES."""

    outputs: list[MapAttempt] = field(default_factory=list)
    rows: list[np.ndarray] = field(default_factory=list)
    payloads: list[bytearray] = field(default_factory=list)
    bytes: int = 0
    blocks: int = 0

    def add(self, output: MapAttempt, rows: np.ndarray, payload: bytearray) -> None:
        self.outputs.append(output)
        self.rows.append(rows)
        self.payloads.append(payload)
        self.bytes += len(payload)
        self.blocks += len(rows)

    @property
    def full(self) -> bool:
        return self.bytes >= BATCH_BYTES or self.blocks >= MAX_BATCH_ROWS


def serve(
    store: Store,
    worker: str,
    schema: pa.Schema,
    shuffle: ShuffleId,
    ranges: Sequence[OutputRange],
    served: Callable[[int], None],
    lost: Callable[[MapOutputLost], None],
) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    """The messages of one pull: batches with their application metadata, the end last (docs/protocol.md, Pull).

    `served` hears of the payload bytes of each batch, `lost` of every map output that turned out to be gone.
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
        payload = item.payloads[0] if len(item.payloads) == 1 else b"".join(item.payloads)
        counts = [len(r) for r in item.rows]
        maps = np.repeat(np.array([o.map for o in item.outputs], np.int64), counts)
        attempts = np.repeat(np.array([o.attempt for o in item.outputs], np.int64), counts)
        totals = add_rows(totals, rows)
        served(item.bytes)
        yield get_batch(schema, maps, attempts, rows, payload), b""
    yield _empty(schema), pb.GetControl(end=messages.totals_message(totals)).SerializeToString()


def _batches(store: Store, shuffle: ShuffleId, ranges: Sequence[OutputRange]) -> Iterator[_Pieces | ShuffleError]:
    """Batches to send, and in their place in the order the errors of outputs that cannot be served."""
    pieces = _Pieces()
    for wanted in ranges:
        try:
            file, fd = store.open_output(shuffle, wanted.output)
        except MapOutputLost as error:
            if pieces.blocks:
                yield pieces
                pieces = _Pieces()
            yield error
            continue
        try:
            for run in _runs(file.entries(wanted.first, wanted.end), BATCH_BYTES):
                start = int(run["offset"][0])
                payload = bytearray(int(run["offset"][-1] + run["length"][-1]) - start)
                read_into(fd, start, memoryview(payload))
                pieces.add(wanted.output, table_of(run), payload)
                if pieces.full:
                    yield pieces
                    pieces = _Pieces()
        except (TornFile, OSError) as error:
            if pieces.blocks:
                yield pieces
                pieces = _Pieces()
            yield MapOutputLost(
                f"{file.path}: {error}", remedy="run this map again", shuffle=shuffle, output=wanted.output
            )
        finally:
            os.close(fd)
    if pieces.blocks:
        yield pieces


def _runs(entries: np.ndarray, limit: int) -> Iterator[np.ndarray]:
    """Cut index rows into runs that lie back to back in the file, of about `limit` bytes; a larger block is alone."""
    if not len(entries):
        return
    ends = entries["offset"] + entries["length"]
    gaps = np.flatnonzero(entries["offset"][1:] != ends[:-1]) + 1
    for part in np.split(entries, gaps) if len(gaps) else [entries]:
        sizes = np.cumsum(part["length"])
        if sizes[-1] <= limit and len(part) <= MAX_BATCH_ROWS:
            yield part
            continue
        start, taken = 0, 0
        while start < len(part):
            end = int(np.searchsorted(sizes, taken + limit, side="right"))
            end = min(max(end, start + 1), start + MAX_BATCH_ROWS)
            yield part[start:end]
            start, taken = end, int(sizes[end - 1])


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    none = np.empty(0, np.int64)
    return get_batch(schema, none, none, np.empty(0, BLOCK_ROW), b"")
