"""Reading workers' files again: the reader asks no worker, and it notices changed files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.harness.cluster import wait_until
from bench.harness.server import ServerProcess
from shuffle_api.columnar import HashPartitioner
from shuffle_api.errors import MapOutputLost
from shuffle_api.ids import MapAttempt
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle, traffic
from shuffle_transport.local_files import LocalFileAccess
from tests.shuffle_plugins.by_file import BY_FILE, PARTITIONS, numbers, read, rows, write
from tests.shuffle_server.observe.helpers import Scrape

ALL = [range(n, n + 1) for n in range(PARTITIONS)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    arguments = ["--metrics-listen", "127.0.0.1:0"]
    with ServerProcess(tmp_path / "data", tmp_path / "server.log", arguments) as process:
        yield process


@pytest.fixture
def driver(server: ServerProcess) -> Iterator[RemoteShuffle]:
    with RemoteShuffle({"server": server.control, **BY_FILE}) as remote:
        yield remote


@pytest.fixture
def task() -> Iterator[RemoteShuffle]:
    """Another process's plugin."""
    with RemoteShuffle(BY_FILE) as remote:
        yield remote


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The actions that workers are asked for."""
    actions, act = [], LocalFileAccess.act

    def noting(self: LocalFileAccess, client: Any, action: str, *given: Any) -> list[bytes]:
        actions.append(action)
        return act(self, client, action, *given)

    monkeypatch.setattr(LocalFileAccess, "act", noting)
    return actions


def read_each(plugin: RemoteShuffle, handle: ShuffleHandle) -> list[int]:
    """All partitions, each by a reader of its own."""
    return numbers([batch for partitions in ALL for batch in read(plugin, handle, partitions)])


def test_a_process_asks_once_where_an_output_lies(
    driver: RemoteShuffle, task: RemoteShuffle, asked: list[str], server: ServerProcess
) -> None:
    with driver.master("app") as master:
        handle = master.register_shuffle(PARTITIONS, 2)
        expected = write(driver, handle, 0) + write(driver, handle, 1)
        stored = sum(output.totals.bytes for output in master.map_outputs(handle))
        asked.clear()
        assert read_each(task, handle) == expected
        assert asked == ["probe", "locate"]
        assert task.statistics().located_bytes == stored
        task.close()  # reports the reads that are left
        assert asked == ["probe", "locate", "tell-reads"]
        assert Scrape(server.metrics)("handed_over_bytes_total", direction="pull") == stored


def test_a_worker_is_told_what_was_read_while_the_reader_goes_on(
    driver: RemoteShuffle,
    task: RemoteShuffle,
    asked: list[str],
    server: ServerProcess,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(traffic, "REPORT_SECONDS", 0.1)
    with driver.master("app") as master:
        handle = master.register_shuffle(PARTITIONS, 1)
        write(driver, handle, 0)
        [output] = master.map_outputs(handle)
        for round in (1, 2):
            read_each(task, handle)

            def counted(round: int = round) -> bool:
                found = Scrape(server.metrics)("handed_over_bytes_total", direction="pull")
                return found == round * output.totals.bytes

            wait_until(counted, "the worker counts what was read")
        assert asked.count("locate") == 1


def test_all_partitions_at_once_leave_nothing_behind(
    driver: RemoteShuffle, task: RemoteShuffle, asked: list[str]
) -> None:
    with driver.master("app") as master:
        handle = master.register_shuffle(PARTITIONS, 1)
        expected = write(driver, handle, 0)
        for _ in range(2):
            assert numbers(read(task, handle)) == expected
        assert asked.count("locate") == 2  # the index of all of it is not kept for readers that will not come


def test_an_output_that_was_lost_and_written_again_is_read_as_it_is_now(
    driver: RemoteShuffle, task: RemoteShuffle, server: ServerProcess
) -> None:
    with driver.master("app") as master:
        handle = master.register_shuffle(PARTITIONS, 1)
        write(driver, handle, 0)
        assert read(task, handle, ALL[0])
        next((server.data_dir / "worker/apps").rglob("0.0.out")).unlink()
        with pytest.raises(MapOutputLost):
            read(task, handle, ALL[1])
        wait_until(lambda: not master.map_outputs(handle), "the output is given up")
        again = rows(7)  # other rows, at the same path
        with driver.writer(handle, MapAttempt(0, 1)) as writer:
            writer.write_batch(again, HashPartitioner("n"))
            writer.commit()
        assert read_each(task, handle) == again["n"].to_pylist()


def test_a_shuffle_of_the_same_number_is_another_one(driver: RemoteShuffle, task: RemoteShuffle) -> None:
    with driver.master("app") as master:
        first = master.register_shuffle(PARTITIONS, 1, shuffle=5)
        with driver.writer(first, MapAttempt(0, 0)) as writer:
            writer.write_batch(rows(0), InPartition(1))
            writer.commit()
        assert not read(task, first, ALL[0])
        assert numbers(read(task, first, ALL[1])) == rows(0)["n"].to_pylist()
        master.unregister_shuffle(first)
        second = master.register_shuffle(PARTITIONS, 1, shuffle=5)
        expected = write(driver, second, 0)
        assert read_each(task, second) == expected


class InPartition:
    """All rows in one partition."""

    def __init__(self, partition: int) -> None:
        self._partition = partition

    def partitions_of(self, batch: Any, partitions: int) -> Any:
        return np.full(batch.num_rows, self._partition)
