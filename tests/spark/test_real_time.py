"""Spark's real-time mode, in which both stages of a shuffle run at once, through the worker's relay."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.spark import local_conf
from bench.spark_driver import SparkDriver
from shuffle_plugins.spark import spark_conf
from tests.spark import leaks, real_time
from tests.spark.conftest import new_driver, pushed_bytes
from tests.spark.server import Server

pytestmark = pytest.mark.spark


@pytest.fixture
def driver(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkDriver]:
    """A driver that ends with the test: real-time mode leaves threads behind in its JVM."""
    with new_driver(local_conf(tmp_path), tmp_path_factory) as started:
        yield started


def test_rows_equal_those_of_sparks_own_manager(driver: SparkDriver, server: Server, tmp_path: Path) -> None:
    base = local_conf(tmp_path) | real_time.SETTINGS
    driver.configure(base)
    answers = driver.call(real_time.answers, checkpoint=str(tmp_path / "own"))
    assert len(answers["duplicates"]) == real_time.ROWS
    assert len(answers["windows"]) == real_time.ROUNDS * real_time.ROWS

    driver.configure(base | spark_conf(server.control, fallback="never", real_time=True))
    before = pushed_bytes(server)
    assert driver.call(real_time.answers, checkpoint=str(tmp_path / "relay")) == answers
    assert pushed_bytes(server) > before
    # Of this executor to this worker: one for pipelined shuffles, one for those of the batches that count the rows.
    assert 1 <= leaks.connections(server.data) <= 2
    # The queries were stopped in the middle of a batch: their tasks were interrupted.
    leaks.wait_until_none(lambda: open_streams(server), "open streams")


def open_streams(server: Server) -> int:
    [state] = server.status().states
    return state.open_pushes + state.open_pulls
