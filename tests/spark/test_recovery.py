"""What a lost or corrupt map output and a dying server cost: exactly the maps that are gone, never a wrong answer."""

import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.harness.spark_driver import JobFailed, SparkDriver
from tests.spark import held, observe
from tests.spark.conftest import StartDriver, flight_conf
from tests.spark.damage import cut_in_half, delete, flip_a_bit
from tests.spark.server import Server

pytestmark = pytest.mark.spark

RECORDS, MAPS, PARTITIONS, OTHER_SALT = 8_000, 8, 4, 1_000_000
EXPECTED = held.expected(RECORDS, PARTITIONS)
OTHER_EXPECTED = held.expected(RECORDS, PARTITIONS, OTHER_SALT)


@pytest.fixture(scope="module")
def driver(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver(flight_conf(server) | observe.WITH_UI | {"spark.master": "local[4]"})


@pytest.fixture
def app(driver: SparkDriver) -> str:
    """The application's name at the server, after two more shuffles were written: first "one", then "other"."""
    driver.call(held.write, name="one", records=RECORDS, maps=MAPS, partitions=PARTITIONS)
    driver.call(held.write, name="other", records=RECORDS, maps=MAPS, partitions=PARTITIONS, salt=OTHER_SALT)
    key: str = driver.call(held.app_key)
    return key


@pytest.mark.parametrize("damage", [delete, flip_a_bit, cut_in_half])
def test_damage_to_one_map_output_reruns_exactly_that_map(
    driver: SparkDriver, server: Server, app: str, damage: Callable[[Path], None]
) -> None:
    one, other = newest_two_shuffles(server, app)
    before = driver.call(observe.map_tasks)
    tasks_of_one, tasks_of_other = before[-2 * MAPS : -MAPS], before[-MAPS:]
    [victim] = [task for task in tasks_of_one if task.map == 5]
    untouched = {
        server.output(app, shuffle, task.id): server.output(app, shuffle, task.id).stat().st_mtime_ns
        for shuffle, tasks in ((one, tasks_of_one), (other, tasks_of_other))
        for task in tasks
        if task != victim
    }

    damage(server.output(app, one, victim.id))

    assert driver.call(held.read, name="one") == EXPECTED
    assert driver.call(held.read, name="other") == OTHER_EXPECTED
    [rerun] = driver.call(observe.map_tasks)[len(before) :]
    assert rerun.map == victim.map
    assert server.output(app, one, rerun.id).exists()
    assert {path: path.stat().st_mtime_ns for path in untouched} == untouched


@pytest.mark.parametrize("damage", [delete, flip_a_bit])
def test_damage_to_more_map_outputs_than_a_stage_has_attempts_reruns_each_of_them_once(
    driver: SparkDriver, server: Server, app: str, damage: Callable[[Path], None]
) -> None:
    """A fetch failure names one map output: found out one by one, these would fail the job."""
    one, _ = newest_two_shuffles(server, app)
    before = driver.call(observe.map_tasks)
    victims = [task for task in before[-2 * MAPS : -MAPS] if task.map not in (2, 6)]

    for victim in victims:
        damage(server.output(app, one, victim.id))

    assert driver.call(held.read, name="one") == EXPECTED
    reruns = driver.call(observe.map_tasks)[len(before) :]
    assert sorted(task.map for task in reruns) == sorted(task.map for task in victims)


def test_killed_and_restarted_server_costs_no_map(driver: SparkDriver, server: Server, app: str) -> None:
    before = driver.call(observe.map_tasks)
    server.kill()
    server.start()
    assert driver.call(held.read, name="one") == EXPECTED
    assert driver.call(held.read, name="other") == OTHER_EXPECTED
    assert driver.call(observe.map_tasks) == before


def test_server_that_can_open_no_file_for_a_while_costs_no_map(driver: SparkDriver, server: Server, app: str) -> None:
    before = driver.call(observe.map_tasks)
    limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    taken = {int(path.name) for path in Path(f"/proc/{server.pid}/fd").iterdir()}
    free = min(set(range(len(taken) + 1)) - taken)
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        driver.begin(held.read, name="one")
        time.sleep(3)
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
    assert driver.result() == EXPECTED
    assert driver.call(observe.map_tasks) == before


def test_reduce_stage_that_starts_while_the_server_is_away_waits_for_it(
    driver: SparkDriver, server: Server, app: str
) -> None:
    before = driver.call(observe.map_tasks)
    server.kill()
    driver.begin(held.read, name="one")
    server.start()  # takes a second or two
    assert driver.result() == EXPECTED
    assert driver.call(observe.map_tasks) == before


def test_new_shuffle_waits_for_a_server_that_is_away_for_longer_than_a_call(
    driver: SparkDriver, server: Server
) -> None:
    driver.renew({"spark.shuffle.flight.connectTimeout": "1s"})
    assert driver.call(held.count_nothing) == 0  # the session has started
    try:
        server.kill()
        driver.begin(held.write, name="later", records=RECORDS, maps=MAPS, partitions=PARTITIONS, salt=4)
        time.sleep(3)
        server.start()
        driver.result()
        assert driver.call(held.read, name="later") == held.expected(RECORDS, PARTITIONS, 4)
    finally:
        driver.renew({})


def test_query_whose_shuffle_cannot_be_registered_fails_and_says_for_how_long_that_was_tried(
    driver: SparkDriver, server: Server
) -> None:
    window = {"spark.shuffle.flight.connectTimeout": "1s", "spark.shuffle.flight.retryWindow": "2s"}
    driver.renew(window | {"spark.sql.adaptive.enabled": "true"})
    assert driver.call(held.count_nothing) == 0  # the session has started
    server.kill()
    try:
        with pytest.raises(JobFailed, match=rf"{server.control} cannot be reached.*tried for 2 s .*retryWindow"):
            driver.call(held.count_repartitioned, timeout=180)
    finally:
        server.start()
    assert driver.call(held.count_repartitioned) == held.RANGE  # the same session
    driver.renew({})


def test_exchange_that_no_map_writes_needs_no_server(driver: SparkDriver, server: Server, app: str) -> None:
    """Spark registers it in a callback: an exception there hangs the query for ever."""
    server.kill()
    try:
        assert driver.call(held.count_nothing, timeout=180) == 0
    finally:
        server.start()


def test_new_shuffles_work_after_a_restart(driver: SparkDriver, server: Server, app: str) -> None:
    server.kill()
    server.start()
    driver.call(held.write, name="later", records=RECORDS, maps=MAPS, partitions=PARTITIONS, salt=5)
    assert driver.call(held.read, name="later") == held.expected(RECORDS, PARTITIONS, 5)


def test_stage_of_cached_and_shuffled_partitions_does_not_hang(driver: SparkDriver) -> None:
    """Spark places its tasks by the hosts of both; they would wait for ever for a host that has no executor."""
    expected = [(key, 80 * len(range(key, 500, 60))) for key in range(50)]
    assert driver.call(held.join_with_cached, timeout=300) == expected


def newest_two_shuffles(server: Server, app: str) -> tuple[int, int]:
    """Ids of the last two shuffles of an application, older one first."""
    ids = sorted(shuffle.shuffle.shuffle for shuffle in server.status().shuffles if shuffle.shuffle.app == app)
    return ids[-2], ids[-1]
