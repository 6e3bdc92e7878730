"""The driver plans on while a shuffle is registered; errors show when its stage is submitted."""

import os
import signal
import threading

import pytest

from bench.harness.spark_driver import JobFailed, SparkDriver
from tests.processes import stopped
from tests.spark import stages
from tests.spark.conftest import StartDriver, flight_conf, pushed_bytes
from tests.spark.server import Server

pytestmark = pytest.mark.spark

SERVER_ARGUMENTS = ("--app-max-shuffles", "1")
FALLBACK, TIMEOUT = "spark.shuffle.flight.fallback", "spark.shuffle.flight.connectTimeout"


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server) -> SparkDriver:
    """One that shuffles within a single JVM."""
    return start_driver(flight_conf(server) | {"spark.master": "local[2]"})


def test_shuffle_that_the_server_refuses_is_sort_shuffles_from_its_first_map_on(
    driver: SparkDriver, server: Server
) -> None:
    driver.renew({FALLBACK: "auto"})
    driver.call(stages.write, name="kept")
    before, start = pushed_bytes(server), len(driver.log.read_text())

    driver.call(stages.write, name="refused")

    assert driver.call(stages.read, name="refused") == driver.call(stages.expected)
    assert pushed_bytes(server) == before > 0
    [warning] = [line for line in driver.log.read_text()[start:].splitlines() if " WARN AppRegistration" in line]
    assert "its quota is 1" in warning
    assert driver.call(stages.read, name="kept") == driver.call(stages.expected)


@pytest.mark.parametrize("adaptive", [False, True])
def test_never_says_why_the_server_refuses(driver: SparkDriver, adaptive: bool) -> None:
    driver.renew({FALLBACK: "never", "spark.shuffle.flight.retryWindow": "1s"})
    driver.call(stages.write, name="kept")
    with pytest.raises(JobFailed, match="its quota is 1"):
        driver.call(stages.shuffled, adaptive=adaptive)
    assert driver.call(stages.read, name="kept") == driver.call(stages.expected)


def test_auto_does_not_wait_for_a_server_that_is_silent(driver: SparkDriver, server: Server) -> None:
    driver.renew({FALLBACK: "auto", TIMEOUT: "2s"})
    expected = driver.call(stages.expected)
    with stopped(server.pid):
        assert driver.call(stages.shuffled, adaptive=True) == expected


def test_never_waits_for_a_server_that_is_silent_for_a_while(driver: SparkDriver, server: Server) -> None:
    driver.renew({FALLBACK: "never", TIMEOUT: "1s"})
    expected = driver.call(stages.expected)
    before = pushed_bytes(server)
    with stopped(server.pid):
        timer = threading.Timer(3, os.kill, (server.pid, signal.SIGCONT))
        timer.start()
        assert driver.call(stages.shuffled, adaptive=True) == expected
        timer.join()
    assert pushed_bytes(server) > before
