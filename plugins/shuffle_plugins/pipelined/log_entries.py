"""What a frame of an in-flight log holds: a block, a marker, or (first in a log) what the log goes on from.

block  = 0x04, uint32 partition, uint64 number, uint64 records, uint32 crc32c of the payload; the payload
marker = 0x02; JSON as on the wire (wire.py), an end without its numbers
base   = 0x03; JSON {"parent": directory, "begin": POSITION}
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeAlias

from shuffle_api.buffer import Buffer
from shuffle_api.streaming import Position
from shuffle_plugins.pipelined import wire
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker

_BLOCK, _MARK, _BASE = 4, 2, 3
_HEAD = struct.Struct("<BIQQI")


@dataclass(frozen=True, slots=True)
class Base:
    """What a log goes on from: what is before `begin` may be in the log `parent` (a directory).

    What that one has from there on was written by somebody whose time was over.
    """

    parent: str
    begin: Position

    def follows(self, entry: Stored | SequencedMarker) -> bool:
        """The entry is before it."""
        if isinstance(entry, SequencedMarker):
            return entry.number < self.begin.markers
        return entry.number < self.begin.blocks.get(entry.partition, 0)


@dataclass(frozen=True, slots=True)
class Stored:
    """A block in a file: its `size` bytes begin `skip` bytes into the frame's payload."""

    partition: int
    number: int
    records: int
    size: int
    checksum: int
    skip: int = _HEAD.size


Found: TypeAlias = Stored | SequencedMarker | Base


def encode_entry(entry: SequencedBlock | SequencedMarker | Base) -> tuple[Buffer, ...]:
    """The payload of its frame, in pieces; a block's own is not copied."""
    if isinstance(entry, SequencedBlock):
        return _HEAD.pack(_BLOCK, entry.partition, entry.number, entry.records, entry.crc32c), entry.payload
    if isinstance(entry, SequencedMarker):
        return (bytes([_MARK]) + wire.encode_marks([entry], dict),)
    fields = wire.encode(parent=entry.parent, begin=wire.position_fields(entry.begin))
    return (bytes([_BASE]) + fields,)


def decode_entry(payload: bytes) -> Found:
    """:raises InvalidArgument: it is none of the three."""

    def parse() -> Found:
        if payload[0] == _BLOCK:
            if len(payload) < _HEAD.size:
                raise ValueError("a block without its numbers")
            _, partition, number, records, checksum = _HEAD.unpack_from(payload)
            return Stored(partition, number, records, len(payload) - _HEAD.size, checksum)
        fields = wire.decode(payload[1:])
        if payload[0] == _MARK:
            return wire.decode_mark(fields["marks"][0])[0]
        if payload[0] == _BASE:
            begin = wire.parse_position(fields["begin"])
            return Base(str(fields["parent"]), begin or Position())
        raise ValueError("no such entry")

    return wire.checked(parse, payload[:64])
