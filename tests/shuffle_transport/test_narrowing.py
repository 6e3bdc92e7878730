"""Narrowed blocks: any block comes back byte for byte, numbers take the bytes they need, and lies are typed errors."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

import lz4.block
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_api.columnar.blocks import BlockCodec
from shuffle_api.columnar.ipc import encode
from shuffle_api.errors import BlockCorrupt
from shuffle_api.ids import ShuffleId
from shuffle_api.values import ShuffleHandle, ShuffleSpec
from shuffle_transport.codecs import get_codec
from shuffle_transport.narrowing import narrowed, widened

ROWS = 3000
RUN = struct.Struct("<BBBxIqq")


def column(values: Sequence[Any] | np.ndarray, kind: pa.DataType) -> memoryview:
    """The block of a batch with one column."""
    return memoryview(encode(pa.record_batch({"c": pa.array(values, kind)})))


def runs(data: memoryview) -> list[tuple[int, ...]]:
    """As docs/protocol.md has them."""
    [count] = struct.unpack_from("<I", data)
    return [RUN.unpack_from(data, 4 + number * RUN.size) for number in range(count)]


def numbers(low: int, high: int) -> list[int]:
    rng = random.Random(5)
    return [rng.randrange(low, high) for _ in range(ROWS)]


RISING = np.cumsum(np.random.default_rng(3).integers(0, 200, ROWS)) + 1_700_000_000_000_000


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (numbers(-100, 100), pa.int64(), (1, 8, 1)),
        (numbers(10**15, 10**15 + 60_000), pa.int64(), (1, 8, 2)),
        (numbers(-(2**31), 2**31), pa.int64(), (1, 8, 4)),
        (numbers(8_000, 11_000), pa.date32(), (1, 4, 2)),
        (numbers(0, 255), pa.int32(), (1, 4, 1)),
        (RISING, pa.timestamp("us"), (2, 8, 1)),
        ([int(value) << 20 for value in np.arange(ROWS)], pa.int64(), (2, 8, 1)),
        (numbers(-20_000, 20_000), pa.decimal128(15, 0), (1, 16, 2)),
        (["x" * (number % 30) for number in numbers(0, 10**6)], pa.string(), (2, 4, 1)),
    ],
    ids=["byte", "two", "four", "dates", "int32", "timestamps", "steps", "decimals", "offsets"],
)
def test_numbers_take_the_bytes_that_they_need(
    values: Sequence[Any], kind: pa.DataType, expected: tuple[int, int, int]
) -> None:
    block = column(values, kind)
    data = narrowed(block)
    assert data is not None
    assert expected in [run[:3] for run in runs(data)]
    assert bytes(memoryview(widened(data, len(block)))) == bytes(block)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (numbers(-(2**62), 2**62), pa.int64()),
        (numbers(-(2**31), 2**31), pa.int32()),
        (np.random.default_rng(1).random(ROWS), pa.float64()),
        (["same length"] * 9, pa.string()),
        ([random.Random(1).randbytes(90) for _ in range(200)], pa.binary()),
        (numbers(2**64, 2**100), pa.decimal128(38, 0)),
    ],
    ids=["int64", "int32", "doubles", "few", "bytes", "decimals"],
)
def test_what_gains_little_is_left_as_it_is(values: Sequence[Any], kind: pa.DataType) -> None:
    assert narrowed(column(values, kind)) is None


def test_other_content_is_left_as_it_is() -> None:
    mark = struct.pack("<I", 0xFFFFFFFF)
    for data in (b"", b"records", mark, mark * 1000, mark + bytes(2000), random.Random(2).randbytes(3000)):
        assert narrowed(memoryview(data)) is None


PRIMITIVE = st.sampled_from(
    [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float32(),
     pa.float64(), pa.bool_(), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("us"), pa.timestamp("ns"),
     pa.duration("s"), pa.decimal128(30, 3), pa.decimal256(60, 2), pa.string(), pa.large_string(), pa.binary(),
     pa.binary(7), pa.list_(pa.int64()), pa.struct([("a", pa.int32()), ("b", pa.string())]),
     pa.dictionary(pa.int32(), pa.string())]
)  # fmt: skip


def an_array(kind: pa.DataType, rng: np.random.Generator, rows: int) -> pa.Array:
    """Numbers of some spread, rising or not, some of them null, as a column of that type."""
    spread = int(rng.choice([1, 200, 60_000, 10**9, 2**40]))
    integers = rng.integers(-spread, spread, rows, endpoint=True) + int(rng.choice([0, 10**6, -(10**12)]))
    if rng.random() < 0.4:
        integers = np.cumsum(np.abs(integers) % 1000)
    mask = rng.random(rows) < 0.1 if rng.random() < 0.3 else None
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(np.arange(0, rows + 1, dtype=np.int32), pa.array(integers))
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([an_array(field.type, rng, rows) for field in kind], fields=list(kind))
    if pa.types.is_dictionary(kind):
        return pa.array([f"text {value % 7}" for value in integers.tolist()], mask=mask).dictionary_encode()
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return pa.array([value.to_bytes(8, "little", signed=True)[:7] for value in integers.tolist()], kind, mask=mask)
    if not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)):
        texts = [str(value)[: int(value) % 9].encode() for value in integers.tolist()]
        return pa.array(texts, pa.binary(), mask=mask).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.array(integers % 2 == 0, mask=mask)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return pa.array((integers % 10**6).tolist(), pa.int64(), mask=mask).cast(kind)
    narrow = integers.astype(f"i{kind.bit_width // 8}")
    return pa.array(narrow, mask=mask).view(kind)


@settings(deadline=None, max_examples=60)
@given(
    kinds=st.lists(PRIMITIVE, min_size=1, max_size=6),
    rows=st.integers(0, 300),
    seed=st.integers(0, 2**32),
    codec=st.sampled_from(["lz4", "zstd"]),
    bare=st.booleans(),
)
def test_any_block_comes_back(kinds: list[pa.DataType], rows: int, seed: int, codec: str, bare: bool) -> None:
    rng = np.random.default_rng(seed)
    batch = pa.record_batch([an_array(kind, rng, rows) for kind in kinds], names=[f"c{n}" for n in range(len(kinds))])
    handle = ShuffleHandle("none", ShuffleSpec(ShuffleId("a", 1), 1, 1, content="arrow"), "")
    spec = handle.with_schema(batch.schema).spec if bare else handle.spec
    block = memoryview(BlockCodec(spec).encode(batch))
    made = get_codec(codec)
    stored = made.compress(block)
    assert stored is None or memoryview(stored).nbytes < len(block)
    back = made.decompress(block if stored is None else stored, len(block))
    assert bytes(memoryview(back)) == bytes(block)
    assert BlockCodec(spec).decode(back, rows).equals(batch)


def a_block() -> memoryview:
    ids = pa.array(np.arange(ROWS) * 3)
    return memoryview(encode(pa.record_batch({"id": ids, "text": pa.array([f"row {n % 100}" for n in range(ROWS)])})))


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_of_a_narrowed_block_the_codec_alone_makes_more(codec: str) -> None:
    block, made = a_block(), get_codec(codec)
    stored = made.compress(block)
    assert stored is not None
    view = memoryview(stored).cast("B")
    assert view[0] == 1
    data = narrowed(block)
    assert data is not None
    assert struct.unpack_from("<BBxxI", view) == (1, 1, len(data))
    if codec == "lz4":
        assert lz4.block.decompress(view[8:], uncompressed_size=len(data)) == data
        assert len(view) < 0.7 * len(lz4.block.compress(block, store_size=False))


def test_numbers_that_a_codec_cannot_shrink_are_stored_narrowed() -> None:
    values = np.random.default_rng(1).integers(-(2**31), 2**31, 20_000)  # enough for a sample to decide
    block = column(values, pa.int64())
    stored = get_codec("lz4").compress(block)
    assert stored is not None
    view = memoryview(stored).cast("B")
    assert tuple(view[:2]) == (1, 0)
    assert len(view) < 0.6 * len(block)
    assert bytes(memoryview(get_codec("lz4").decompress(stored, len(block)))) == bytes(block)


def stored_as(data: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    return struct.pack("<BBxxI", 1, compressed, len(data) if length is None else length) + data


def test_the_example_of_the_protocol_is_three_numbers() -> None:
    example = bytes.fromhex("01000000 01080100 03000000 0a00000000000000 0000000000000000 000102")
    assert struct.unpack("<3q", bytes(memoryview(widened(example, 24)))) == (10, 11, 12)


def one_run(*fields: int, data: bytes = b"") -> bytes:
    return struct.pack("<I", 1) + RUN.pack(*fields) + data


LIES = {
    "nothing": b"",
    "no runs": struct.pack("<I", 0),
    "runs that are not there": struct.pack("<I", 2**32 - 1) + bytes(100),
    "unknown kind": one_run(3, 8, 1, 1000, 0, 0, data=bytes(1000)),
    "wide bytes": one_run(0, 8, 1, 1000, 0, 0, data=bytes(1000)),
    "width 2": one_run(1, 2, 1, 4000, 0, 0, data=bytes(4000)),
    "width 0": one_run(1, 8, 0, 1000, 0, 0),
    "not narrower": one_run(1, 4, 4, 2000, 0, 0, data=bytes(8000)),
    "narrow 3": one_run(1, 8, 3, 1000, 0, 0, data=bytes(3000)),
    "no numbers": one_run(1, 8, 1, 0, 0, 0),
    "too many numbers": one_run(1, 8, 1, 2**32 - 1, 0, 0, data=bytes(1000)),
    "too few numbers": one_run(1, 8, 1, 999, 0, 0, data=bytes(999)),
    "numbers cut off": one_run(1, 8, 1, 1000, 0, 0, data=bytes(999)),
    "bytes behind": one_run(1, 8, 1, 1000, 0, 0, data=bytes(1001)),
}
RAW = 8000


@pytest.mark.parametrize("what", LIES)
def test_a_block_that_lies_is_corrupt_before_anything_is_allocated(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def allocate(size: int) -> None:
        raise AssertionError(f"asked to allocate {size} bytes")

    monkeypatch.setattr(pa, "allocate_buffer", allocate)
    with pytest.raises(BlockCorrupt):
        get_codec("lz4").decompress(stored_as(LIES[what]), RAW)


@pytest.mark.parametrize(
    ("compressed", "length"), [(0, 10), (0, 10**6), (1, 2**32 - 1), (1, 9000), (1, 0), (2, 1028), (255, 1028)]
)
def test_a_head_that_lies_is_corrupt(compressed: int, length: int) -> None:
    right = one_run(1, 8, 1, 1000, 0, 0, data=bytes(1000))
    with pytest.raises(BlockCorrupt):
        get_codec("lz4").decompress(stored_as(right, compressed=compressed, length=length), RAW)
    assert memoryview(get_codec("lz4").decompress(stored_as(right), RAW)).nbytes == RAW


@settings(deadline=None, max_examples=60)
@given(
    damage=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=4),
    cut=st.floats(0, 1),
    seed=st.integers(),
)
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_damage_is_corrupt_or_exactly_as_long_as_declared(
    codec: str, damage: list[tuple[float, int]], cut: float, seed: int
) -> None:
    block, made = a_block(), get_codec(codec)
    stored = bytearray(memoryview(made.compress(block) or b""))
    rng = random.Random(seed)
    for where, value in damage:
        stored[int(where * (rng.choice((100, len(stored))) - 1))] = value
    short = bytes(stored[: int(len(stored) * (cut if rng.random() < 0.3 else 1))])
    length = len(block) if rng.random() < 0.7 else rng.randrange(2 * len(block))
    try:
        raw = made.decompress(short, length)
    except BlockCorrupt:
        return
    assert memoryview(raw).nbytes == length
