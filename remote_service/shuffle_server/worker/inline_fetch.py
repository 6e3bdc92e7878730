"""A small pull in one answer: the action `get` (docs/protocol.md).

One message carries the content of a stream's several, each of which passes several threads on both sides. In all
other cases the reply makes the client pull with a stream, whose messages cover them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import ShuffleId
from shuffle_api.values import Totals
from shuffle_server.store.output_file import read_range
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from shuffle_server.worker.pull_room import PullRoom
from shuffle_server.worker.read_plan import ChunkBatch, FetchChunk, ReadPlan
from shuffle_transport import messages
from shuffle_transport.blocks import add_table
from shuffle_transport.proto import flight_shuffle_pb2 as pb

ACTION = "get"
MOST_BYTES = 1 << 20  # payload of an answer, which is copied oftener than that of a stream
MOST_BLOCKS = 16_384  # the table row of each and the output it belongs to take 48 bytes

_STREAM = pb.WholeGet(stream=True).SerializeToString()
_PAYLOAD = pb.WholeGet.PAYLOAD_FIELD_NUMBER


class _TooMuch(Exception):
    """More than one answer holds."""


class _InlineChunks(ChunkBatch):
    """The payloads as they were read, to be joined with their table."""

    def __init__(self, room: PullRoom | None = None) -> None:
        super().__init__()
        self._room = room
        self.payloads: list[bytes | bytearray] = []

    def takes(self, blocks: int, size: int) -> bool:
        if self.bytes + size > MOST_BYTES or self.blocks + blocks > MOST_BLOCKS:
            raise _TooMuch
        return True

    def _read(self, chunks: Sequence[FetchChunk], size: int) -> None:
        if self._room is not None and self.blocks:
            self._room.grow(self.bytes + size)
        elif self._room is not None:
            self._room.begin(size)
        self.payloads += [
            read_range(fd, offset, length)
            for _, _, _, blocks, _ in chunks
            for fd, offset, length in zip(blocks.fds, blocks.offsets, blocks.lengths, strict=True)
        ]


_NOTHING = _InlineChunks()
_NOTHING.last = True


def fetch_inline(
    store: Store,
    shuffle: ShuffleId,
    ranges: Sequence[OutputRange],
    served: Callable[[int, int], None],
    room: PullRoom,
) -> bytes:
    """The encoded WholeGet. `served` receives its blocks and payload bytes. Raises Overloaded: there is no memory."""
    with closing(ReadPlan(store, shuffle, partial(_InlineChunks, room)).batches(ranges)) as items:
        try:
            found = next(items, _NOTHING)
        except _TooMuch:
            return _STREAM
        if isinstance(found, ShuffleError) or not found.last:
            return _STREAM
    served(found.blocks, found.bytes)
    table = found.table
    end = messages.totals_message(add_table(Totals(), table))
    head = pb.WholeGet(maps=found.maps, attempts=found.attempts, table=table, end=end)
    # The payload is its last field, joined by hand: as a field of an object it would be copied twice more.
    return b"".join([head.SerializeToString(), messages.bytes_head(_PAYLOAD, found.bytes), *found.payloads])
