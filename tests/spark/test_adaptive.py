"""Adaptive execution: what it does to a plan it does through the server too, with sort shuffle's rows."""

from collections.abc import Callable

import pytest

from bench.spark_driver import SparkDriver
from tests.spark import adaptive, observe
from tests.spark.adaptive import HEAVY, MAPS, Ran
from tests.spark.conftest import SORT_SHUFFLE, StartDriver, flight_conf, pushed_bytes
from tests.spark.server import Server

pytestmark = pytest.mark.spark

SETTINGS = observe.WITH_UI | {"spark.unsafe.exceptionOnMemoryLeak": "true"}
JOBS: dict[str, tuple[Callable[..., Ran], dict[str, bool]]] = {
    "coalesced": (adaptive.coalesced, {}),
    "split": (adaptive.skew_join, {"split": True}),
    "not split": (adaptive.skew_join, {"split": False}),
    "local": (adaptive.local_read, {}),
    "reused": (adaptive.reused, {}),
}


@pytest.fixture(scope="module")
def one_jvm(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver(flight_conf(server) | SETTINGS)


@pytest.fixture(scope="module")
def by_sort_shuffle(one_jvm: SparkDriver) -> dict[str, Ran]:
    one_jvm.renew(SORT_SHUFFLE)
    return {name: one_jvm.call(job, **arguments) for name, (job, arguments) in JOBS.items()}


@pytest.fixture(scope="module")
def ran(one_jvm: SparkDriver, by_sort_shuffle: dict[str, Ran], server: Server) -> dict[str, Ran]:
    one_jvm.renew({})
    before = pushed_bytes(server)
    found = {name: one_jvm.call(job, **arguments) for name, (job, arguments) in JOBS.items()}
    assert pushed_bytes(server) > before
    return found


@pytest.mark.parametrize("name", JOBS)
def test_rows_equal_sort_shuffles(name: str, ran: dict[str, Ran], by_sort_shuffle: dict[str, Ran]) -> None:
    assert ran[name].rows == by_sort_shuffle[name].rows
    assert ran[name].rows


def test_small_partitions_are_coalesced(ran: dict[str, Ran]) -> None:
    assert "AQEShuffleRead coalesced" in ran["coalesced"].plan
    assert len(ran["coalesced"].tasks) < 20


def test_skewed_partition_is_split_by_ranges_of_maps(ran: dict[str, Ran]) -> None:
    whole, split = ran["not split"], ran["split"]
    assert "skewed" in split.plan
    assert "skew=true" in split.plan
    assert max(task.read_records for task in whole.tasks) >= HEAVY
    assert max(task.read_records for task in split.tasks) < HEAVY / 2
    assert len(split.tasks) > len(whole.tasks)


def test_local_read_reads_each_row_of_each_map_once(ran: dict[str, Ran]) -> None:
    assert "AQEShuffleRead local" in ran["local"].plan
    assert "BroadcastHashJoin" in ran["local"].plan
    assert sum(task.read_records for task in ran["local"].tasks) == adaptive.ROWS + adaptive.SMALL


def test_reused_exchange_is_written_once_and_read_twice(ran: dict[str, Ran]) -> None:
    assert "ReusedExchange" in ran["reused"].plan
    assert sum(task.read_records for task in ran["reused"].tasks) == 2 * MAPS * adaptive.KEYS
