"""What `flight-shuffle status` says of the records of Spark's shuffles."""

import subprocess
import sys
import time

import pytest

from bench.harness.spark_driver import SparkDriver
from tests.spark import held
from tests.spark.conftest import StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

RECORDS, PARTITIONS = 20_000, 4


def shown(server: Server, driver: SparkDriver) -> str:
    """The row of the application's only shuffle."""
    app = driver.call(held.app_key)
    command = [sys.executable, "-m", "shuffle_server", "shuffles", app, "--server", server.control]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    [row] = done.stdout.splitlines()[1:]
    return row


@pytest.mark.parametrize("hand_over", ["auto", "off"])
def test_rows_of_data_frames_are_counted(start_driver: StartDriver, server: Server, hand_over: str) -> None:
    driver = start_driver(flight_conf(server) | {"spark.shuffle.flight.handOver": hand_over})
    driver.call(held.write_rows, name="x", rows=RECORDS, maps=3, partitions=PARTITIONS)
    app = driver.call(held.app_key)
    [shuffle] = [each for each in server.status().shuffles if each.shuffle.app == app]
    assert shuffle.totals.records == RECORDS
    assert f" {RECORDS} " in shown(server, driver)
    [run] = [each for each in server.status().apps if each.app == app]
    assert (run.driver.user, bool(run.driver.host)) == (driver.call(held.user), True)
    assert 0 < run.driver.began < time.time() + 1


def test_what_sparks_own_writers_do_not_say_is_not_shown_as_none(start_driver: StartDriver, server: Server) -> None:
    driver = start_driver(flight_conf(server))
    driver.call(held.write, name="x", records=RECORDS, maps=3, partitions=PARTITIONS)
    assert shown(server, driver).split()[4] == "-"
