"""The 22 TPC-H queries through the server, against DuckDB, an engine that shares nothing with Spark."""

from pathlib import Path

import pytest

from bench import answers, spark_jobs, tpch
from bench.harness.spark_driver import SparkDriver
from tests.spark.conftest import StartDriver, flight_conf, pushed_bytes
from tests.spark.server import Server

pytestmark = pytest.mark.spark

SCALE = 0.1


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tpch")
    tpch.generate(directory, SCALE)
    return directory


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server, tables: Path) -> SparkDriver:
    driver = start_driver(flight_conf(server))
    driver.call(spark_jobs.load, directory=str(tables), tables=tpch.TABLES)
    return driver


@pytest.mark.parametrize("number", range(1, 23))
def test_query_equals_duckdbs_answer(number: int, driver: SparkDriver, server: Server, tables: Path) -> None:
    before = pushed_bytes(server)
    assert answers.answer(driver, answers.SUITES["tpch"], tables, number).difference is None
    assert pushed_bytes(server) > before
