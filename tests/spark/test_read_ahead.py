"""Small partitions that are read before their tasks ask: what is lost or dies meanwhile costs what it costs without."""

from __future__ import annotations

import time

import pytest

from bench.harness.spark_driver import SparkDriver
from tests.shuffle_server.observe.helpers import Scrape
from tests.spark import held, observe
from tests.spark.conftest import WITH_METRICS, StartDriver, flight_conf
from tests.spark.damage import flip_a_bit
from tests.spark.server import Server

pytestmark = pytest.mark.spark

SERVER_ARGUMENTS = WITH_METRICS

RECORDS, MAPS, PARTITIONS = 9_700, 4, 90
EXPECTED = held.expected(RECORDS, PARTITIONS)
FEW, FEW_PARTITIONS = 700, 8
PULLS, BLOCKS = "pull_first_byte_seconds_count", "pulled_blocks_total"


@pytest.fixture(scope="module")
def one_jvm(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver(flight_conf(server) | observe.WITH_UI)


@pytest.fixture(params=["auto", "off"])
def driver(request: pytest.FixtureRequest, one_jvm: SparkDriver) -> SparkDriver:
    """By file, or over the wire; with a shuffle that was written."""
    one_jvm.renew({"spark.shuffle.flight.handOver": request.param})
    one_jvm.call(held.write, name="one", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    return one_jvm


@pytest.mark.parametrize("driver", ["off"], indirect=True)
def test_several_partitions_are_pulled_with_one_request(driver: SparkDriver, server: Server) -> None:
    before = Scrape(server.metrics)
    assert driver.call(held.read, name="one") == EXPECTED
    after = Scrape(server.metrics)
    assert after(BLOCKS) - before(BLOCKS) < 1.5 * MAPS * PARTITIONS
    assert after(PULLS) - before(PULLS) < PARTITIONS / 2


def test_a_corrupt_output_is_found_and_only_its_map_runs_again(driver: SparkDriver, server: Server) -> None:
    app, maps = driver.call(held.app_key), driver.call(observe.map_tasks)
    victim = maps[-1]
    [output] = (server.data_dir / "worker" / "apps" / app).glob(f"*/{victim.id}.*.out")
    flip_a_bit(output, 0.5)  # of a partition in the middle: others are read ahead then

    assert driver.call(held.read, name="one") == EXPECTED
    assert [rerun.map for rerun in driver.call(observe.map_tasks)[len(maps) :]] == [victim.map]


def test_a_worker_that_is_killed_and_restarted_costs_no_map(driver: SparkDriver, server: Server) -> None:
    maps = driver.call(observe.map_tasks)
    driver.begin(held.read, name="one", pause=0.1)
    time.sleep(2.5)  # about half of 90 tasks, two at a time
    server.kill()
    server.start()
    assert driver.result() == EXPECTED
    assert driver.call(observe.map_tasks) == maps


@pytest.fixture
def little(one_jvm: SparkDriver) -> SparkDriver:
    """Over the wire, with a shuffle of next to nothing that was written."""
    one_jvm.renew({"spark.shuffle.flight.handOver": "off"})
    one_jvm.call(held.write, name="little", records=FEW, maps=MAPS, partitions=FEW_PARTITIONS)
    return one_jvm


def test_a_shuffle_of_next_to_nothing_is_pulled_with_one_request(little: SparkDriver, server: Server) -> None:
    before = Scrape(server.metrics)
    assert little.call(held.read, name="little") == held.expected(FEW, FEW_PARTITIONS)
    after = Scrape(server.metrics)
    assert after(BLOCKS) - before(BLOCKS) == MAPS * FEW_PARTITIONS
    assert after(PULLS) - before(PULLS) == 1


def test_a_corrupt_output_of_it_is_found_and_only_its_map_runs_again(little: SparkDriver, server: Server) -> None:
    app, maps = little.call(held.app_key), little.call(observe.map_tasks)
    victim = maps[-1]
    [output] = (server.data_dir / "worker" / "apps" / app).glob(f"*/{victim.id}.*.out")
    flip_a_bit(output, 0.3)
    assert little.call(held.read, name="little") == held.expected(FEW, FEW_PARTITIONS)
    assert [rerun.map for rerun in little.call(observe.map_tasks)[len(maps) :]] == [victim.map]
