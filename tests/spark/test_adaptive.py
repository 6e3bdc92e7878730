"""Adaptive execution: Spark adapts plans through the server too, and the rows equal sort shuffle's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from bench.harness.spark_driver import SparkDriver
from tests.shuffle_server.observe.helpers import Scrape
from tests.spark import adaptive, observe
from tests.spark.adaptive import HEAVY, MAPS, Ran
from tests.spark.conftest import SORT_SHUFFLE, WITH_METRICS, StartDriver, flight_conf, pushed_bytes
from tests.spark.server import Server

pytestmark = pytest.mark.spark

SERVER_ARGUMENTS = WITH_METRICS

SETTINGS = observe.WITH_UI | {"spark.unsafe.exceptionOnMemoryLeak": "true"}
JOBS: dict[str, tuple[Callable[..., Ran], dict[str, bool]]] = {
    "coalesced": (adaptive.coalesced, {}),
    "by size": (adaptive.by_size, {}),
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


def test_packed_rows_are_coalesced_by_the_bytes_that_sort_shuffle_writes(
    ran: dict[str, Ran], by_sort_shuffle: dict[str, Ran]
) -> None:
    packed, sort = ran["by size"], by_sort_shuffle["by size"]
    assert len(sort.tasks) > 10
    assert 0.85 <= len(packed.tasks) / len(sort.tasks) <= 1.15
    read, read_by_sort = (sum(task.read_bytes for task in each.tasks) for each in (packed, sort))
    assert 0 < read < 0.7 * read_by_sort, "the UI has the bytes that are there"


def test_skewed_partition_is_split_by_ranges_of_maps(ran: dict[str, Ran]) -> None:
    whole, split = ran["not split"], ran["split"]
    assert "skewed" in split.plan
    assert "skew=true" in split.plan
    assert max(task.read_records for task in whole.tasks) >= HEAVY
    assert max(task.read_records for task in split.tasks) < HEAVY / 2
    assert len(split.tasks) > len(whole.tasks)


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes of the server since it started: payload taken in, served and sorted, and what its process read and wrote by
    system calls on files. Sockets are not among those."""

    pushed: float
    pulled: float
    sorted: float
    read: float
    written: float

    @classmethod
    def of(cls, server: Server) -> Work:
        scrape = Scrape(server.metrics)
        calls = dict(line.split(": ") for line in Path(f"/proc/{server.pid}/io").read_text().splitlines())
        pushed, pulled, rewritten = (scrape(f"{name}_bytes_total") for name in ("pushed", "pulled", "rewritten"))
        return cls(pushed, pulled, rewritten, float(calls["rchar"]), float(calls["wchar"]))

    def since(self, before: Work) -> Work:
        return Work(*(getattr(self, field.name) - getattr(before, field.name) for field in fields(Work)))


def test_of_a_skewed_join_the_server_reads_what_it_sends_and_sorts_nothing(
    one_jvm: SparkDriver, server: Server, by_sort_shuffle: dict[str, Ran]
) -> None:
    one_jvm.renew({"spark.shuffle.flight.handOver": "off"})  # else it is the executor that reads
    one_jvm.call(adaptive.skew_join, split=True)  # what is done once only is done now
    before = Work.of(server)
    ran = one_jvm.call(adaptive.skew_join, split=True)
    work = Work.of(server).since(before)
    assert "skew=true" in ran.plan
    assert ran.rows == by_sort_shuffle["split"].rows
    assert work.sorted == 0
    # Each payload byte is written once, and read as often as it is sent; indexes and the journal come on top.
    little = work.pushed / 2
    assert work.pushed <= work.written < work.pushed + little
    assert work.pulled <= work.read < work.pulled + little


def test_local_read_reads_each_row_of_each_map_once(ran: dict[str, Ran]) -> None:
    assert "AQEShuffleRead local" in ran["local"].plan
    assert "BroadcastHashJoin" in ran["local"].plan
    assert sum(task.read_records for task in ran["local"].tasks) == adaptive.ROWS + adaptive.SMALL


def test_reused_exchange_is_written_once_and_read_twice(ran: dict[str, Ran]) -> None:
    assert "ReusedExchange" in ran["reused"].plan
    assert sum(task.read_records for task in ran["reused"].tasks) == 2 * MAPS * adaptive.KEYS
