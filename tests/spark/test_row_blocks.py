"""How many rows of an SQL exchange are compressed together: as many as pays."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as fn

from bench.harness.spark_driver import SparkDriver
from tests.shuffle_server.observe.helpers import Scrape
from tests.spark.conftest import SORT_SHUFFLE, WITH_METRICS, StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

SERVER_ARGUMENTS = WITH_METRICS

PARTITIONS = 64
ROWS = 60_000  # of one map, 150 bytes each: about 140 KiB for each partition
RANDOM = "concat(sha2(string(id), 256), sha2(string(-id), 256))"
ALIKE = "concat(repeat('a', 128 - length(string(id))), string(id))"


def shuffle(spark: SparkSession, text: str) -> tuple[int, int]:
    """Rows and a digest of them, after they were sent to another partition."""
    rows = spark.range(0, ROWS, numPartitions=1).selectExpr("id", f"{text} as text")
    moved = rows.repartition(PARTITIONS, "id").selectExpr("xxhash64(id, text) as h")
    [found] = moved.agg(fn.count("h"), fn.bit_xor("h")).collect()
    return found[0], found[1]


@pytest.fixture(scope="module")
def one_jvm(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver({"spark.sql.adaptive.enabled": "false"} | flight_conf(server))


@pytest.fixture
def driver(one_jvm: SparkDriver) -> SparkDriver:
    one_jvm.renew({"spark.shuffle.flight.handOver": "off"})
    return one_jvm


@pytest.mark.parametrize(("text", "least", "most"), [(RANDOM, 4, 6), (ALIKE, 2, 2.1)], ids=["random", "alike"])
def test_blocks_are_short_where_little_repeats(
    text: str, least: float, most: float, driver: SparkDriver, server: Server
) -> None:
    before = Scrape(server.metrics)
    found = driver.call(shuffle, text=text)
    blocks = Scrape(server.metrics)("pushed_blocks_total") - before("pushed_blocks_total") - PARTITIONS  # of the sums

    driver.renew(SORT_SHUFFLE)
    assert found == driver.call(shuffle, text=text)
    assert found[0] == ROWS
    assert least * PARTITIONS <= blocks <= most * PARTITIONS
