"""From blocks of content `arrow` to batches: what `read_batches` of a reader does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from shuffle_api.columnar.blocks import BlockCodec
from shuffle_api.columnar.interfaces import SupportsReadBatches
from shuffle_api.columnar.schemas import check_same_schema, declared_schema
from shuffle_api.errors import BlockCorrupt, InvalidArgument
from shuffle_api.interfaces import SupportsReadBlocks
from shuffle_api.values import ShuffleHandle, ShuffleSpec


def batches_of(reader: SupportsReadBlocks, spec: ShuffleSpec) -> Iterator[tuple[int, Any]]:
    """The batches of a reader's blocks: (partition, batch). Raises as `SupportsReadBatches.read_batches`."""
    check_arrow(spec, "iterate over the reader, or use read_blocks()")
    schema, codec = declared_schema(spec), BlockCodec(spec)
    for partition, output, payload, records in reader.read_blocks():
        try:
            batch = codec.decode(payload, records)
        except BlockCorrupt as error:
            raise BlockCorrupt(error.message, remedy=error.remedy, shuffle=spec.id, output=output) from None
        if schema is None:
            schema = batch.schema
        check_same_schema(schema, batch.schema, spec)
        yield partition, batch


def read_table(reader: SupportsReadBatches, handle: ShuffleHandle) -> Any:
    """All rows of a reader as a `pyarrow.Table`. Raises what `read_batches` raises, and:

    :raises InvalidArgument: there are no rows, and the driver did not declare the schema that a table without rows has.
    """
    batches = [batch for _, batch in reader.read_batches()]
    schema = declared_schema(handle.spec)
    if schema is None and not batches:
        raise InvalidArgument(
            "partitions without rows, of a shuffle whose schema was not declared",
            remedy="give the tasks handle.with_schema(schema)",
            shuffle=handle.spec.id,
        )
    return pa.Table.from_batches(batches, batches[0].schema if schema is None else schema)


def check_arrow(spec: ShuffleSpec, instead: str) -> None:
    """:raises InvalidArgument: the shuffle's content is not `arrow`."""
    if spec.content != "arrow":
        raise InvalidArgument(
            f"a shuffle of content {spec.content!r} has no batches",
            remedy=f"open the driver's plugin with the option content=arrow, or {instead}",
            shuffle=spec.id,
        )


def check_records(spec: ShuffleSpec, instead: str) -> None:
    """:raises InvalidArgument: the shuffle's content is not `records`."""
    if spec.content != "records":
        raise InvalidArgument(
            f"a shuffle of content {spec.content!r} has no records", remedy=f"use {instead}", shuffle=spec.id
        )
