"""From blocks of content `arrow` to batches: what `read_batches` of a reader does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from shuffle_api.columnar.gather import check_same_schema
from shuffle_api.columnar.ipc import decode
from shuffle_api.errors import BlockCorrupt, InvalidArgument
from shuffle_api.interfaces import SupportsReadBlocks
from shuffle_api.values import ShuffleSpec


def batches_of(reader: SupportsReadBlocks, spec: ShuffleSpec) -> Iterator[tuple[int, Any]]:
    """The batches of a reader's blocks: (partition, batch). Raises as `SupportsReadBatches.read_batches`."""
    check_arrow(spec, "iterate over the reader, or use read_blocks()")
    schema: Any = None
    for partition, output, payload, records in reader.read_blocks():
        try:
            batch = decode(payload, records)
        except BlockCorrupt as error:
            raise BlockCorrupt(error.message, remedy=error.remedy, shuffle=spec.id, output=output) from None
        if schema is None:
            schema = batch.schema
        check_same_schema(schema, batch.schema, spec)
        yield partition, batch


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
