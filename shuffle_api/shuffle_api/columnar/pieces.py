"""The payload of a block, made of slices of several batches that nobody joins first.

It is one Arrow stream of one batch (ipc.py). Arrow would copy the slices twice: into one batch, and that into the
stream. Where a payload may lie in pieces, because it is written to a file, neither is needed: the stream is a head,
then each column's bytes, slice by slice, as they lie in memory.

The head (the schema, and the message that says how long each buffer is) is one that Arrow made, for a single row, with
other numbers in it (messages.py). Columns that are not simply numbers, times,
texts or bytes go the other way.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from shuffle_api.columnar.arrays import MOST_TEXT
from shuffle_api.columnar.blocks import BlockCodec
from shuffle_api.columnar.ipc import encode
from shuffle_api.columnar.joining import fitted, joined
from shuffle_api.columnar.slices import Column, Slice, simple
from shuffle_api.errors import InvalidArgument
from shuffle_api.ipc_messages import END, PREFIX, Table

Pieces: TypeAlias = tuple[memoryview, ...]
"""Bytes in several places, one after the other; each piece is of format B."""

_ALIGN = 8  # as Arrow's writers have it by default
_ZEROS = memoryview(bytes(_ALIGN))
_END = memoryview(END)
_LONG = struct.Struct("<q")


class PieceEncoder:
    """Payloads in pieces, of batches of one schema. The pieces are views of what they were made of.

    :param codec: of the shuffle: whether blocks have their schema.
    """

    def __init__(self, schema: Any, codec: BlockCodec) -> None:
        self._schema, self._codec = schema, codec
        self._simple = len(schema) > 0 and all(map(simple, schema.types))
        self._head: _StreamHead | None = None

    def encode(self, slices: Sequence[Slice]) -> Iterator[tuple[Pieces, int]]:
        """Payloads and numbers of rows of the blocks that hold `slices`, of which there are some, none empty.

        It is one block, unless dictionaries together have more values than their indexes can number.
        """
        if self._simple:
            yield self._encoded(slices), sum([part.rows for part in slices])
            return
        for batch in fitted(joined([part.batch for part in slices]), self._schema):
            yield (memoryview(self._codec.encode(batch)),), batch.num_rows

    def _encoded(self, slices: Sequence[Slice]) -> Pieces:
        if self._head is None:
            self._head = _StreamHead(memoryview(encode(slices[0]._replace(rows=1).batch)), self._codec.bare)
        rows = sum([part.rows for part in slices])
        body = _Body()
        for number in range(len(slices[0].chunk.columns)):
            parts = [(part.chunk.columns[number], part.start, part.rows) for part in slices]
            if any(column.nulls for column, _, _ in parts):
                arrays = [part.chunk.batch.column(number).slice(part.start, part.rows) for part in slices]
                body.add_nullable(pa.concat_arrays([*arrays, arrays[0].slice(0, 0)]))
            else:
                body.add(parts, rows)
        end = () if self._codec.bare else (_END,)
        return (self._head.stating(rows, body), *body.pieces, *end)


class _Body:
    """What comes after the head, and what the head says about it: of each column rows and nulls, of each buffer offset
    and length."""

    def __init__(self) -> None:
        self.pieces: list[memoryview] = []
        self.size = 0
        self.nodes: list[int] = []
        self.buffers: list[int] = []

    def add(self, parts: Sequence[tuple[Column, int, int]], rows: int) -> None:
        """A column without nulls: of each (column, start, rows), one after the other."""
        self._put([])
        self._add_values(parts, rows)
        self.nodes += (rows, 0)

    def add_nullable(self, array: Any) -> None:
        """A column as an array of its own, which begins with its buffers."""
        rows = len(array)
        self._put([memoryview(array.buffers()[0])[: -(-rows // 8)]] if array.null_count else [])
        self._add_values([(Column.of(array), 0, rows)], rows)
        self.nodes += (rows, array.null_count)

    def _add_values(self, parts: Sequence[tuple[Column, int, int]], rows: int) -> None:
        width = parts[0][0].width
        if width:
            self._put([column.data[start * width : (start + count) * width] for column, start, count in parts])
            return
        first = parts[0][0].offsets
        assert first is not None
        offsets, most = np.empty(rows + 1, first.dtype), MOST_TEXT[first.itemsize]
        offsets[0] = done = end = 0
        texts = []
        for column, start, count in parts:
            assert column.offsets is not None
            own = column.offsets[start : start + count + 1]
            begin, stop = int(own[0]), int(own[-1])
            if end + stop - begin > most:
                raise InvalidArgument(
                    f"more than {most} bytes of texts in one column of a block",
                    remedy="make blocks smaller, or cast the column to large_string or large_binary",
                )
            np.add(own[1:], end - begin, out=offsets[done + 1 : done + count + 1])
            texts.append(column.data[begin:stop])
            done, end = done + count, end + stop - begin
        self._put([offsets.data.cast("B")])
        self._put(texts)

    def _put(self, pieces: list[memoryview]) -> None:
        length = sum([piece.nbytes for piece in pieces])
        self.buffers += (self.size, length)
        self.pieces += pieces
        padding = -length % _ALIGN
        if padding:
            self.pieces.append(_ZEROS[:padding])
        self.size += length + padding


class _StreamHead:
    """The beginning of a stream, up to the body of its batch, in which the numbers can be changed."""

    def __init__(self, stream: memoryview, bare: bool) -> None:
        """`stream` is one that Arrow wrote, of one batch that is not empty; `bare`: its schema is left out."""
        batch_at = PREFIX.size + PREFIX.unpack_from(stream)[1]  # behind the schema, which has no body
        start = batch_at + PREFIX.size
        self._bytes = bytes(stream[: start + PREFIX.unpack_from(stream, batch_at)[1]])
        self._begin = batch_at if bare else 0
        message = Table(self._bytes, start)
        batch = message.table(2)
        self._body_length = message.present(3)
        self._rows = batch.present(0)
        self._nodes, self._buffers = (batch.target(number) + 4 for number in (1, 2))  # behind the vector's length

    def stating(self, rows: int, body: _Body) -> memoryview:
        """The same of a batch with so many rows and that body."""
        head = bytearray(self._bytes)
        _LONG.pack_into(head, self._body_length, body.size)
        _LONG.pack_into(head, self._rows, rows)
        struct.pack_into(f"<{len(body.nodes)}q", head, self._nodes, *body.nodes)
        struct.pack_into(f"<{len(body.buffers)}q", head, self._buffers, *body.buffers)
        return memoryview(head)[self._begin :]
