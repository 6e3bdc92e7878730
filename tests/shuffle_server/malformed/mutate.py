"""Damage, drawn from a random generator: to bytes, to numbers, to texts, to protobuf messages."""

from __future__ import annotations

import struct
from random import Random
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)

NUMBERS = (0, 1, 2, 7, 127, 128, 255, 65535, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**48, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = (
    "", ".", "..", "../../etc/passwd", "/etc/passwd", "a/b", "a\\b", "a\0b", "-rf", ".hidden", "app ", " app", "a\nb",
    "é", "\u202e", "\U0001f600", "%2e%2e%2f", "CON", "a" * 128, "a" * 129, "x" * 70_000, "lz4:", "zstd:99", "gzip",
)  # fmt: skip
_RANGES = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
}


def number(rng: Random, low: int, high: int) -> int:
    """A number of [low, high], most often one of those at which something ends."""
    drawn = rng.choice((*NUMBERS, *(-n for n in NUMBERS), rng.getrandbits(64) - 2**63, rng.getrandbits(16)))
    return drawn if low <= drawn <= high else (drawn - low) % (high - low + 1) + low


def text(rng: Random) -> str:
    return rng.choice((*TEXTS, "".join(chr(rng.choice((rng.randrange(32, 127), rng.randrange(0xA0, 0xD7FF))))
                                       for _ in range(rng.randrange(40)))))  # fmt: skip


def damaged(data: bytes, rng: Random) -> bytes:
    """`data` with some bits, bytes or words changed, cut off, repeated or put in."""
    out = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(out))
        how = rng.randrange(7)
        if how == 0:
            out[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            out[at] = rng.choice((0, 1, 127, 128, 255))
        elif how == 2:
            _word(out, at & ~3, struct.pack("<I", rng.choice(NUMBERS) & 0xFFFFFFFF))
        elif how == 3:
            _word(out, at & ~7, struct.pack("<Q", rng.choice((rng.choice(NUMBERS), rng.getrandbits(64)))))
        elif how == 4:
            del out[at:]
        elif how == 5:
            out[at:at] = out[at : at + rng.randrange(1, 64)]
        else:
            out[at:at] = rng.randbytes(rng.randrange(1, 32))
        out = out or bytearray(b"\0")
    return bytes(out)


def changed(message: M, rng: Random) -> M:
    """A copy of `message` in which some fields, also of messages inside, have other values of their type."""
    copy = type(message)()
    copy.CopyFrom(message)
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change(copy, rng)
    return copy


def _change(message: Message, rng: Random) -> None:
    field: Any = rng.choice(message.DESCRIPTOR.fields)
    if rng.random() < 0.1:
        message.ClearField(field.name)
    elif field.message_type is not None:
        inner: Any = getattr(message, field.name)
        if field.is_repeated:
            for _ in range(rng.choice((1, 1, 3, 300))):
                _change(inner.add(), rng)
        else:
            inner.SetInParent()
            _change(inner, rng)
    elif field.is_repeated:
        getattr(message, field.name).extend(_value(field, rng) for _ in range(rng.choice((1, 1, 3, 300))))
    else:
        setattr(message, field.name, _value(field, rng))


def _value(field: FieldDescriptor, rng: Random) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return text(rng) if field.type == FieldDescriptor.TYPE_STRING else rng.randbytes(rng.randrange(50))
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind not in _RANGES:
        return rng.choice((0.0, -1.0, float("inf"), float("nan")))
    return number(rng, *_RANGES[kind])


def _word(out: bytearray, at: int, word: bytes) -> None:
    out[at : at + len(word)] = word[: len(out) - at]
