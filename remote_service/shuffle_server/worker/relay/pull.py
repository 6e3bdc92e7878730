"""The reader's end of a relay: one pull, which lasts until every map has ended."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import numpy as np
import pyarrow as pa

from shuffle_api.errors import ShuffleError
from shuffle_api.values import Totals
from shuffle_server.worker.read_plan import MAX_BATCH_ROWS
from shuffle_server.worker.relay.streaming_shuffle import StreamingShuffle
from shuffle_server.worker.relay.values import KEEPALIVE_SECONDS, TICK_SECONDS, MapEnd, RelayChunk, RelayReader
from shuffle_transport import messages
from shuffle_transport.blocks import BATCH_BYTES, add_rows, back_to_back, get_batch
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.proto import flight_shuffle_pb2 as pb

Message = tuple[pa.RecordBatch, bytes]


def relay_messages(
    shuffle: StreamingShuffle,
    reader: RelayReader,
    schema: pa.Schema,
    cancelled: Callable[[], bool],
    served: Callable[[int, int], None],
    refused: Callable[[ShuffleError], None],
) -> Generator[Message, None, None]:
    """The messages of one pull (docs/protocol.md, Relay). A failure is the last of them.

    `served` receives the blocks and payload bytes of each batch, `refused` a failure.
    """
    totals = Totals()
    spoken = shuffle.clock()
    try:
        while True:
            taken = shuffle.take(reader, BATCH_BYTES, MAX_BATCH_ROWS, TICK_SECONDS, shuffle.clock())
            if taken.chunks:
                batch, rows = _batch(schema, taken.chunks)
                totals = add_rows(totals, rows)
                served(len(rows), int(rows["length"].sum()))
                yield batch, b""
                del batch
                shuffle.read(reader, taken.chunks, shuffle.clock())
            for end in taken.ends:
                yield _said(schema, _map_end(end, reader.partition))
            if taken.finished:
                shuffle.finish(reader)
                yield _said(schema, pb.GetControl(end=messages.totals_message(totals)))
                return
            now = shuffle.clock()
            if taken.chunks or taken.ends:
                spoken = now
                continue
            if cancelled():
                return
            shuffle.watch(now)
            if now - spoken > KEEPALIVE_SECONDS:
                spoken = now
                yield _said(schema, pb.GetControl())
    except ShuffleError as error:
        refused(error)
        yield _said(schema, pb.GetControl(error=messages.error_message(error)))
    finally:
        shuffle.leave_reader(reader, "left", shuffle.clock())


def _batch(schema: pa.Schema, chunks: Sequence[RelayChunk]) -> tuple[pa.RecordBatch, np.ndarray]:
    """One batch of several chunks, and its block table. Small chunks are joined: one copy, fewer messages."""
    counts = [len(chunk.rows) for chunk in chunks]
    rows = chunks[0].rows if len(chunks) == 1 else np.concatenate([chunk.rows for chunk in chunks])
    payload = back_to_back([chunk.payload for chunk in chunks])
    maps = np.repeat(np.array([chunk.output.map for chunk in chunks], np.int64), counts)
    attempts = np.repeat(np.array([chunk.output.attempt for chunk in chunks], np.int64), counts)
    return get_batch(schema, maps, attempts, rows, payload), rows


def _map_end(end: MapEnd, partition: int) -> pb.GetControl:
    totals = messages.totals_message(end.parts.get(partition, Totals()))
    return pb.GetControl(map_end=pb.MapEnd(output=messages.attempt_of(end.output), totals=totals))


def _said(schema: pa.Schema, control: pb.GetControl) -> Message:
    none = np.empty(0, np.int64)
    return get_batch(schema, none, none, np.empty(0, BLOCK_ROW), b""), control.SerializeToString()
