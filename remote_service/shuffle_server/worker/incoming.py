"""The messages of a push or a channel, as they come from Flight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import pyarrow as pa
import pyarrow.flight as fl

from shuffle_api.errors import InvalidArgument, ShuttingDown
from shuffle_server.connection_guard import Peer
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.blocks import PUT_SCHEMA, BlockBatch, check_schema, parse_batch
from shuffle_transport.proto import flight_shuffle_pb2 as pb

PushMessage = tuple[pb.PutControl, BlockBatch | None]
"""One message of a push: its control part, and its blocks if it has some."""

_MESSAGE_COST = 1024  # bytes that a message counts for at least while a refused stream is read to its end

MOST_COLUMNS = 8
"""Of a batch that is read, if only to let its sender reach the refusal."""

LARGE_BYTES = 64 << 10
"""From this size on it is looked at whether a batch was expanded."""


class Incoming:
    """The messages until the sender half-closes, noted as taken up.

    A stream that breaks ends with a Flight or Arrow error. A batch whose body is compressed by Arrow ends it as well,
    whether Arrow found room to expand it (`expansion`) or not. Blocks are compressed one by one instead, and say how
    long they are.

    Columns are checked before the first batch: with columns of its own, a peer could have dictionaries pile up in here,
    or a batch expand into any number of buffers.

    :param columns: of the batches.
    :param refused: called for a batch that Arrow has compressed.
    :ivar readable: False once they were found to be so many others, or such, that nothing is read of the stream.
    """

    def __init__(
        self, reader: fl.MetadataRecordBatchReader, columns: pa.Schema, peer: Peer, refused: Callable[[], None]
    ) -> None:
        self._reader, self._columns, self._peer, self._refused = reader, columns, peer, refused
        self._begun = self._over = False
        self.readable = True

    @property
    def schema(self) -> pa.Schema:
        return self._reader.schema

    def read_chunk(self) -> Any:
        """Raises StopIteration at the end, InvalidArgument."""
        if self._over:
            raise StopIteration
        if not self._begun:
            self._begin()
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

    def _begin(self) -> None:
        schema = self._reader.schema
        self._begun, self.readable = True, len(schema) <= MOST_COLUMNS and all(map(_is_plain, schema.types))
        self._over = not self.readable
        check_schema(schema, self._columns)

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


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a column of this type is a few buffers."""
    return not (kind.num_fields or pa.types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType))


def _expanded(batch: pa.RecordBatch) -> bool:
    """Whether some of its buffers have memory of their own, and not that of the message which came."""
    return any(
        buffer is not None and buffer.size and buffer.parent is None
        for column in batch.columns
        for buffer in column.buffers()
    )


def put_messages(worker: Worker, chunks: Iterable[Any]) -> Iterator[PushMessage]:
    """Each message's control part and its blocks, None when it has none. Raises InvalidArgument, ShuttingDown."""
    for chunk in _decoded(chunks):
        if worker.stopping:
            raise ShuttingDown(f"worker {worker.info.id} is stopping")
        has_blocks = chunk.data is not None and chunk.data.num_rows
        yield _control(chunk), parse_batch(chunk.data, PUT_SCHEMA) if has_blocks else None


def drain(chunks: Iterable[Any], most: int) -> None:
    """After a refusal: read on until the sender has received it, but no more than an honest one can have under way.

    `most` bytes are that, its window, and the message that goes beyond. Raises what a broken stream raises.
    """
    try:
        for chunk in chunks:
            if most < 0:
                return
            # The buffers' sizes, as they are: nothing has checked what is in them.
            most -= 0 if chunk.data is None else chunk.data.get_total_buffer_size()
            most -= _MESSAGE_COST + (0 if chunk.app_metadata is None else chunk.app_metadata.size)
    except fl.FlightError:
        raise
    except (pa.ArrowException, OSError, InvalidArgument):
        return  # neither is the rest of what it sends of any use


def _decoded(chunks: Iterable[Any]) -> Iterator[Any]:
    """The messages; what Arrow cannot decode is a malformed request like others. Broken streams stay Flight errors."""
    try:
        yield from chunks
    except fl.FlightError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgument(
            f"a message that is no Arrow record batch: {error}", remedy="send valid Arrow IPC messages"
        ) from None


def _control(chunk: Any) -> pb.PutControl:
    if chunk.app_metadata is None or not chunk.app_metadata.size:
        return pb.PutControl()
    return messages.parse(pb.PutControl, chunk.app_metadata.to_pybytes())
