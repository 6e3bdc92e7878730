"""Per-block compression: `none`, `lz4`, `zstd[:level]`, and a door for codecs of others.

A codec turns one block's raw payload into a stored payload and back. On the wire `length == raw_length`
means "stored as it is" (docs/protocol.md, "Blocks"), whatever the codec, so :meth:`Codec.compress` answers
None for a block that is not worth compressing and the caller sends the raw bytes.

Three rules, the same for every codec, live in the base class:

1. *A sample decides.* Of a block of at least 64 KiB, four 2 KiB pieces spread over the block are compressed first;
   if they do not shrink by 1/32, the block is sent raw and the codec never sees the rest. The sample is
   compressed by the codec itself, because what LZ4 cannot shrink (base64, say) zstd often can.
2. *The declared size is checked before memory is allocated.* A block says its raw length; more than `max_raw`, or
   more than the format can possibly expand to (255 output bytes per input byte for LZ4, 32 KiB for
   Zstandard), is refused. A writer does not compress a block that a reader would refuse.
3. *Decompression yields exactly the declared bytes* or raises BlockCorrupt.

`lz4` and `zstd` narrow the numbers of Arrow's blocks first (`shuffle_transport.narrowing`).

Both directions release the interpreter lock, and codecs hold no state, so one object serves all threads.
Which library does what was measured: `pyarrow.Codec` compresses and handles Zstandard, but its
`lz4_raw` ignores how much it decompressed, so a short block would come back with a tail of foreign
memory; `lz4.block` returns the true length at the same speed.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from importlib.metadata import entry_points
from typing import ClassVar, Self

import lz4.block
import pyarrow as pa

from shuffle_api.buffer import Buffer
from shuffle_api.errors import BlockCorrupt, InvalidArgument, UnknownCodec
from shuffle_transport.narrowing import narrowed, widened

ENTRY_POINT_GROUP = "shuffle.codecs"
"""Entry points of this group name subclasses of :class:`Codec`; the entry point's name is the codec's."""

DEFAULT_MAX_RAW = 256 << 20
"""Largest block that is compressed, and largest declared raw length that is believed, in bytes."""

NARROWED = 1
"""What a stored payload begins with whose numbers are narrowed. Neither LZ4's blocks nor Zstandard's frames begin so:
the first byte of the former is 16 at least, as they begin with bytes and not with a repeat."""

_NARROWED_HEAD = struct.Struct("<BBxxI")
_SAMPLE_FROM = 64 << 10
_MARK = bytes([NARROWED])
_PIECES = 4
_PIECE = 2 << 10


class Codec(ABC):
    """Compresses and decompresses single blocks; stateless and safe to share between threads.

    A codec of your own implements `_shrink` and `_expand`, sets `name` and `expansion`, and is registered
    under the entry point group ``shuffle.codecs``.
    """

    name: ClassVar[str]
    """What is written on the wire."""
    expansion: ClassVar[int]
    """Most raw bytes that one stored byte can expand to in this format."""

    def __init__(self, *, max_raw: int = DEFAULT_MAX_RAW) -> None:
        if max_raw < 1:
            raise InvalidArgument(f"max_raw is {max_raw} bytes", remedy="give at least 1")
        self.max_raw = max_raw

    @classmethod
    def parse(cls, argument: str, *, max_raw: int = DEFAULT_MAX_RAW) -> Self:
        """The codec named `name:argument`; `argument` is empty when there is no colon.

        :raises InvalidArgument: this codec takes no such argument.
        """
        if argument:
            raise InvalidArgument(f"codec {cls.name!r} takes no level, got {argument!r}", remedy=f"write {cls.name!r}")
        return cls(max_raw=max_raw)

    def compress(self, data: Buffer) -> Buffer | None:
        """The stored form of `data`, or None when `data` should be sent as it is (it does not shrink)."""
        raw = memoryview(data).cast("B")
        if not 0 < len(raw) <= self.max_raw or not self._promising(raw):
            return None
        stored = self._shrink(raw)
        return stored if memoryview(stored).nbytes < len(raw) else None

    def decompress(self, data: Buffer, raw_length: int) -> Buffer:
        """The `raw_length` bytes that `data` expands to; `data` itself when it was stored raw.

        :raises BlockCorrupt: `data` is no block of this codec, or not one of `raw_length` bytes, or
            `raw_length` is above `max_raw` (nothing of that size is allocated then).
        """
        length = memoryview(data).nbytes
        if length == raw_length:
            return data
        if not length < raw_length <= min(self.max_raw, length * self.expansion):
            raise BlockCorrupt(
                f"a {self.name} block of {length} bytes declares {raw_length} raw bytes; "
                f"possible are {length} to {min(self.max_raw, length * self.expansion)}",
                remedy=f"the block is damaged or hostile, or its reader needs a max_raw above {self.max_raw}",
            )
        raw = self._expand(data, raw_length)
        if memoryview(raw).nbytes != raw_length:
            raise _corrupt(self.name, data, raw_length, f"it holds {memoryview(raw).nbytes}")
        return raw

    def _promising(self, raw: memoryview) -> bool:
        if len(raw) < _SAMPLE_FROM:
            return True
        step = (len(raw) - _PIECE) // (_PIECES - 1)
        sample = b"".join(raw[at : at + _PIECE] for at in range(0, step * _PIECES, step))
        return memoryview(self._shrink(memoryview(sample))).nbytes <= len(sample) - len(sample) // 32

    @abstractmethod
    def _shrink(self, raw: memoryview) -> Buffer:
        """`raw` (not empty) in this format, even if that is longer."""

    @abstractmethod
    def _expand(self, data: Buffer, raw_length: int) -> Buffer:
        """What `data` decompresses to, of which no more than `raw_length` bytes may be allocated.

        :raises BlockCorrupt: `data` is not in this format, or holds more.
        """


class NoneCodec(Codec):
    """Every block as it is."""

    name = "none"
    expansion = 1

    def compress(self, data: Buffer) -> None:
        return None

    def _shrink(self, raw: memoryview) -> Buffer:
        return raw

    def _expand(self, data: Buffer, raw_length: int) -> Buffer:
        return data


class NarrowingCodec(Codec):
    """Narrows the numbers of Arrow's blocks before it compresses them.

    No stored payload of its format begins with the byte `NARROWED`.
    """

    def compress(self, data: Buffer) -> Buffer | None:
        raw = memoryview(data).cast("B")
        fewer = narrowed(raw) if len(raw) <= self.max_raw else None
        if fewer is None:
            return super().compress(raw)
        stored = super().compress(fewer)
        head = _NARROWED_HEAD.pack(NARROWED, stored is not None, len(fewer))
        whole = b"".join((head, fewer if stored is None else stored))
        return whole if len(whole) < len(raw) else None

    def decompress(self, data: Buffer, raw_length: int) -> Buffer:
        view = memoryview(data).cast("B")
        if len(view) == raw_length or view[:1] != _MARK:
            return super().decompress(data, raw_length)
        if not _NARROWED_HEAD.size <= len(view) < raw_length <= self.max_raw:
            raise _corrupt(self.name, data, raw_length, f"narrowed blocks of up to {self.max_raw} bytes are shorter")
        _, compressed, length = _NARROWED_HEAD.unpack_from(view)
        rest = view[_NARROWED_HEAD.size :]
        if compressed != (len(rest) < length) or length >= raw_length:
            raise _corrupt(self.name, data, raw_length, f"{len(rest)} bytes of it are {length} narrowed ones")
        fewer = super().decompress(rest, length)
        try:
            return widened(fewer, raw_length)
        except ValueError as error:
            raise _corrupt(self.name, data, raw_length, str(error)) from error


class Lz4Codec(NarrowingCodec):
    """LZ4 block format, without frame and without a size before it."""

    name = "lz4"
    expansion = 255

    def __init__(self, *, max_raw: int = DEFAULT_MAX_RAW) -> None:
        super().__init__(max_raw=max_raw)
        self._codec = pa.Codec("lz4_raw")

    def _shrink(self, raw: memoryview) -> Buffer:
        stored: Buffer = self._codec.compress(raw)
        return stored

    def _expand(self, data: Buffer, raw_length: int) -> Buffer:
        try:
            raw: bytes = lz4.block.decompress(data, uncompressed_size=raw_length)
        except lz4.block.LZ4BlockError as error:
            raise _corrupt(self.name, data, raw_length, str(error)) from error
        return raw


class ZstdCodec(NarrowingCodec):
    """One Zstandard frame per block, level 1 to 22.

    Level 1 unless told otherwise: shuffle data is written once and read about once, so time spent on a
    denser block is seldom earned back on the network.
    """

    name = "zstd"
    expansion = 32 << 10
    LEVELS = range(1, 23)

    def __init__(self, level: int = 1, *, max_raw: int = DEFAULT_MAX_RAW) -> None:
        super().__init__(max_raw=max_raw)
        if level not in self.LEVELS:
            raise _bad_level(str(level))
        self._codec = pa.Codec("zstd", level)

    @classmethod
    def parse(cls, argument: str, *, max_raw: int = DEFAULT_MAX_RAW) -> Self:
        if not argument:
            return cls(max_raw=max_raw)
        if not (argument.isascii() and argument.isdigit() and len(argument) <= 2):
            raise _bad_level(argument)
        return cls(int(argument), max_raw=max_raw)

    def _shrink(self, raw: memoryview) -> Buffer:
        stored: Buffer = self._codec.compress(raw)
        return stored

    def _expand(self, data: Buffer, raw_length: int) -> Buffer:
        try:
            raw: Buffer = self._codec.decompress(data, raw_length)
        except OSError as error:
            raise _corrupt(self.name, data, raw_length, str(error)) from error
        return raw


_BUILT_IN: dict[str, type[Codec]] = {codec.name: codec for codec in (NoneCodec, Lz4Codec, ZstdCodec)}


def known_codecs() -> tuple[str, ...]:
    """Names of the built-in codecs and of those that installed packages offer, sorted."""
    return tuple(sorted({*_BUILT_IN, *entry_points(group=ENTRY_POINT_GROUP).names}))


def get_codec(spec: str, *, max_raw: int = DEFAULT_MAX_RAW) -> Codec:
    """The codec for `spec`, which is a name, or a name, a colon and an argument (`zstd:3`).

    Built-in names cannot be taken over by an entry point: they are a promise about bytes on the wire.

    :param max_raw: see :data:`DEFAULT_MAX_RAW`.
    :raises UnknownCodec: no codec has that name; the error lists the known ones.
    :raises InvalidArgument: the argument is not one of that codec's, or what the entry point names is no codec.
    """
    name, colon, argument = spec.partition(":")
    if colon and not argument:
        raise InvalidArgument(f"codec {spec!r} ends in a colon", remedy=f"write {name!r} or {name + ':3'!r}")
    return _codec_class(name).parse(argument, max_raw=max_raw)


def _codec_class(name: str) -> type[Codec]:
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    found = tuple(entry_points(group=ENTRY_POINT_GROUP, name=name))
    if not found:
        raise UnknownCodec(name, known_codecs())
    codec = found[0].load()
    if not (isinstance(codec, type) and issubclass(codec, Codec)):
        raise InvalidArgument(
            f"entry point {found[0].value!r} of {ENTRY_POINT_GROUP!r} is no Codec", remedy="name a subclass of Codec"
        )
    return codec


def _bad_level(value: str) -> InvalidArgument:
    first, last = ZstdCodec.LEVELS[0], ZstdCodec.LEVELS[-1]
    return InvalidArgument(f"zstd level {value!r} is not in {first} to {last}", remedy="write zstd:1 to zstd:22")


def _corrupt(codec: str, data: Buffer, raw_length: int, why: str) -> BlockCorrupt:
    return BlockCorrupt(
        f"a {codec} block of {memoryview(data).nbytes} bytes does not decompress to {raw_length}: {why}",
        remedy="read it from another replica, or run its map task again",
    )
