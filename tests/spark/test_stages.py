"""Stages of their own kind: barrier stages, those whose output is another each time, those of SQL that lost maps."""

import time
from pathlib import Path

import pyspark
import pytest

from bench.harness.spark_driver import SparkDriver
from shuffle_server.store.format import encode_tail
from shuffle_server.store.output_file import load
from shuffle_transport.checksum import crc32c
from tests.spark import held, observe, stages
from tests.spark.conftest import SORT_SHUFFLE, StartDriver, flight_conf
from tests.spark.server import Server

pytestmark = pytest.mark.spark

SETTINGS = observe.WITH_UI | {"spark.master": "local[4, 2]", "spark.unsafe.exceptionOnMemoryLeak": "true"}


@pytest.fixture(scope="module")
def one_jvm(start_driver: StartDriver, server: Server) -> SparkDriver:
    return start_driver(flight_conf(server) | SETTINGS)


@pytest.fixture(scope="module")
def sorted_barrier(one_jvm: SparkDriver, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    one_jvm.renew(SORT_SHUFFLE)
    answer: list[object] = one_jvm.call(stages.barrier, flag=str(tmp_path_factory.mktemp("sort") / "flag"))
    return answer


@pytest.fixture(scope="module")
def driver(one_jvm: SparkDriver, sorted_barrier: list[object]) -> SparkDriver:
    one_jvm.renew({})
    return one_jvm


def test_barrier_stage_that_fails_once_equals_sort_shuffles(
    driver: SparkDriver, sorted_barrier: list[object], tmp_path: Path
) -> None:
    assert driver.call(stages.barrier, flag=str(tmp_path / "flag")) == sorted_barrier
    attempts = {(task.stage, task.stage_attempt) for task in driver.call(observe.tasks) if task.read_records}
    assert any(attempt > 0 for _, attempt in attempts)


def last_shuffle(driver: SparkDriver) -> list[observe.Task]:
    """The successful map tasks of the last stage that wrote, by map."""
    tasks = [task for task in driver.call(observe.tasks) if task.written_records and task.status == "SUCCESS"]
    return sorted((task for task in tasks if task.stage == tasks[-1].stage), key=lambda task: task.index)


def file_of(server: Server, app: str, task: observe.Task) -> Path:
    [path] = (server.data_dir / "worker" / "apps" / app).glob(f"*/{task.id}.*.out")
    return path


def test_rows_of_sql_that_are_lost_cost_exactly_their_maps(driver: SparkDriver, server: Server) -> None:
    driver.call(stages.write, name="sql")
    maps = last_shuffle(driver)
    assert [task.index for task in maps] == list(range(stages.MAPS))
    before = driver.call(observe.tasks)

    app = driver.call(held.app_key)
    for task in (maps[1], maps[4]):
        file_of(server, app, task).unlink()

    assert driver.call(stages.read, name="sql") == driver.call(stages.expected)
    rerun = [task for task in driver.call(observe.tasks)[len(before) :] if task.written_records]
    assert sorted(task.index for task in rerun) == [1, 4]


def garble(path: Path) -> None:
    """Put something else than rows into each block, with the checksums of that: nothing but the rows is wrong."""
    file, data = load(path), bytearray(path.read_bytes())
    index = file.index.copy()
    for block in index:
        start, end = int(block["offset"]), int(block["offset"] + block["length"])
        data[start : start + 4] = b"WORS"
        block["crc32c"] = crc32c(bytes(data[start:end]))
    tail = encode_tail(index.tobytes(), file.description)
    path.write_bytes(bytes(data[: len(data) - len(tail)]) + tail)


def test_rows_of_sql_that_are_none_although_their_checksum_is_right_cost_exactly_their_map(
    driver: SparkDriver, server: Server
) -> None:
    driver.call(stages.write, name="sql")
    maps = last_shuffle(driver)
    before = driver.call(observe.tasks)

    garble(file_of(server, driver.call(held.app_key), maps[3]))

    assert driver.call(stages.read, name="sql") == driver.call(stages.expected)
    after = driver.call(observe.tasks)[len(before) :]
    assert [task.index for task in after if task.written_records] == [3]
    assert any(task.stage_attempt > 0 for task in after)


@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="checksums of rows came with Spark 4.1")
def test_tasks_get_no_object_per_partition_where_our_writer_makes_its_own(one_jvm: SparkDriver) -> None:
    one_jvm.renew({})
    assert one_jvm.call(stages.row_checksums) == [None] * stages.PARTITIONS

    one_jvm.renew({"spark.io.compression.codec": "snappy"})  # Spark's writer needs them
    kept = one_jvm.call(stages.row_checksums)
    assert len(kept) == stages.PARTITIONS
    assert None not in kept


def test_what_was_read_of_a_map_that_ran_again_with_another_output_is_read_again(
    one_jvm: SparkDriver, server: Server, tmp_path: Path
) -> None:
    """Spark finds out by the checksum of its rows that our writers report with each map output."""
    one_jvm.renew({"spark.master": "local[1, 2]"})  # one task after the other
    expected = one_jvm.call(stages.expected)
    app = one_jvm.call(held.app_key)
    one_jvm.begin(stages.indeterminate, flags=str(tmp_path))
    deadline = time.monotonic() + stages.DEADLINE_S
    while not (tmp_path / "reading").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)

    second = sorted(server.folder(app, 1).glob("*.out"))
    assert len(second) == stages.MAPS
    second[2].unlink()
    (tmp_path / "lost").touch()

    assert one_jvm.result() == expected
    done = [task for task in one_jvm.call(observe.tasks) if task.status == "SUCCESS" and task.written_records]
    readers = [task for task in done if task.read_records and task.stage == done[-1].stage]
    assert len([task for task in readers if task.index == 0]) == 2  # the first one had ended before the loss
