"""The reader's end of a relay: one pull, which lasts until every map has ended."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import numpy as np
import pyarrow as pa

from shuffle_api.errors import ShuffleError
from shuffle_api.values import Totals
from shuffle_server.worker.gather import MAX_BATCH_ROWS
from shuffle_server.worker.relay_state import RelayedShuffle
from shuffle_server.worker.relay_values import KEEPALIVE_SECONDS, TICK_SECONDS, MapEnd, Piece, RelayReader
from shuffle_transport import messages
from shuffle_transport.blocks import BATCH_BYTES, add_rows, back_to_back, get_batch
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.proto import flight_shuffle_pb2 as pb

Message = tuple[pa.RecordBatch, bytes]


def relay_messages(
    shuffle: RelayedShuffle,
    reader: RelayReader,
    schema: pa.Schema,
    cancelled: Callable[[], bool],
    served: Callable[[int, int], None],
    refused: Callable[[ShuffleError], None],
) -> Generator[Message, None, None]:
    """The messages of one pull (docs/protocol.md, Relay). A failure is the last of them.

    `served` hears of the blocks and payload bytes of each batch, `refused` of a failure.
    """
    totals = Totals()
    spoken = shuffle.clock()
    try:
        while True:
            taken = shuffle.take(reader, BATCH_BYTES, MAX_BATCH_ROWS, TICK_SECONDS, shuffle.clock())
            if taken.pieces:
                batch, rows = _batch(schema, taken.pieces)
                totals = add_rows(totals, rows)
                served(len(rows), int(rows["length"].sum()))
                yield batch, b""
                del batch
                shuffle.read(reader, taken.pieces, shuffle.clock())
            for end in taken.ends:
                yield _said(schema, _map_end(end, reader.partition))
            if taken.finished:
                shuffle.finish(reader)
                yield _said(schema, pb.GetControl(end=messages.totals_message(totals)))
                return
            now = shuffle.clock()
            if taken.pieces or taken.ends:
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


def _batch(schema: pa.Schema, pieces: Sequence[Piece]) -> tuple[pa.RecordBatch, np.ndarray]:
    """One batch of several pieces, and its block table. Small pieces are joined: one copy, fewer messages."""
    counts = [len(piece.rows) for piece in pieces]
    rows = pieces[0].rows if len(pieces) == 1 else np.concatenate([piece.rows for piece in pieces])
    payload = back_to_back([piece.payload for piece in pieces])
    maps = np.repeat(np.array([piece.output.map for piece in pieces], np.int64), counts)
    attempts = np.repeat(np.array([piece.output.attempt for piece in pieces], np.int64), counts)
    return get_batch(schema, maps, attempts, rows, payload), rows


def _map_end(end: MapEnd, partition: int) -> pb.GetControl:
    totals = messages.totals_message(end.parts.get(partition, Totals()))
    return pb.GetControl(map_end=pb.MapEnd(output=messages.attempt_of(end.output), totals=totals))


def _said(schema: pa.Schema, control: pb.GetControl) -> Message:
    none = np.empty(0, np.int64)
    return get_batch(schema, none, none, np.empty(0, BLOCK_ROW), b""), control.SerializeToString()
