"""Micro-batches of Structured Streaming shuffle through the server as queries do, batch by batch."""

from pathlib import Path

import pytest

from bench.harness.spark_driver import SparkDriver
from tests.spark import held, leaks, streams
from tests.spark.conftest import SORT_SHUFFLE, StartDriver, flight_conf, pushed_bytes
from tests.spark.server import Server

pytestmark = pytest.mark.spark

QUERIES = (streams.aggregation, streams.windows_of_first_values)
SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.unsafe.exceptionOnMemoryLeak": "true"}

Answers = dict[str, list[tuple[int, str]]]


def run(driver: SparkDriver, files: Path, scratch: Path) -> Answers:
    return {
        query.__name__: driver.call(query, files=str(files), checkpoint=str(scratch / query.__name__))
        for query in QUERIES
    }


def test_batches_equal_sort_shuffles_and_leave_nothing(
    start_driver: StartDriver, server: Server, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    streams.make_files(files)
    driver = start_driver(flight_conf(server) | SETTINGS)
    driver.renew(SORT_SHUFFLE)
    answers = run(driver, files, tmp_path / "sort")
    assert {batch for batch, _ in answers["aggregation"]} == set(range(streams.BATCHES))
    assert answers["windows_of_first_values"]

    driver.renew({})
    before = pushed_bytes(server)
    assert run(driver, files, tmp_path / "flight") == answers
    assert pushed_bytes(server) > before

    app = driver.call(held.app_key)
    leaks.wait_until_none(lambda: leaks.under_way(server), "under way")
    driver.renew(SORT_SHUFFLE)
    server.wait_until_gone(app)
