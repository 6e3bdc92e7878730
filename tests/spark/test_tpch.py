"""The 22 TPC-H queries through the server, against DuckDB, an engine that shares nothing with Spark."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bench import compare, tpch
from bench.spark_driver import SparkDriver
from tests.spark.conftest import StartDriver, flight_conf, pushed_bytes
from tests.spark.server import Server

pytestmark = pytest.mark.spark

SCALE = 0.1


def load(spark: SparkSession, directory: str) -> None:
    for table in tpch.TABLES:
        spark.read.parquet(str(tpch.table_path(Path(directory), table))).createOrReplaceTempView(table)


def query(spark: SparkSession, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(sql).collect()]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tpch")
    tpch.generate(directory, SCALE)
    return directory


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server, tables: Path) -> SparkDriver:
    driver = start_driver(flight_conf(server))
    driver.call(load, directory=str(tables))
    return driver


@pytest.mark.parametrize("number", range(1, 23))
def test_query_equals_duckdbs_answer(number: int, driver: SparkDriver, server: Server, tables: Path) -> None:
    sql = tpch.queries()[number]
    before = pushed_bytes(server)
    rows = driver.call(query, sql=sql)
    assert compare.rows_equal(rows, tpch.answer(tables, sql), ordered=False) is None
    assert pushed_bytes(server) > before
