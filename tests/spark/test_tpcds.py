"""A few queries of TPC-DS through the server, against DuckDB; all 99 are in ``python -m bench.answers tpcds``."""

from pathlib import Path

import pytest

from bench import answers, spark_jobs, tpcds
from bench.harness.spark_driver import ROOT, SparkDriver
from tests.spark.conftest import StartDriver, flight_conf, pushed_bytes
from tests.spark.server import Server

pytestmark = pytest.mark.spark

SCALE = 0.01


@pytest.fixture(scope="module")
def tables() -> Path:
    directory = ROOT / "build" / "bench" / f"tpcds-{SCALE:g}"
    tpcds.generate(directory, SCALE)
    return directory


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server, tables: Path) -> SparkDriver:
    driver = start_driver(flight_conf(server) | tpcds.DIALECT | {"spark.sql.shuffle.partitions": "4"})
    driver.call(spark_jobs.load, directory=str(tables), tables=tpcds.tables(tables))
    return driver


@pytest.mark.parametrize("number", [1, 2, 5])
def test_query_equals_duckdbs_answer(number: int, driver: SparkDriver, server: Server, tables: Path) -> None:
    before = pushed_bytes(server)
    found = answers.answer(driver, answers.SUITES["tpcds"], tables, number)
    assert found.difference is None
    assert found.rows > 0
    assert pushed_bytes(server) > before
