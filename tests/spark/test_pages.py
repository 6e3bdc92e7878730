"""Spark's pages about an application have a tab with its shuffles, live and in the history server."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.harness.spark_driver import SparkDriver
from tests.spark import held, observe, pages
from tests.spark.conftest import StartDriver, flight_conf
from tests.spark.pages import HistoryServer, Tables
from tests.spark.server import Server

pytestmark = pytest.mark.spark

RECORDS, MAPS, PARTITIONS = 8_000, 6, 4
ROWS, ROW_PARTITIONS = 20_000, 9
PREFIX = "spark.shuffle.flight."


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server, events: Path) -> SparkDriver:
    logged = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri(), "spark.log.level": "INFO"}
    return start_driver(flight_conf(server) | observe.WITH_UI | logged)


def test_tab_has_the_figures_of_sparks_metrics_live_and_afterwards(
    driver: SparkDriver, server: Server, events: Path, tmp_path: Path
) -> None:
    driver.call(held.write, name="pages", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    driver.call(held.write_rows, name="rows", rows=ROWS, maps=MAPS, partitions=ROW_PARTITIONS)
    app = driver.call(held.app_key)
    folders = {int(path.name.partition(".")[0]) for path in (server.data_dir / "worker" / "apps" / app).iterdir()}
    pairs, rows = sorted(folders)
    victim = next(task for task in driver.call(observe.map_tasks) if task.map == 2)
    server.output(app, pairs, victim.id).unlink()
    assert driver.call(held.read, name="pages") == held.expected(RECORDS, PARTITIONS)

    shown = driver.call(pages.live)
    tables = Tables(shown).tables
    tasks = [task for task in driver.call(observe.tasks) if task.status == "SUCCESS"]
    found = {int(line["Shuffle"]): line for line in tables["flight-shuffles"]}
    assert sorted(found) == [pairs, rows]
    for column, figure in {
        "Written": sum(task.written_bytes for task in tasks),
        "Records written": sum(task.written_records for task in tasks),
        "Read": sum(task.read_bytes for task in tasks),
        "Records read": sum(task.read_records for task in tasks),
    }.items():
        assert sum(int(line[column]) for line in found.values()) == figure, column
    assert {key: (line["Maps"], line["Partitions"]) for key, line in found.items()} == {
        pairs: (str(MAPS), str(PARTITIONS)),
        rows: (str(MAPS), str(ROW_PARTITIONS)),
    }
    assert int(found[rows]["Records written"]) == ROWS
    assert (found[pairs]["Lost maps"], found[pairs]["Maps that ran again"]) == ("1", "1")
    assert (found[rows]["Lost maps"], found[rows]["Maps that ran again"]) == ("0", "0")
    assert 0 < int(found[rows]["Median partition"]) <= int(found[rows]["Largest partition"])

    [worker] = {line["Worker"] for line in tables["flight-workers"]}
    assert worker == server.status().workers[0].id
    for line in tables["flight-workers"]:
        whole = found[int(line["Shuffle"])]
        assert int(line["Written locally"]) + int(line["Written by wire"]) == int(whole["Written"])
        assert int(line["Read locally"]) + int(line["Read by wire"]) == int(whole["Read"])
        assert line["Records written"] == whole["Records written"]
    assert tables["flight-fallbacks"] == []
    assert server.control in shown
    assert app in shown

    spark_id = driver.call(pages.application_id)
    driver.renew({})
    with HistoryServer(events, tmp_path) as history:
        later = history.page(spark_id)
    assert Tables(later).tables == tables
    assert server.control in later
    assert app in later

    log = driver.log.read_text(errors="replace")
    assert f"application {app} is registered at Flight Shuffle server {server.control}" in log
    written, records = (sum(int(line[column]) for line in found.values()) for column in ("Written", "Records written"))
    assert f"application {app} ends: 2 shuffles, 0 of them in Spark's sort shuffle; {2 * MAPS + 1} map outputs" in log
    assert f"with {written} bytes and {records} records written" in log


def test_shuffles_that_fell_back_are_listed_and_logged_with_the_reason(driver: SparkDriver) -> None:
    driver.renew({f"{PREFIX}fallback": "always"})
    driver.call(held.write, name="pages", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    tables = Tables(driver.call(pages.live)).tables
    reason = f"{PREFIX}fallback=always"
    assert tables["flight-shuffles"] == tables["flight-workers"] == []
    assert tables["flight-fallbacks"] == [
        {"Shuffle": "0", "Maps": str(MAPS), "Partitions": str(PARTITIONS), "Reason": reason}
    ]
    assert f"shuffle 0 goes to Spark's sort shuffle: {reason}" in driver.log.read_text(errors="replace")


def test_network_is_told_from_files(driver: SparkDriver) -> None:
    reads = {}
    for setting in ("auto", "off"):
        driver.renew({f"{PREFIX}handOver": setting})
        driver.call(held.write, name="pages", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
        [line] = Tables(driver.call(pages.live)).tables["flight-workers"]
        assert int(line["Written by wire"]) > 0  # so little is always pushed
        reads[setting] = [int(line[column]) > 0 for column in ("Read locally", "Read by wire")]
    assert reads == {"auto": [True, False], "off": [False, True]}


def test_tab_can_be_turned_off(driver: SparkDriver) -> None:
    driver.renew({})
    driver.call(held.write, name="pages", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    assert "Flight Shuffle" in driver.call(pages.tabs)
    driver.renew({f"{PREFIX}ui": "false"})
    driver.call(held.write, name="pages", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    assert "Flight Shuffle" not in driver.call(pages.tabs)
