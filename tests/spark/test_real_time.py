"""Spark's real-time mode, in which both stages of a shuffle run at once, through the worker's relay."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.cluster import ClusterProcesses, wait_until
from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from shuffle_plugins.spark import spark_conf
from tests.shuffle_server.observe.helpers import Scrape
from tests.spark import leaks, real_time
from tests.spark.conftest import new_driver, pushed_bytes
from tests.spark.server import Server

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkDriver]:
    """A driver that ends with the module: real-time mode leaves threads behind in its JVM."""
    with new_driver(local_conf(tmp_path_factory.mktemp("driver")), tmp_path_factory) as started:
        yield started


@pytest.fixture(scope="module")
def answers(driver: SparkDriver, tmp_path_factory: pytest.TempPathFactory) -> dict[str, real_time.Rows]:
    """Those of Spark's own manager."""
    scratch = tmp_path_factory.mktemp("own")
    driver.configure(local_conf(scratch) | real_time.SETTINGS)
    found: dict[str, real_time.Rows] = driver.call(real_time.answers, checkpoint=str(scratch / "checkpoint"))
    assert len(found["duplicates"]) == real_time.ROWS
    assert len(found["windows"]) == real_time.ROUNDS * real_time.ROWS
    return found


def configure(driver: SparkDriver, scratch: Path, control: str) -> None:
    flight = spark_conf(control, fallback="never", real_time=True)
    driver.configure(local_conf(scratch) | real_time.SETTINGS | flight)


def test_rows_equal_those_of_sparks_own_manager(
    driver: SparkDriver, answers: dict[str, real_time.Rows], server: Server, tmp_path: Path
) -> None:
    configure(driver, tmp_path, server.control)
    before = pushed_bytes(server)
    assert driver.call(real_time.answers, checkpoint=str(tmp_path / "relay")) == answers
    assert pushed_bytes(server) > before
    # Of this executor to this worker: one for pipelined shuffles, one for those of the batches that count the rows.
    assert 1 <= leaks.connections(server.data) <= 2
    # The queries were stopped in the middle of a batch: their tasks were interrupted.
    leaks.wait_until_none(lambda: open_streams(server), "open streams")


def test_of_two_workers_each_relays_some_of_the_shuffles(
    driver: SparkDriver, answers: dict[str, real_time.Rows], tmp_path: Path
) -> None:
    with ClusterProcesses(tmp_path, workers=0) as cluster:
        workers = [cluster.add_worker("", "--metrics-listen", "127.0.0.1:0") for _ in range(2)]
        configure(driver, tmp_path, cluster.master.control)
        driver.begin(real_time.answers, checkpoint=str(tmp_path / "relay"))
        # The shuffles of the two queries, at the same time.
        wait_until(
            lambda: all(Scrape(worker.metrics)("relayed_shuffles") > 0 for worker in workers), "both workers relay"
        )
        assert driver.result() == answers
        for worker in workers:
            assert 1 <= leaks.connections(worker.data) <= 2
        driver.configure({})  # ends the application, while there is somebody to tell


def open_streams(server: Server) -> int:
    [state] = server.status().states
    return state.open_pushes + state.open_pulls
