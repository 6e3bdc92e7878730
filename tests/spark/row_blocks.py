"""Reads the rows that the Spark plugin's row writer wrote: plugins/spark/rows.md, and nothing else."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import lz4.block
import zstandard

HEADER = struct.Struct(">3sBii")
PACKED = 0x10
STORED, LZ4, ZSTD = range(3)
FRAME, DIFFERENCES, HALVES = range(3)
IN_HALF_BYTES, MOST_SYMBOLS = 0x10, 16
WORD, MASK = 8, (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Buffer:
    """``rows`` are their bytes without the lengths between them."""

    codec: int
    packed: bool
    rows: list[bytes]


def buffers(blocks: bytes) -> Iterator[Buffer]:
    """The buffers of one partition's bytes. Raises ValueError, or what the codec's library raises, when malformed."""
    at = 0
    while at < len(blocks):
        mark, kind, length, raw_length = HEADER.unpack_from(blocks, at)
        at += HEADER.size
        if mark != b"ROW":
            raise ValueError(f"a buffer begins with {mark!r}")
        packed, codec = bool(kind & PACKED), kind & ~PACKED
        expanded_length = raw_length
        if packed:
            [expanded_length] = struct.unpack_from(">i", blocks, at)
            at += 4
        expanded = _expanded(codec, blocks[at : at + length], expanded_length)
        if len(expanded) != expanded_length:
            raise ValueError(f"{len(expanded)} bytes where {expanded_length} are announced")
        at += length
        rows = unpacked(expanded, raw_length) if packed else list(_split(expanded))
        yield Buffer(codec, packed, rows)


def _expanded(codec: int, data: bytes, length: int) -> bytes:
    if codec == STORED:
        return data
    if codec == LZ4:
        expanded: bytes = lz4.block.decompress(data, uncompressed_size=length)
        return expanded
    if codec == ZSTD:
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=length)
    raise ValueError(f"unknown codec {codec}")


def _split(rows: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(rows):
        [length] = struct.unpack_from(">i", rows, at)
        at += 4 + length
        yield rows[at - length : at]


class _Packed:
    """Packed bytes, and how far they are read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) < count:
            raise ValueError(f"{len(taken)} bytes are left where {count} are needed")
        self._at += count
        return taken

    def rest(self) -> int:
        return len(self._data) - self._at

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        number = shift = 0
        while True:
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & MASK
            shift += 7
            if shift >= 70:
                raise ValueError("a number does not end")

    def signed(self) -> int:
        number = self.number()
        return number >> 1 ^ -(number & 1)

    def integers(self, count: int, width: int) -> list[int]:
        data = self.take(count * width)
        return [int.from_bytes(data[i * width : (i + 1) * width], "little") for i in range(count)]

    def symbols(self, count: int) -> bytes:
        """So many bytes that are written as half bytes."""
        among = self.take(self.byte())
        halves = [half for byte in self.take(count // 2) for half in (byte & 0xF, byte >> 4)]
        if not 0 < len(among) <= MOST_SYMBOLS or max(halves) >= len(among):
            raise ValueError(f"{len(among)} symbols, half bytes up to {max(halves)}")
        return bytes(among[half] for half in halves)

    def lengths(self, rows: int) -> tuple[list[int], bool]:
        """The words of variable parts, and whether these are half bytes."""
        first_byte = self.byte()
        if first_byte & ~IN_HALF_BYTES > 4:
            raise ValueError(f"lengths of variable parts of kind {first_byte}")
        return self._values(FRAME, first_byte & 0xF, rows), bool(first_byte & IN_HALF_BYTES)

    def column(self, rows: int) -> list[int]:
        """Values of 64 bits without a sign."""
        first_byte = self.byte()
        return self._values(first_byte >> 4, first_byte & 0xF, rows)

    def _values(self, kind: int, width: int, rows: int) -> list[int]:
        if width > (4 if kind == HALVES else 8):
            raise ValueError(f"a width of {width}")
        if kind == FRAME:
            least = self.signed()
            return [(least + value) & MASK for value in self.integers(rows, width)]
        if kind == DIFFERENCES:
            values, least = [self.signed() & MASK], self.signed()
            for step in self.integers(rows - 1, width):
                values.append((values[-1] + least + step) & MASK)
            return values
        if kind == HALVES:
            low_width, high, low = self.byte(), self.signed(), self.number()
            highs = self.integers(rows, width)
            lows = self.integers(rows, low_width)
            return [((high + h << 32) + low + v) & MASK for h, v in zip(highs, lows, strict=True)]
        raise ValueError(f"a column of the unknown kind {kind}")


def unpacked(data: bytes, raw_length: int) -> list[bytes]:
    """The rows of a buffer that are packed by column."""
    packed = _Packed(data)
    count, words = packed.number(), packed.number()
    if count * (4 + WORD * words) > raw_length:
        raise ValueError(f"{count} rows of {words} words are more than {raw_length} bytes")
    tails, in_half_bytes = packed.lengths(count)
    columns = [packed.column(count) for _ in range(words)]
    if in_half_bytes:
        packed = _Packed(packed.symbols(sum(tails) * WORD) + packed.take(packed.rest()))
    if sum(tails) * WORD != packed.rest() or count * (4 + WORD * words) + packed.rest() != raw_length:
        raise ValueError(f"variable parts of {sum(tails)} words, {packed.rest()} bytes are left")
    fixed = struct.Struct(f"={words}Q")
    return [fixed.pack(*(column[row] for column in columns)) + packed.take(WORD * tails[row]) for row in range(count)]
