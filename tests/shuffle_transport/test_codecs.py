"""Codecs: round trips, raw when it does not pay, bounded and exact decompression, names."""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lz4.block
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.errors import BlockCorrupt, InvalidArgument, UnknownCodec
from shuffle_transport.codecs import Codec, Lz4Codec, ZstdCodec, get_codec, known_codecs

COMPRESSING = ["lz4", "zstd", "zstd:3", "zstd:22"]
REPETITIVE = b"customer#000001|PROMO BRUSHED|" * 100


def random_bytes(n: int) -> bytes:
    return random.Random(7).randbytes(n)


@pytest.mark.parametrize("spec", ["none", *COMPRESSING])
@given(data=st.one_of(st.binary(), st.binary(min_size=1, max_size=20).map(lambda piece: piece * 50)))
def test_every_codec_gives_back_what_it_took(spec: str, data: bytes) -> None:
    codec = get_codec(spec)
    stored = codec.compress(data)
    payload = data if stored is None else stored
    assert memoryview(payload).nbytes <= len(data)
    assert bytes(codec.decompress(payload, len(data))) == data


@pytest.mark.parametrize("spec", COMPRESSING)
@pytest.mark.parametrize("size", [3000, 64 << 10, (1 << 20) + 17])
def test_compressible_blocks_shrink(spec: str, size: int) -> None:
    data = (REPETITIVE * (size // len(REPETITIVE) + 1))[:size]
    stored = get_codec(spec).compress(data)
    assert stored is not None
    assert memoryview(stored).nbytes < size // 4
    assert bytes(get_codec(spec).decompress(stored, size)) == data


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, pa.py_buffer])
def test_any_buffer_is_taken(wrap: Callable[[bytes], Any]) -> None:
    stored = Lz4Codec().compress(wrap(REPETITIVE))
    assert stored is not None
    assert bytes(Lz4Codec().decompress(wrap(bytes(stored)), len(REPETITIVE))) == REPETITIVE


def test_lz4_is_the_bare_block_format() -> None:
    stored = Lz4Codec().compress(REPETITIVE)
    assert stored is not None
    assert lz4.block.decompress(bytes(stored), uncompressed_size=len(REPETITIVE)) == REPETITIVE


def test_zstd_is_one_frame_that_declares_its_size() -> None:
    stored = ZstdCodec(3).compress(REPETITIVE)
    assert stored is not None
    assert zstandard.frame_content_size(bytes(stored)) == len(REPETITIVE)


def test_zstd_reads_a_frame_that_does_not_declare_its_size() -> None:
    stream = zstandard.ZstdCompressor().compressobj()
    frame = stream.compress(REPETITIVE) + stream.flush()
    assert zstandard.frame_content_size(frame) == -1
    assert bytes(ZstdCodec().decompress(frame, len(REPETITIVE))) == REPETITIVE


@pytest.mark.parametrize("spec", COMPRESSING)
@pytest.mark.parametrize("size", [0, 1, 100, 5000, 200_000])
def test_incompressible_blocks_are_left_raw(spec: str, size: int) -> None:
    assert get_codec(spec).compress(random_bytes(size)) is None


