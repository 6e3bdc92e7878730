"""Compressing a batch that has to wait."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from shuffle_transport.channels.backpressure_compressor import PARALLEL_FROM, BackpressureCompressor
from shuffle_transport.checksum import crc32c
from shuffle_transport.codecs import get_codec
from tests.shuffle_transport.channels.helpers import batch

NOISE = np.random.default_rng(1).bytes(20_000)


@pytest.fixture
def compressor() -> Iterator[BackpressureCompressor]:
    compressor = BackpressureCompressor()
    yield compressor
    compressor.close()


@pytest.mark.parametrize("copies", [1, 1 + PARALLEL_FROM // 60_000])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_blocks_that_shrink_are_compressed_in_their_order(
    compressor: BackpressureCompressor, codec: str, copies: int
) -> None:
    blocks = [b"a" * 20_000, NOISE, b"", b"bc" * 10_000] * copies
    rows, payload = batch(*blocks)
    before = rows.copy()
    squeezed, stored = compressor.compress(get_codec(codec), rows, payload)
    assert (rows == before).all()
    assert memoryview(stored).nbytes == squeezed["length"].sum() < len(payload) * 0.6
    at = 0
    for block, row in zip(blocks, squeezed, strict=True):
        piece = memoryview(stored)[at : at + row["length"]]
        at += int(row["length"])
        assert crc32c(piece) == row["crc32c"]
        assert bytes(get_codec(codec).decompress(piece, int(row["raw_length"]))) == block
    assert squeezed["length"][1] == len(NOISE)


def test_what_does_not_shrink_is_given_back_as_it_is(compressor: BackpressureCompressor) -> None:
    rows, payload = batch(NOISE, NOISE)
    squeezed, stored = compressor.compress(get_codec("lz4"), rows, payload)
    assert squeezed is rows
    assert stored is payload


def test_without_a_codec_nothing_is_tried(compressor: BackpressureCompressor) -> None:
    rows, payload = batch(b"a" * 1000)
    assert compressor.compress(get_codec("none"), rows, payload) == (rows, payload)


def test_blocks_that_are_compressed_already_stay_so(compressor: BackpressureCompressor) -> None:
    codec = get_codec("lz4")
    stored = codec.compress(codec.compress(b"a" * 100_000) or b"")
    once = bytes(codec.compress(b"a" * 100_000) or b"")
    assert stored is not None, "the compressed block would shrink once more"
    rows, payload = batch(once, b"b" * 1000)
    rows["raw_length"][0] = 100_000
    squeezed, _ = compressor.compress(codec, rows, payload)
    assert squeezed[0] == rows[0]
    assert squeezed["length"][1] < 1000


def test_a_closed_squeezer_still_compresses(compressor: BackpressureCompressor) -> None:
    compressor.close()
    rows, payload = batch(*[b"a" * 60_000] * 10)
    squeezed, _ = compressor.compress(get_codec("lz4"), rows, payload)
    assert squeezed["length"].sum() < 60_000
