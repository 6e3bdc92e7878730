"""A shuffle number is used again: after Spark removed the shuffle, after the server dropped the application, by a map
that runs again under the same id. Readers get the rows that were written last, and lost outputs are written again."""

import time
from collections.abc import Iterator

import pytest

from bench.harness.spark_driver import SparkDriver
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.spark import held, observe, reused, stages
from tests.spark.conftest import StartDriver, flight_conf, pushed_bytes
from tests.spark.server import Server

pytestmark = pytest.mark.spark

RECORDS, MAPS, PARTITIONS = 8_000, 4, 4
EXPECTED = held.expected(RECORDS, PARTITIONS)
DEADLINE_S = 300.0
ATTEMPTS = {"spark.master": "local[2, 4]"}


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver(flight_conf(server) | observe.WITH_UI | ATTEMPTS)


@pytest.fixture
def master(server: Server) -> Iterator[ControlClient]:
    client = ControlClient(server.control, client="test")
    yield client
    client.close()


def drop(master: ControlClient, app: str) -> None:
    """As the server does with an application that was silent for too long."""
    master.call("UnregisterApp", pb.UnregisterAppRequest(app=app))


@pytest.mark.parametrize("adaptive", [False, True])
def test_shuffle_that_spark_removed_is_written_anew_when_it_is_wanted(driver: SparkDriver, adaptive: bool) -> None:
    driver.renew(reused.CLEANED)
    assert driver.call(reused.collect, times=3, adaptive=adaptive) == [reused.expected()] * 3


def test_shuffle_whose_dependencies_were_cleaned_is_written_anew_when_it_is_wanted(
    driver: SparkDriver, server: Server
) -> None:
    driver.renew({})
    driver.call(held.write, name="cleaned", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    app = driver.call(held.app_key)
    for _ in range(2):
        driver.call(held.clean, name="cleaned")
        server.wait_until_gone(app)
        assert driver.call(held.read, name="cleaned") == EXPECTED
    assert len(driver.call(observe.map_tasks)) == 3 * MAPS


def test_map_that_runs_again_under_the_id_of_the_first_attempt(driver: SparkDriver, server: Server) -> None:
    driver.renew({"spark.shuffle.useOldFetchProtocol": "true"})  # map ids are partition numbers then
    driver.call(held.write, name="old", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    tasks = driver.call(observe.map_tasks)
    assert len(tasks) == MAPS
    app = driver.call(held.app_key)
    for task in (tasks[1], tasks[2]):
        server.output(app, 0, task.id).unlink()

    assert driver.call(held.read, name="old") == EXPECTED
    assert sorted(task.map for task in driver.call(observe.map_tasks)[MAPS:]) == [1, 2]
    assert driver.call(held.read, name="old") == EXPECTED


@pytest.mark.parametrize("fallback", ["auto", "never"])
def test_application_that_was_dropped_registers_again_and_writes_its_shuffles_anew(
    driver: SparkDriver, server: Server, master: ControlClient, fallback: str
) -> None:
    driver.renew({"spark.shuffle.flight.fallback": fallback})
    driver.call(held.write, name="dropped", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    app = driver.call(held.app_key)
    drop(master, app)

    assert driver.call(held.read, name="dropped") == EXPECTED
    before = pushed_bytes(server)
    assert driver.call(stages.shuffled, adaptive=True) == driver.call(stages.expected)
    assert pushed_bytes(server) > before, "new shuffles go to sort shuffle"
    assert [each.app for each in server.status().apps] == [app]


def test_maps_that_are_being_written_when_the_application_is_dropped_run_again(
    driver: SparkDriver, server: Server, master: ControlClient
) -> None:
    driver.renew({})
    driver.begin(held.write, name="meanwhile", records=RECORDS, maps=MAPS, partitions=PARTITIONS, pause=2)
    deadline = time.monotonic() + DEADLINE_S
    while not server.status().shuffles:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    [status] = server.status().apps
    drop(master, status.app)

    driver.result()
    assert driver.call(held.read, name="meanwhile") == EXPECTED
    assert [each.app for each in server.status().apps] == [status.app]
