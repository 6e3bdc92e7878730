"""Where things lie in a block of content `arrow`, found without Arrow: of a block that anybody may have made.

A block is messages of Arrow's IPC format, one behind the other (format/Message.fbs of Arrow; "FlatBuffers Internals").
A message is a mark, the size of its metadata, the metadata, and a body, in which the buffers of a batch lie.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TypeAlias

from shuffle_api.buffer import Buffer

Span: TypeAlias = tuple[int, int]
"""Where bytes begin, and where they end."""

MARK = 0xFFFFFFFF
"""What every message begins with."""

PREFIX = struct.Struct("<Ii")
"""The mark, and the size of the metadata."""

END = PREFIX.pack(MARK, 0)
"""The end of a stream of messages, with which none begins."""

_RECORD_BATCH = 3
_LONGEST = 64 << 20  # metadata of one message


def buffer_spans(block: memoryview) -> list[Span]:
    """The buffers of the first batch in a block, those that are not empty, ascending and apart.

    Empty where the block is not such messages, as far as it is looked at.
    """
    try:
        for at, message in _messages(block):
            if message.byte(1) == _RECORD_BATCH:
                return _buffers(message, at, len(block))
    except (struct.error, IndexError, ValueError):
        pass  # it is something else
    return []


def _messages(block: memoryview) -> Iterator[tuple[int, Table]]:
    """Where the body of each message begins, and the message. Raises ValueError where there is none."""
    at = 0
    while at + PREFIX.size < len(block):
        mark, size = PREFIX.unpack_from(block, at)
        if mark != MARK or not 0 <= size <= _LONGEST:
            raise ValueError("no message")
        at += PREFIX.size
        if size == 0:  # in place of a schema that its reader has, or an end
            continue
        message = Table(bytes(block[at : at + size]), 0)
        at += size
        yield at, message
        at += message.long(3)


def _buffers(message: Table, body: int, end: int) -> list[Span]:
    batch = message.table(2)
    at = batch.target(2)
    [count] = struct.unpack_from("<I", batch.data, at)
    spans, last = [], body
    for number in range(count):
        offset, length = struct.unpack_from("<qq", batch.data, at + 4 + 16 * number)
        if length == 0:
            continue
        if offset < 0 or length < 0 or body + offset < last or body + offset + length > end:
            raise ValueError("buffers beyond the body")
        last = body + offset + length
        spans.append((body + offset, last))
    return spans


class Table:
    """A table of a flatbuffer: its fields, by their numbers.

    Raises struct.error or ValueError when the bytes are no such table, or a field is not there that is asked for.
    """

    def __init__(self, data: bytes, reference: int) -> None:
        """`reference` is where the offset to it lies."""
        self.data = data
        self._at = reference + _number("<I", data, reference)
        self._fields = self._at - _number("<i", data, self._at)

    def field(self, number: int) -> int:
        """Where that field lies; 0 if it is left out."""
        if 4 + 2 * number >= _number("<H", self.data, self._fields):
            return 0
        offset = _number("<H", self.data, self._fields + 4 + 2 * number)
        return self._at + offset if offset else 0

    def byte(self, number: int) -> int:
        """A field of one byte."""
        at = self.field(number)
        return _number("<B", self.data, at) if at else 0

    def long(self, number: int) -> int:
        """A field of eight bytes."""
        at = self.field(number)
        return _number("<q", self.data, at) if at else 0

    def present(self, number: int) -> int:
        """Where a field lies that must be there."""
        at = self.field(number)
        if not at:
            raise ValueError(f"field {number} is left out")
        return at

    def target(self, number: int) -> int:
        """Where that lies which the field refers to."""
        at = self.present(number)
        return at + _number("<I", self.data, at)

    def table(self, number: int) -> Table:
        """The table that the field refers to."""
        return Table(self.data, self.present(number))


def _number(form: str, data: Buffer, at: int) -> int:
    if at < 0:
        raise ValueError("before the first byte")
    value: int = struct.unpack_from(form, data, at)[0]
    return value