class CountingCodec(Lz4Codec):
    """LZ4 that notes how many bytes it was given to compress."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def _shrink(self, raw: memoryview) -> pa.Buffer:
        self.seen += len(raw)
        return super()._shrink(raw)


def test_a_sample_spares_the_work_on_incompressible_blocks() -> None:
    codec = CountingCodec()
    assert codec.compress(random_bytes(1 << 20)) is None
    assert codec.seen <= 16 << 10


def test_the_sample_reaches_the_end_of_the_block() -> None:
    half = 512 << 10
    assert Lz4Codec().compress(random_bytes(half) + bytes(half)) is not None
    assert Lz4Codec().compress(bytes(half) + random_bytes(half)) is not None


@pytest.mark.parametrize("spec", COMPRESSING)
@pytest.mark.parametrize("wrong", [-1, 1, 100])
def test_a_wrong_raw_length_is_corrupt(spec: str, wrong: int) -> None:
    stored = get_codec(spec).compress(REPETITIVE)
    assert stored is not None
    with pytest.raises(BlockCorrupt, match=str(len(REPETITIVE) + wrong)):
        get_codec(spec).decompress(stored, len(REPETITIVE) + wrong)


@pytest.mark.parametrize("spec", COMPRESSING)
def test_truncated_blocks_are_corrupt(spec: str) -> None:
    stored = get_codec(spec).compress(REPETITIVE)
    assert stored is not None
    for cut in range(memoryview(stored).nbytes):
        with pytest.raises(BlockCorrupt):
            get_codec(spec).decompress(bytes(stored)[:cut], len(REPETITIVE))


@pytest.mark.parametrize("spec", ["none", *COMPRESSING])
@given(data=st.binary(max_size=300), raw_length=st.integers(-5, 5000))
def test_garbage_is_corrupt_or_exactly_as_long_as_declared(spec: str, data: bytes, raw_length: int) -> None:
    try:
        raw = get_codec(spec).decompress(data, raw_length)
    except BlockCorrupt:
        return
    assert memoryview(raw).nbytes == raw_length


@pytest.mark.parametrize("spec", ["none", *COMPRESSING])
def test_a_block_of_its_raw_length_is_raw_and_not_copied(spec: str) -> None:
    data = random_bytes(100)
    assert get_codec(spec).decompress(data, 100) is data


class RefusingCodec(Lz4Codec):
    """Fails the test if a declared size reaches the decompressor."""

    def _expand(self, data: object, raw_length: int) -> bytes:
        raise AssertionError(f"asked to allocate {raw_length} bytes")


@pytest.mark.parametrize("raw_length", [256 * 1000, 1 << 62, (256 << 20) + 1, 999, -1])
def test_a_bomb_is_refused_by_its_declared_size(raw_length: int) -> None:
    with pytest.raises(BlockCorrupt, match=str(raw_length)):
        RefusingCodec().decompress(bytes(1000), raw_length)


def test_a_zstd_bomb_cannot_exceed_its_declared_size() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    with pytest.raises(BlockCorrupt):
        ZstdCodec().decompress(bomb, 1 << 20)


def test_the_densest_blocks_are_within_the_expansion_bound() -> None:
    data = bytes(4 << 20)
    for spec in COMPRESSING:
        stored = get_codec(spec).compress(data)
        assert stored is not None
        assert bytes(get_codec(spec).decompress(stored, len(data))) == data


def test_max_raw_holds_for_both_directions() -> None:
    codec = get_codec("lz4", max_raw=1000)
    stored = Lz4Codec().compress(bytes(1001))
    assert stored is not None
    assert codec.compress(bytes(1001)) is None
    with pytest.raises(BlockCorrupt, match="max_raw above 1000"):
        codec.decompress(stored, 1001)
    fits = codec.compress(bytes(1000))
    assert fits is not None
    assert codec.decompress(fits, 1000) == bytes(1000)


@pytest.mark.parametrize("max_raw", [0, -1])
def test_max_raw_must_be_positive(max_raw: int) -> None:
    with pytest.raises(InvalidArgument, match=str(max_raw)):
        get_codec("lz4", max_raw=max_raw)


def test_one_codec_serves_many_threads() -> None:
    for spec in COMPRESSING[:2]:
        codec = get_codec(spec)

        def round_trip(seed: int, codec: Codec = codec) -> bool:
            data = struct.pack("<q", seed) * 20_000
            stored = codec.compress(data)
            assert stored is not None
            return bytes(codec.decompress(stored, len(data))) == data

        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(round_trip, range(64)))


@pytest.mark.parametrize("level", ["0", "23", "-1", "x", "1.5", "³", "99999999999999999999", " 3"])
def test_a_bad_zstd_level_is_named_with_the_range(level: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        get_codec(f"zstd:{level}")
    assert level in str(caught.value)
    assert "1 to 22" in str(caught.value)


@pytest.mark.parametrize("spec", ["lz4:3", "none:1", "zstd:", "lz4:"])
def test_an_argument_the_codec_does_not_take_is_refused(spec: str) -> None:
    with pytest.raises(InvalidArgument):
        get_codec(spec)


def test_the_wire_name_does_not_carry_the_level() -> None:
    assert [get_codec(spec).name for spec in ("none", "lz4", "zstd", "zstd:9")] == ["none", "lz4", "zstd", "zstd"]


@pytest.mark.parametrize("name", ["snappy", "", "LZ4", "gzip:3"])
def test_an_unknown_codec_lists_the_known_ones(name: str) -> None:
    with pytest.raises(UnknownCodec) as caught:
        get_codec(name)
    assert all(known in str(caught.value) for known in ("none", "lz4", "zstd"))


STRANGER = """
import bz2
from shuffle_transport.codecs import Codec

class Bz2Codec(Codec):
    name = "bz2"
    expansion = 1 << 16
    def _shrink(self, raw): return bz2.compress(raw)
    def _expand(self, data, raw_length): return bz2.decompress(data)

not_a_codec = 5
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed distribution that offers codecs."""
    (tmp_path / "stranger_codecs.py").write_text(STRANGER)
    info = tmp_path / "stranger_codecs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger-codecs\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[shuffle.codecs]\nbz2 = stranger_codecs:Bz2Codec\nfive = stranger_codecs:not_a_codec\n"
        "lz4 = stranger_codecs:Bz2Codec\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "stranger_codecs", raising=False)


@pytest.mark.usefixtures("stranger")
def test_a_codec_of_an_installed_package_is_found_by_name() -> None:
    codec = get_codec("bz2")
    stored = codec.compress(REPETITIVE)
    assert stored is not None
    assert codec.decompress(stored, len(REPETITIVE)) == REPETITIVE
    assert "bz2" in known_codecs()


@pytest.mark.usefixtures("stranger")
def test_an_entry_point_cannot_take_over_a_built_in_name() -> None:
    assert type(get_codec("lz4")) is Lz4Codec


@pytest.mark.usefixtures("stranger")
def test_an_entry_point_that_is_no_codec_is_named() -> None:
    with pytest.raises(InvalidArgument, match="stranger_codecs:not_a_codec"):
        get_codec("five")
