"""Arrow Flight messages made by hand, so that they can be wrong in every way (Flight.proto, Message.fbs)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

SERVICE = "/arrow.flight.protocol.FlightService/"
PATH, CMD = 1, 2  # FlightDescriptor.DescriptorType


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, data: bytes) -> bytes:
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def flight_data(header: bytes = b"", body: bytes = b"", metadata: bytes = b"", descriptor: bytes = b"") -> bytes:
    """`FlightData`: its fields in the order in which Arrow writes them, empty ones left out."""
    fields = ((1, descriptor), (2, header), (3, metadata), (1000, body))
    return b"".join(field(number, data) for number, data in fields if data)


def command(data: bytes, kind: int = CMD) -> bytes:
    """A `FlightDescriptor` with a command."""
    return varint(1 << 3) + varint(kind) + field(2, data)


def path(*parts: bytes) -> bytes:
    """A `FlightDescriptor` with a path."""
    return varint(1 << 3) + varint(PATH) + b"".join(field(3, part) for part in parts)


def metadata_of(reply: bytes) -> bytes:
    """`PutResult.app_metadata`: the only field there is."""
    at, length, shift = 1, 0, 0
    if not reply:
        return b""
    assert reply[0] == 0x0A, reply[:20]
    while True:
        length |= (reply[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if reply[at - 1] < 128:
            return reply[at : at + length]


@dataclass(frozen=True, slots=True)
class Encapsulated:
    """One Arrow IPC message: its flatbuffer and its body."""

    header: bytes
    body: bytes

    def data(self, metadata: bytes = b"") -> bytes:
        return flight_data(self.header, self.body, metadata)


def schema_message(schema: pa.Schema) -> Encapsulated:
    return _first(schema.serialize())


def batch_messages(batch: pa.RecordBatch, compression: str | None = None) -> list[Encapsulated]:
    """What a stream of this one batch consists of after its schema: dictionaries, if there are any, and the batch."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    messages = []
    for message in reader:
        messages.append(Encapsulated(bytes(message.metadata), bytes(message.body) if message.body else b""))
    return messages[1:]


def _first(data: pa.Buffer) -> Encapsulated:
    message = pa.ipc.read_message(data)
    return Encapsulated(bytes(message.metadata), bytes(message.body) if message.body else b"")


def with_rows(header: bytes, rows: int, length: int) -> bytes:
    """The flatbuffer of a batch of `rows` rows that says it has `length`, everywhere."""
    return header.replace(struct.pack("<q", rows), struct.pack("<q", length))


def with_nodes(header: bytes, rows: int, nodes: Mapping[int, tuple[int, int]]) -> bytes:
    """The flatbuffer of a push batch of `rows` rows in which columns say other (lengths, numbers of nulls)."""
    return _replaced(header, header.index(struct.pack("<qq", rows, 0) * 5), nodes)


def with_buffers(header: bytes, rows: int, buffers: Mapping[int, tuple[int, int]]) -> bytes:
    """The flatbuffer of a push batch of `rows` rows in which buffers have other (offsets, lengths) in the body.

    Numbers 0, 2, 4, 6, 8 are the columns' bitmaps of nulls, 9 the offsets of the payloads, 10 the payloads.
    """
    return _replaced(header, header.index(struct.pack("<qqqq", 0, 0, 0, 4 * rows)), buffers)


def _replaced(header: bytes, start: int, pairs: Mapping[int, tuple[int, int]]) -> bytes:
    out = bytearray(header)
    for index, pair in pairs.items():
        struct.pack_into("<qq", out, start + 16 * index, *pair)
    return bytes(out)
