"""Slices of batches in the order of partitions: what a gatherer hands out, and where the bytes of it lie."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shuffle_api.columnar.arrays import offset_width, text_offsets


class Chunk:
    """A batch of which slices are handed out."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    @cached_property
    def columns(self) -> list[Column]:
        """Its columns, all of which must be `simple`."""
        return [Column.of(column) for column in self.batch.columns]


class Slice(NamedTuple):
    """Some rows of a chunk."""

    chunk: Chunk
    start: int
    rows: int

    @property
    def batch(self) -> Any:
        """They, as a RecordBatch."""
        return self.chunk.batch.slice(self.start, self.rows)


@dataclass(frozen=True, slots=True)
class Column:
    """The values of a column in `data`: each of `width` bytes, or (width 0) from one of the `offsets` to the next."""

    nulls: bool
    width: int
    data: memoryview
    offsets: npt.NDArray[np.signedinteger[Any]] | None

    @classmethod
    def of(cls, column: Any) -> Column:
        """Where the values of an array lie, whose type must be `simple`."""
        data = column.buffers()[-1]
        view = memoryview(b"") if data is None else memoryview(data).cast("B")
        if not offset_width(column.type):
            width = column.type.bit_width // 8
            return cls(column.null_count > 0, width, view[column.offset * width :], None)
        return cls(column.null_count > 0, 0, view, text_offsets(column))


def simple(kind: Any) -> bool:
    """Whether the values of a type lie in one buffer (beside offsets), a whole number of bytes each."""
    if isinstance(kind, pa.BaseExtensionType):
        return False
    fixed = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_temporal,
        pa.types.is_decimal,
        pa.types.is_fixed_size_binary,
    )
    return offset_width(kind) > 0 or (any(test(kind) for test in fixed) and kind.bit_width > 0)
