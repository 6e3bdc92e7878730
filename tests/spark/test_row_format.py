"""The bytes that the row writer leaves at the server are those that plugins/spark/rows.md specifies."""

from __future__ import annotations

import struct

import pytest
from pyspark.sql import DataFrame, SparkSession

from bench.harness.spark_driver import SparkDriver
from shuffle_server.store.output_file import load
from tests.spark import held, row_blocks
from tests.spark.conftest import StartDriver, flight_conf
from tests.spark.row_blocks import LZ4, STORED, ZSTD, Buffer
from tests.spark.server import Server

pytestmark = pytest.mark.spark

ROWS, MAPS, PARTITIONS, FIELDS = 20_000, 2, 3, 7
CODEC, COMPRESS = "spark.io.compression.codec", "spark.shuffle.compress"
PACK_ROWS = "spark.shuffle.flight.packRows"
KEPT: list[DataFrame] = []

Value = int | float | str | None
Fields = tuple[int, Value, Value, Value, Value, Value, Value]


def write(spark: SparkSession) -> list[Fields]:
    """Rows with each kind of column, sent to other partitions; the shuffle stays as long as the driver."""
    rows = spark.range(0, ROWS, 1, MAPS).selectExpr(
        "id",
        "if(id % 7 = 0, null, cast(hash(id) as bigint)) as hashed",
        "cast(-5 as bigint) as always",
        "cast(pmod(hash(id), 10000) as double) / 100 as price",
        "concat('text ', repeat('x', cast(pmod(hash(id), 30) as int))) as text",
        "if(id % 3 = 0, null, concat(id, '/', hash(id))) as name",
        "id * id as squares",
    )
    moved = rows.repartition(PARTITIONS, "id")
    KEPT.append(moved)
    return sorted(tuple(row) for row in moved.collect())


def values(row: bytes) -> Fields:
    """The fields of an ``UnsafeRow`` of `write`."""
    nulls, identity, hashed, always, price, text, name, squares = struct.unpack_from("=Qqqqdqqq", row)
    texts = [row[at : at + size].decode() for at, size in ((word >> 32, word & 0xFFFF_FFFF) for word in (text, name))]
    return (
        identity,
        None if nulls & 1 << 1 else hashed,
        always,
        price,
        texts[0],
        None if nulls & 1 << 5 else texts[1],
        squares,
    )


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver({"spark.sql.adaptive.enabled": "false"} | flight_conf(server))


def written(driver: SparkDriver, server: Server) -> list[Buffer]:
    """All buffers of the newest shuffle."""
    found: list[Buffer] = []
    for path in sorted(server.folder(driver.call(held.app_key), 0).glob("*.out")):
        data = path.read_bytes()
        output = load(path)
        for partition in range(PARTITIONS):
            blocks = output.entries(partition, partition + 1)
            found += row_blocks.buffers(b"".join(data[b["offset"] : b["offset"] + b["length"]] for b in blocks))
    return found


@pytest.mark.parametrize(
    ("conf", "codec", "packed"),
    [
        ({CODEC: "lz4"}, LZ4, True),
        ({CODEC: "zstd"}, ZSTD, True),
        ({COMPRESS: "false"}, STORED, True),
        ({CODEC: "lz4", PACK_ROWS: "false"}, LZ4, False),
    ],
    ids=["lz4", "zstd", "not compressed", "not packed"],
)
def test_rows_are_read_by_what_the_protocol_says(
    conf: dict[str, str], codec: int, packed: bool, driver: SparkDriver, server: Server
) -> None:
    driver.renew(conf)
    expected = driver.call(write)
    found = written(driver, server)
    assert len(found) >= MAPS * PARTITIONS
    assert {(buffer.codec, buffer.packed) for buffer in found} == {(codec, packed)}
    assert sorted(values(row) for buffer in found for row in buffer.rows) == expected
    assert len(expected) == ROWS


def test_the_example_of_the_protocol_is_two_rows() -> None:
    example = bytes.fromhex("524f5710 00000006 00000018 00000006 02 01 00 00 00 06")
    [buffer] = row_blocks.buffers(example)
    assert buffer == Buffer(STORED, packed=True, rows=[struct.pack("=q", 3)] * 2)
