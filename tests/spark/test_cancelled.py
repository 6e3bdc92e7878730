"""Cancelling a job in the middle of a write or of a read: nothing stays open, and the session goes on."""

import time
from collections.abc import Callable

import pytest

from bench.harness.files import files_below, size_of
from bench.harness.spark_driver import SparkDriver
from tests.spark import cancelled, held, leaks
from tests.spark.conftest import SORT_SHUFFLE, StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

DEADLINE_S = 300.0
RECORDS, MAPS, PARTITIONS = 4_000, 4, 3
WIRE = {"spark.shuffle.flight.handOver": "off"}
TO_FILES = {"spark.network.maxRemoteBlockSizeFetchToMem": "1k"}
EXPECTED = held.expected(RECORDS, PARTITIONS)


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server) -> SparkDriver:
    settings = cancelled.SETTINGS | {"spark.unsafe.exceptionOnMemoryLeak": "true"}
    return start_driver(flight_conf(server) | settings)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def partial_bytes(server: Server) -> int:
    return sum(size_of(path) for path in files_below(server.data_dir) if path.suffix == ".partial")


@pytest.mark.parametrize(
    "interrupt", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["interrupted", "asked"]
)
def test_cancelled_write_leaves_nothing_open(driver: SparkDriver, server: Server, interrupt: bool) -> None:
    driver.call(cancelled.start_writing, interrupt=interrupt)
    wait_until(lambda: partial_bytes(server) > 8 << 20)
    assert "cancel" in driver.call(cancelled.cancel)
    check_nothing_is_under_way_and_jobs_run(driver, server)


@pytest.mark.parametrize("settings", [{}, WIRE, TO_FILES], ids=["handed over", "to memory", "to files"])
@pytest.mark.parametrize(
    "interrupt", [True, pytest.param(False, marks=pytest.mark.nightly)], ids=["interrupted", "asked"]
)
def test_cancelled_read_leaves_nothing_open(
    driver: SparkDriver, server: Server, interrupt: bool, settings: dict[str, str]
) -> None:
    driver.renew(settings)
    before = server.status().bytes_pulled
    driver.call(cancelled.start_reading, interrupt=interrupt)
    wait_until(lambda: server.status().bytes_pulled > before)
    if settings == TO_FILES:
        wait_until(lambda: bool(driver.call(leaks.temporary_files)))
    assert "cancel" in driver.call(cancelled.cancel)
    check_nothing_is_under_way_and_jobs_run(driver, server)


def check_nothing_is_under_way_and_jobs_run(driver: SparkDriver, server: Server) -> None:
    leaks.wait_until_none(lambda: leaks.under_way(server), "under way")
    leaks.wait_until_none(lambda: driver.call(leaks.temporary_files), "temporary files")
    leaks.wait_until_none(lambda: driver.call(leaks.fetched_blocks), "fetched blocks")
    driver.call(held.write, name="after", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    assert driver.call(held.read, name="after") == EXPECTED


def test_end_of_the_session_removes_what_was_cancelled_too(driver: SparkDriver, server: Server) -> None:
    app = driver.call(held.app_key)
    driver.renew(SORT_SHUFFLE)
    server.wait_until_gone(app)
    leaks.wait_until_none(lambda: driver.call(leaks.threads), "threads")
