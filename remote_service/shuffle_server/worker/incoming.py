"""The messages of a push or a channel, as they come from Flight."""

from __future__ import annotations

from typing import Any, Self

import pyarrow as pa
import pyarrow.flight as fl

from shuffle_api.errors import InvalidArgument
from shuffle_server.worker.connection_guard import Peer

LARGE_BYTES = 64 << 10
"""From this size on it is looked at whether a batch was expanded."""


class Incoming:
    """The messages until the sender half-closes, noted as taken up.

    A stream that breaks ends with a Flight or Arrow error. A batch that Arrow has expanded ends it as well: nobody can
    see before how large it becomes. Blocks are compressed one by one instead, and say how long they are.
    """

    def __init__(self, reader: fl.MetadataRecordBatchReader, peer: Peer) -> None:
        self._reader, self._peer = reader, peer
        self._over = False

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def read_chunk(self) -> Any:
        """Raises StopIteration at the end, InvalidArgument."""
        if self._over:
            raise StopIteration
        chunk = self._reader.read_chunk()
        data, metadata = chunk.data, chunk.app_metadata
        # The buffers' sizes, as they are: nothing has checked what is in them.
        size = 0 if data is None else data.get_total_buffer_size()
        self._peer.took(size if metadata is None else size + metadata.size)
        if size >= LARGE_BYTES and _expanded(data):
            self._over = True
            del chunk, data  # the error may live for longer
            raise InvalidArgument(
                f"a batch of {size} bytes whose body was compressed by Arrow",
                remedy="send bodies as they are (no compression in IpcWriteOptions): blocks are compressed one by one",
            )
        return chunk

    def __iter__(self) -> Self:
        return self

    __next__ = read_chunk


def _expanded(batch: pa.RecordBatch) -> bool:
    """Whether some of its buffers have memory of their own, and not that of the message which came."""
    return any(
        buffer is not None and buffer.size and buffer.parent is None
        for column in batch.columns
        for buffer in column.buffers()
    )
