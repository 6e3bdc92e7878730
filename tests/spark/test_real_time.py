"""Spark's real-time mode, in which both stages of a shuffle run at once, through the worker's relay."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.harness.cluster import ClusterProcesses, wait_until
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from shuffle_plugins.spark import spark_conf
from tests.shuffle_server.observe.helpers import Scrape
from tests.spark import leaks, observe, real_time, relays
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


def configure(driver: SparkDriver, scratch: Path, control: str, settings: dict[str, str] = real_time.SETTINGS) -> None:
    flight = spark_conf(control, fallback="never", real_time=True)
    driver.configure(local_conf(scratch) | flight | settings)


@pytest.fixture
def workers(tmp_path: Path, driver: SparkDriver) -> Iterator[list[ServerProcess]]:
    """Two, whose application ends before they do."""
    with ClusterProcesses(tmp_path, workers=0) as cluster:
        started = [cluster.add_worker("", "--metrics-listen", "127.0.0.1:0") for _ in range(2)]
        configure(driver, tmp_path, cluster.master.control, relays.SETTINGS | observe.WITH_UI)
        yield started
        driver.configure({})


def streams(worker: ServerProcess) -> tuple[int, int]:
    """Of writers and of readers of relayed shuffles."""
    scrape = Scrape(worker.metrics)
    return int(scrape("relay_streams", direction="push")), int(scrape("relay_streams", direction="pull"))


def test_rows_equal_those_of_sparks_own_manager(
    driver: SparkDriver, answers: dict[str, real_time.Rows], server: Server, tmp_path: Path
) -> None:
    configure(driver, tmp_path, server.control)
    before = pushed_bytes(server)
    assert driver.call(real_time.answers, checkpoint=str(tmp_path / "relay")) == answers
    assert pushed_bytes(server) > before
    # To this worker: the driver's, and of this executor one for pipelined shuffles and one for those of the batches
    # that count the rows.
    assert 2 <= leaks.connections(server.data) <= 3
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
            assert 2 <= leaks.connections(worker.data) <= 3
        driver.configure({})  # ends the application, while there is somebody to tell


def test_two_workers_share_the_partitions_of_a_shuffle(
    driver: SparkDriver, workers: list[ServerProcess], tmp_path: Path
) -> None:
    driver.begin(relays.shared, checkpoint=str(tmp_path / "shared"))
    half = relays.MAPS, relays.MANY // 2  # every writer has a stream to each of them, every reader one to its own
    wait_until(lambda: [streams(worker) for worker in workers] == [half, half], "both workers relay one shuffle")
    answers, written, read = driver.result()
    assert answers == relays.expected("shared")
    assert written == read >= relays.ROUNDS * real_time.KEYS
    pushed = [Scrape(worker.metrics)("pushed_bytes_total") for worker in workers]
    assert min(pushed) > 0.2 * sum(pushed)


def test_a_worker_that_is_killed_ends_one_batch_of_the_queries_that_it_relays(
    driver: SparkDriver, workers: list[ServerProcess], tmp_path: Path
) -> None:
    killed = tmp_path / "killed"
    driver.begin(relays.through_a_loss, checkpoint=str(tmp_path / "loss"), killed=str(killed))
    half = relays.MAPS, relays.MANY // 2
    more = 2 * relays.MAPS, relays.MANY // 2 + relays.FEW
    wait_until(lambda: sorted(map(streams, workers)) == [half, more], "one worker relays the other query as well")
    min(workers, key=streams).kill()
    killed.touch()
    answers, failures = driver.result()
    assert answers == relays.expected("shared") | relays.expected("alone")
    assert len(failures) == 1, failures  # the next batch had the worker that was left


def test_the_query_of_the_example_counts_words(driver: SparkDriver, server: Server, tmp_path: Path) -> None:
    configure(driver, tmp_path, server.control, relays.SETTINGS)
    counts = driver.call(relays.words, checkpoint=str(tmp_path / "words"))
    assert counts == {"be": 2, "not": 1, "or": 1, "to": 2}
    driver.configure({})


@pytest.mark.parametrize("slow", [True, False])
def test_rows_that_wait_for_their_readers_are_compressed(driver: SparkDriver, tmp_path: Path, slow: bool) -> None:
    with Server(tmp_path, "--window", "1m") as server:
        configure(driver, tmp_path, server.control, relays.SETTINGS)
        raw = driver.call(relays.wide, checkpoint=str(tmp_path / "wide"), slow=slow)
        assert (pushed_bytes(server) < raw / 2) == slow
        driver.configure({})


def open_streams(server: Server) -> int:
    [state] = server.status().states
    return state.open_pushes + state.open_pulls
