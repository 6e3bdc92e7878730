"""The blocks of one shuffle: with the schema in each, or without it where the driver declared it.

A block with its schema is a complete Arrow IPC stream of one batch (`shuffle_api.columnar.ipc`). The schema of a wide
table is larger than a block's rows may be; one without it is the message of the batch alone, which nothing but the
declared schema makes readable. Schemas with dictionaries stay in the blocks, as a dictionary is a message of its own.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from shuffle_api.buffer import Buffer
from shuffle_api.columnar.ipc import decode, encode
from shuffle_api.columnar.joining import holds_dictionary
from shuffle_api.columnar.schemas import declared_schema
from shuffle_api.errors import BlockCorrupt, InvalidArgument
from shuffle_api.values import ShuffleSpec

ALIGNED = 8  # Arrow's messages, and buffers in them


class BlockCodec:
    """Makes payloads of batches, and batches of payloads.

    :ivar bare: blocks are written without their schema; either kind is read.
    """

    def __init__(self, spec: ShuffleSpec) -> None:
        self._spec, self._schema = spec, declared_schema(spec)
        self.bare = self._schema is not None and not any(map(holds_dictionary, self._schema.types))

    def encode(self, batch: Any) -> pa.Buffer:
        """The payload of a block that holds the rows of `batch`, which is of the declared schema if there is one."""
        return batch.serialize() if self.bare else encode(batch)

    def decode(self, payload: Buffer, records: int) -> Any:
        """The batch of a block; its columns are views of `payload` where that lies aligned in memory.

        :raises BlockCorrupt: no batch of `records` rows.
        :raises InvalidArgument: the block has no schema, and neither has this handle of the shuffle.
        """
        if self._schema is None:
            return self._complete(payload, records)
        if not _without_schema(payload):
            return decode(payload, records)
        try:
            batch = pa.ipc.read_record_batch(_aligned(payload), self._schema)
            batch.validate()
        except (pa.ArrowException, OSError) as error:
            raise BlockCorrupt(f"a block of {memoryview(payload).nbytes} bytes is no Arrow batch: {error}") from None
        if batch.num_rows != records:
            raise BlockCorrupt(f"a block says {records} rows and holds {batch.num_rows}")
        return batch

    def _complete(self, payload: Buffer, records: int) -> Any:
        try:
            return decode(payload, records)
        except BlockCorrupt:
            if not _without_schema(payload):
                raise
        raise InvalidArgument(
            "a block without its schema, which the driver declared",
            remedy="read with the handle that the writers had (ShuffleHandle.with_schema)",
            shuffle=self._spec.id,
        )


def _without_schema(payload: Buffer) -> bool:
    """Whether a block begins with the message of a batch."""
    try:
        return bool(pa.ipc.read_message(pa.py_buffer(payload)).type == "record batch")
    except (pa.ArrowException, OSError, EOFError):
        return False  # what it is, whoever decodes it says


def _aligned(payload: Buffer) -> pa.Buffer:
    buffer = pa.py_buffer(payload)
    if buffer.address % ALIGNED == 0:
        return buffer
    copy = pa.allocate_buffer(buffer.size)
    memoryview(copy).cast("B")[:] = memoryview(buffer).cast("B")
    return copy
