"""What the transport costs per block and per batch: ``scripts/test <this file> --benchmark-enable``.

Without that option each runs once, as a test that it does what it is timed for. Between two processes measures
``flight-shuffle bench transport``.
"""

from __future__ import annotations

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from shuffle_api.values import Totals
from shuffle_transport.bench.data import Prepared, content, prepared
from shuffle_transport.blocks import PUT_SCHEMA, Block, add_rows, parse_batch, put_batch, table_rows, totals_of
from shuffle_transport.checksum import crc32c, digest
from shuffle_transport.codecs import get_codec
from shuffle_transport.credits import GrantPolicy, ReceiveWindow, SendWindow
from shuffle_transport.gate import CreditGate
from shuffle_transport.granter import Granter
from shuffle_transport.pool import BufferPool
from tests.shuffle_transport.channel import Message
from tests.shuffle_transport.loopback import loopback

KIB, MIB = 1 << 10, 1 << 20
TIMEOUT_S = 60.0
SIZES = pytest.mark.parametrize("block", [4 * KIB, 64 * KIB, MIB], ids=["4K", "64K", "1M"])


def message(block: int) -> Prepared:
    """1 MiB in blocks of that size."""
    return prepared(MIB, block, content(MIB, "noise", 1))


def test_credit_arithmetic_per_batch(benchmark: BenchmarkFixture) -> None:
    """Both ends' values for one 64 KiB batch: sent, received, consumed, granted."""
    sender, receiver = SendWindow(), ReceiveWindow(GrantPolicy(elastic=True))

    def batch() -> tuple[SendWindow, ReceiveWindow]:
        sent = sender.try_send(64 * KIB)
        assert sent is not None
        arrived = receiver.received(64 * KIB).consumed(64 * KIB)
        granting = arrived.grant()
        assert granting is not None
        return sent.granted_to(granting.granted), granting

    sent, granted = benchmark(batch)
    assert sent.available == granted.granted - 64 * KIB


def test_gate_and_granter_per_batch(benchmark: BenchmarkFixture) -> None:
    """The same behind their locks, reserved in a pool."""
    gate, pool = CreditGate("bench"), BufferPool(16 * MIB)
    with Granter(pool, TIMEOUT_S) as granter:

        def batch() -> None:
            gate.acquire(64 * KIB, TIMEOUT_S)
            for granted in (granter.received(64 * KIB), granter.consumed(64 * KIB)):
                if granted is not None:
                    gate.granted(granted)

        benchmark(batch)
        assert granter.statistics().received == gate.statistics().sent > 0


@pytest.mark.parametrize("direction", ["compress", "decompress"])
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_codec_per_block(benchmark: BenchmarkFixture, codec: str, direction: str) -> None:
    """256 KiB of rows."""
    chosen = get_codec(codec)
    raw = content(256 * KIB, "rows", 1)
    stored = chosen.compress(raw)
    assert stored is not None
    if direction == "compress":
        # As bytes: pyarrow's compress shrinks a buffer, and a memoryview of that is right in nbytes, but not in len.
        assert bytes(benchmark(chosen.compress, raw)) == bytes(stored)
    else:
        assert bytes(benchmark(chosen.decompress, stored, len(raw))) == raw


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_codec_finds_noise_not_worth_it(benchmark: BenchmarkFixture, codec: str) -> None:
    """256 KiB of noise: the sample decides."""
    assert benchmark(get_codec(codec).compress, content(256 * KIB, "noise", 1)) is None


@SIZES
def test_checksum_per_block(benchmark: BenchmarkFixture, block: int) -> None:
    one = message(block)
    assert benchmark(crc32c, one.payload[:block]) == one.rows["crc32c"][0]


def test_digest_per_batch(benchmark: BenchmarkFixture) -> None:
    """256 rows."""
    rows = message(4 * KIB).rows
    assert benchmark(digest, rows) == crc32c(rows.tobytes())


@SIZES
def test_totals_per_batch(benchmark: BenchmarkFixture, block: int) -> None:
    """1 MiB in blocks of each size."""
    rows = message(block).rows
    assert benchmark(add_rows, Totals(), rows) == totals_of(rows)


@SIZES
def test_table_of_blocks(benchmark: BenchmarkFixture, block: int) -> None:
    """1 MiB of `Block` values made into a block table, as a push does."""
    one = message(block)
    pieces = (one.payload[at : at + block] for at in range(0, MIB, block))
    blocks = [Block(row[0], row[1], block, 1, piece) for row, piece in zip(one.rows.tolist(), pieces, strict=True)]
    assert np.array_equal(benchmark(table_rows, blocks), one.rows)


@SIZES
def test_put_batch(benchmark: BenchmarkFixture, block: int) -> None:
    """1 MiB in blocks of each size, made into a RecordBatch."""
    one = message(block)
    assert benchmark(put_batch, one.rows, one.payload).num_rows == MIB // block


@SIZES
def test_parse_batch(benchmark: BenchmarkFixture, block: int) -> None:
    """The way back, with its checks."""
    one = message(block)
    parsed = benchmark(parse_batch, one.batch(), PUT_SCHEMA)
    assert np.array_equal(parsed.rows, one.rows)
    assert bytes(parsed.payload) == bytes(one.payload)


def test_loopback_send_and_receive(benchmark: BenchmarkFixture) -> None:
    """One message through the channel in memory."""
    near, far = loopback()
    sent = Message(b"control", bytes(64 * KIB))

    def once() -> Message | None:
        near.send(sent, TIMEOUT_S)
        return far.receive(TIMEOUT_S)

    assert benchmark(once) == sent
