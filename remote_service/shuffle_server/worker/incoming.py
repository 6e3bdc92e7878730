"""The messages of a push or a channel, as they come from Flight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pyarrow as pa
import pyarrow.flight as fl

from shuffle_api.errors import InvalidArgument
from shuffle_server.worker.connection_guard import Peer

LARGE_BYTES = 64 << 10
"""From this size on it is looked at whether a batch was expanded."""


class Incoming:
    """The messages until the sender half-closes, noted as taken up.

    A stream that breaks ends with a Flight or Arrow error. A batch whose body is compressed by Arrow ends it as well,
    whether Arrow found room to expand it (`expansion`) or not. Blocks are compressed one by one instead, and say how
    long they are.

    :param refused: called for such a batch.
    """

    def __init__(self, reader: fl.MetadataRecordBatchReader, peer: Peer, refused: Callable[[], None]) -> None:
        self._reader, self._peer, self._refused = reader, peer, refused
        self._over = False

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def read_chunk(self) -> Any:
        """Raises StopIteration at the end, InvalidArgument."""
        if self._over:
            raise StopIteration
        try:
            chunk = self._reader.read_chunk()
        except pa.ArrowMemoryError as error:  # the buffers of other batches lie in the message itself
            raise self._compressed(f"of a size that is refused before it is expanded: {error}") from None
        data, metadata = chunk.data, chunk.app_metadata
        # The buffers' sizes, as they are: nothing has checked what is in them.
        size = 0 if data is None else data.get_total_buffer_size()
        self._peer.took(size if metadata is None else size + metadata.size)
        if size >= LARGE_BYTES and _expanded(data):
            del chunk, data  # the error may live for longer
            raise self._compressed(f"it has {size} bytes")
        return chunk

    def __iter__(self) -> Self:
        return self

    __next__ = read_chunk

    def _compressed(self, observed: str) -> InvalidArgument:
        self._over = True
        self._refused()
        return InvalidArgument(
            f"the body of a batch is compressed by Arrow, {observed}",
            remedy="send uncompressed bodies (no compression in IpcWriteOptions): the option codec compresses blocks",
        )


def _expanded(batch: pa.RecordBatch) -> bool:
    """Whether some of its buffers have memory of their own, and not that of the message which came."""
    return any(
        buffer is not None and buffer.size and buffer.parent is None
        for column in batch.columns
        for buffer in column.buffers()
    )
