"""Blocks, their checksum and digest, and the Arrow messages that carry them, as docs/protocol.md describes them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from tests.shuffle_server.third_client.protobuf import decode, encode, last

PUT = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("crc32c", pa.uint32(), nullable=False),
        pa.field("raw_length", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("payload", pa.large_binary(), nullable=False),
    ]
)
_CRC = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _CRC.append(_byte)


def crc32c(data: bytes, value: int = 0) -> int:
    """RFC 3720's CRC, a byte at a time."""
    value ^= 0xFFFFFFFF
    for byte in data:
        value = value >> 8 ^ _CRC[(value ^ byte) & 255]
    return value ^ 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Block:
    """One block; `map` and `attempt` only of those that were pulled."""

    partition: int
    payload: bytes
    raw_length: int
    records: int
    checksum: int
    map: int = 0
    attempt: int = 0

    def row(self) -> bytes:
        return struct.pack("<iIqqq", self.partition, self.checksum, len(self.payload), self.raw_length, self.records)


def raw_block(partition: int, records: Sequence[bytes]) -> Block:
    """A block of content `records`, not compressed."""
    data = b"".join(struct.pack("<I", len(record)) + record for record in records)
    return Block(partition, data, len(data), len(records), crc32c(data))


def records_of(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        (length,) = struct.unpack_from("<I", raw, at)
        yield raw[at + 4 : at + 4 + length]
        at += 4 + length


@dataclass(frozen=True, slots=True)
class Sums:
    """`Totals`."""

    blocks: int = 0
    stored: int = 0
    raw_bytes: int = 0
    records: int = 0
    digest: int = 0

    def plus(self, blocks: Sequence[Block]) -> Sums:
        return Sums(
            self.blocks + len(blocks),
            self.stored + sum(len(b.payload) for b in blocks),
            self.raw_bytes + sum(b.raw_length for b in blocks),
            self.records + sum(b.records for b in blocks),
            crc32c(b"".join(b.row() for b in blocks), self.digest),
        )

    def message(self) -> dict[int, object]:
        return {1: self.blocks, 2: self.stored, 3: self.raw_bytes, 4: self.records, 5: (self.digest,)}

    @staticmethod
    def of(data: bytes) -> Sums:
        fields = decode(data)
        return Sums(*(last(fields, number) for number in range(1, 6)))


def put_schema(command: bytes) -> bytes:
    """The first message of a push."""
    header, _ = _split(PUT.serialize())
    return encode({1: {1: 2, 2: command}, 2: header})


def put_batch(blocks: Sequence[Block]) -> bytes:
    arrays = [
        pa.array([b.partition for b in blocks], pa.int32()),
        pa.array([b.checksum for b in blocks], pa.uint32()),
        pa.array([b.raw_length for b in blocks], pa.int64()),
        pa.array([b.records for b in blocks], pa.int64()),
        pa.array([b.payload for b in blocks], pa.large_binary()),
    ]
    header, body = _split(pa.record_batch(arrays, schema=PUT).serialize())
    return encode({2: header, 1000: body})


def control(data: bytes) -> bytes:
    """A message that only says something."""
    return encode({3: data})


class Incoming:
    """Reads the messages of a pull: the schema first, then batches, each with what is said beside it."""

    def __init__(self) -> None:
        self._schema = b""
        self.codec = ""

    def read(self, message: bytes) -> tuple[list[Block], bytes]:
        fields = decode(message)
        header, said = last(fields, 2, b""), last(fields, 3, b"")
        encapsulated = _join(header, last(fields, 1000, b"")) if header else b""
        if not self._schema:
            self._schema = encapsulated
            metadata = pa.ipc.open_stream(self._schema).schema.metadata
            self.codec = metadata[b"codec"].decode()
            return [], said
        if not header:
            return [], said
        batch = pa.ipc.open_stream(self._schema + encapsulated).read_next_batch()
        batch.validate(full=True)
        return [
            Block(r["partition"], r["payload"], r["raw_length"], r["records"], r["crc32c"], r["map"], r["attempt"])
            for r in batch.to_pylist()
        ], said


def _split(message: pa.Buffer) -> tuple[bytes, bytes]:
    """Flatbuffer and body of an encapsulated message: continuation, length, flatbuffer, body."""
    data = message.to_pybytes()
    length = struct.unpack_from("<i", data, 4)[0]
    return data[8 : 8 + length], data[8 + length :]


def _join(header: bytes, body: bytes) -> bytes:
    header += bytes(-len(header) % 8)
    return b"\xff\xff\xff\xff" + struct.pack("<i", len(header)) + header + body
