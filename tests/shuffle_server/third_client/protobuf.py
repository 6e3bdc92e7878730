"""Protobuf's wire format by hand: enough for flight_shuffle.proto, Flight.proto and their forward compatibility."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def encode(fields: Mapping[int, Any]) -> bytes:
    """A message of fields by number: int as varint, (int,) as fixed32, str, bytes, a dict as a message, a list
    as a repeated field."""
    return b"".join(_field(number, value) for number, value in fields.items())


def decode(data: bytes) -> dict[int, list[Any]]:
    """The values of each field, in order: int of a varint or fixed field, bytes of all else."""
    fields: dict[int, list[Any]] = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        value: Any
        if kind == VARINT:
            value, at = _varint(data, at)
        elif kind == BYTES:
            length, at = _varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            size, form = {FIXED64: (8, "<Q"), FIXED32: (4, "<I")}[kind]
            value, at = struct.unpack_from(form, data, at)[0], at + size
        fields.setdefault(number, []).append(value)
    return fields


def last(fields: Mapping[int, list[Any]], number: int, default: Any = 0) -> Any:
    """The value of a field that is not repeated."""
    return fields.get(number, [default])[-1]


def _field(number: int, value: Any) -> bytes:
    if isinstance(value, list):
        return b"".join(_field(number, item) for item in value)
    if isinstance(value, tuple):
        return _number(number << 3 | FIXED32) + struct.pack("<I", value[0])
    if isinstance(value, int):
        return _number(number << 3 | VARINT) + _number(value)
    data = encode(value) if isinstance(value, Mapping) else value.encode() if isinstance(value, str) else value
    return _number(number << 3 | BYTES) + _number(len(data)) + data


def _number(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at
