"""Map outputs that are handed over as files, since the server is on this host; and what happens when they cannot be."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.harness.cluster import wait_until
from bench.harness.spark_driver import SparkDriver
from tests.processes import stopped
from tests.shuffle_server.observe.helpers import Scrape
from tests.spark import held, jobs, leaks, observe
from tests.spark.conftest import WITH_METRICS, StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

SERVER_ARGUMENTS = WITH_METRICS

RECORDS, MAPS, PARTITIONS = 40_000, 4, 3
EXPECTED = held.expected(RECORDS, PARTITIONS)
PREFIX = "spark.shuffle.flight."
# Outputs of less than a message are pushed: with these, none is that small.
SMALL_MESSAGES = {f"{PREFIX}batchSize": "8k", f"{PREFIX}blockSize": "4k", f"{PREFIX}rowMemory": "0"}
SPILL_FILE = {  # Spark's serialized writer, whose only spill file is handed over whole
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.shuffle.sort.bypassMergeThreshold": "1",
}


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver(
        flight_conf(server) | SMALL_MESSAGES | observe.WITH_UI | {"spark.unsafe.exceptionOnMemoryLeak": "true"}
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """Payload bytes since the server started: all, and what of it went by file."""

    pushed: float
    pushed_by_file: float
    pulled: float
    pulled_by_file: float


def traffic(server: Server) -> Traffic:
    scrape = Scrape(server.metrics)
    push, pull = (scrape("handed_over_bytes_total", direction=direction) for direction in ("push", "pull"))
    return Traffic(scrape("pushed_bytes_total"), push, scrape("pulled_bytes_total"), pull)


def write_and_read(driver: SparkDriver) -> list[int]:
    driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    sums: list[int] = driver.call(held.read, name="x")
    return sums


def inodes(server: Server, app: str) -> set[int]:
    found = set()
    for path in (server.data_dir / "worker" / "apps" / app).rglob("*.out"):
        with suppress(FileNotFoundError):  # it may move away meanwhile
            found.add(path.stat().st_ino)
    return found


def test_all_goes_by_file_and_nothing_is_left(driver: SparkDriver, server: Server) -> None:
    driver.renew({})
    before = traffic(server)
    assert write_and_read(driver) == EXPECTED
    after = traffic(server)
    assert after.pushed - before.pushed == after.pushed_by_file - before.pushed_by_file > 0
    assert after.pulled - before.pulled == after.pulled_by_file - before.pulled_by_file > 0
    leaks.wait_until_none(lambda: leaks.under_way(server), "under way")


def test_reads_without_asking_are_told_to_the_server(driver: SparkDriver, server: Server) -> None:
    driver.renew({})
    before = traffic(server)
    assert write_and_read(driver) == EXPECTED
    assert driver.call(held.read, name="x") == EXPECTED
    written = traffic(server).pushed - before.pushed
    # Once when it was written, and twice since.
    wait_until(lambda: traffic(server).pulled - before.pulled >= 3 * written, "all reads are counted")
    after = traffic(server)
    assert after.pulled - before.pulled == after.pulled_by_file - before.pulled_by_file == 3 * written


def test_worker_is_asked_once_where_an_output_of_thousands_of_blocks_lies(driver: SparkDriver, server: Server) -> None:
    rows = 20_000
    driver.renew({})
    assert driver.call(held.write_rows, name="x", rows=rows, maps=2, partitions=4_000) == rows
    with stopped(server.pid):
        assert driver.call(held.count_rows, name="x", timeout=120) == rows


@pytest.mark.nightly
def test_outputs_that_move_to_an_object_store_while_they_are_read_cost_no_map(
    start_driver: StartDriver, tmp_path: Path
) -> None:
    tier = ("--tier", f"file://{tmp_path}/cold", "--tier-after", "0")  # what is read moves in the next second
    with Server(tmp_path, *tier) as tiered:
        driver = start_driver(flight_conf(tiered) | SMALL_MESSAGES | observe.WITH_UI)
        driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
        before = driver.call(observe.map_tasks)
        app = driver.call(held.app_key)
        for _ in range(3):
            wait_until(lambda: not inodes(tiered, app), "all outputs are away")
            assert driver.call(held.read, name="x") == EXPECTED
            assert driver.call(held.read, name="x") == EXPECTED  # while they move again
        assert driver.call(observe.map_tasks) == before
        driver.configure({})  # ends the application, while there is somebody to tell


def test_compacted_outputs_are_read_by_file(start_driver: StartDriver, tmp_path: Path) -> None:
    compacting = (*WITH_METRICS, "--device", "1000:150", "--page-cache", "1k", "--merge-below", "1")
    with Server(tmp_path, *compacting) as slow:
        driver = start_driver(flight_conf(slow) | SMALL_MESSAGES)
        driver.call(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
        assert driver.call(held.write_rows, name="y", rows=20_000, maps=12, partitions=600) == 20_000
        app = driver.call(held.app_key)
        wait_until(lambda: not inodes(slow, app), "all outputs are compacted")
        before = traffic(slow)
        for _ in range(2):
            assert driver.call(held.read, name="x") == EXPECTED
            assert driver.call(held.count_rows, name="y") == 20_000
        after = traffic(slow)
        assert after.pulled - before.pulled == after.pulled_by_file - before.pulled_by_file > 0
        slow.kill()
        slow.start()
        assert driver.call(held.read, name="x") == EXPECTED
        assert driver.call(held.count_rows, name="y") == 20_000
        driver.configure({})  # ends the application, while there is somebody to tell


def test_finished_spill_file_is_renamed(driver: SparkDriver, server: Server) -> None:
    driver.renew({f"{PREFIX}handOver": "off"})
    expected = driver.call(jobs.sql_window)
    driver.renew(SPILL_FILE)
    before = traffic(server)
    assert driver.call(jobs.sql_window) == expected
    after = traffic(server)
    assert after.pushed_by_file > before.pushed_by_file
    assert after.pulled - before.pulled == after.pulled_by_file - before.pulled_by_file > 0
    # Spark deletes those that were copied.
    leaks.wait_until_none(lambda: driver.call(leaks.temporary_files), "temporary files")


def test_turned_off_nothing_goes_by_file(driver: SparkDriver, server: Server) -> None:
    driver.renew({f"{PREFIX}handOver": "off"})
    before = traffic(server)
    assert write_and_read(driver) == EXPECTED
    after = traffic(server)
    assert (after.pushed_by_file, after.pulled_by_file) == (before.pushed_by_file, before.pulled_by_file)
    assert after.pulled > before.pulled


@pytest.mark.parametrize("nonce", [None, b"of another worker"], ids=["unreadable", "wrong"])
def test_who_cannot_prove_to_be_here_uses_the_wire(driver: SparkDriver, server: Server, nonce: bytes | None) -> None:
    driver.renew({})
    path = server.data_dir / "worker" / "nonce"
    right = path.read_bytes()
    if nonce is None:
        path.unlink()
    else:
        path.write_bytes(nonce)
    before = traffic(server)
    try:
        assert write_and_read(driver) == EXPECTED
    finally:
        path.write_bytes(right)
    after = traffic(server)
    assert (after.pushed_by_file, after.pulled_by_file) == (before.pushed_by_file, before.pulled_by_file)
    assert after.pulled > before.pulled


def test_killed_and_restarted_server_costs_no_map_and_hands_over_again(driver: SparkDriver, server: Server) -> None:
    driver.renew({})
    assert write_and_read(driver) == EXPECTED
    before = driver.call(observe.map_tasks)
    server.kill()
    server.start()  # its nonce is a new one
    for _ in range(2):
        assert driver.call(held.read, name="x") == EXPECTED
    assert driver.call(observe.map_tasks) == before
    assert write_and_read(driver) == EXPECTED
    assert traffic(server).pulled_by_file > 0


def test_server_killed_while_maps_write_files(driver: SparkDriver, server: Server) -> None:
    """Files that were lent are gone with the server: their maps run again, and nothing half-written is read."""
    driver.renew({"spark.master": "local[2, 4]"})
    driver.begin(held.write, name="x", records=RECORDS, maps=MAPS, partitions=PARTITIONS, pause=1)
    server.kill()
    server.start()
    driver.result()
    assert driver.call(held.read, name="x") == EXPECTED
    assert not list((server.data_dir / "worker" / "apps").rglob("*.partial"))


def test_damaged_file_is_noticed_by_its_reader_and_its_map_runs_again(driver: SparkDriver, server: Server) -> None:
    driver.renew({})
    assert write_and_read(driver) == EXPECTED
    before = driver.call(observe.map_tasks)
    app: str = driver.call(held.app_key)
    victim = next((server.data_dir / "worker" / "apps" / app).rglob("*.out"))
    with victim.open("r+b") as file:
        file.seek(100)
        byte = file.read(1)[0]
        file.seek(100)
        file.write(bytes([byte ^ 4]))
    assert driver.call(held.read, name="x") == EXPECTED
    assert len(driver.call(observe.map_tasks)) == len(before) + 1
