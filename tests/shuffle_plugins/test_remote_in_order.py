"""Sorted, combined and merged through a real server, by tasks in other processes than the driver's."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench.harness.server import ServerProcess
from shuffle_api import MapAttempt, ShuffleHandle
from shuffle_api.columnar import HashPartitioner, Order, RangePartitioner, sample_bounds
from shuffle_api.interfaces import OptionValue
from shuffle_api.sorting import SortedWriter, merged_records
from shuffle_api.sorting.batches import SortedBatchWriter, merged_batches
from shuffle_plugins.remote import RemoteShuffle

MAPS, PARTITIONS, ROWS = 4, 3, 20_000
ORDER = Order.by("k", "n")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    root: Path = tmp_path_factory.mktemp("server")
    with ServerProcess(root / "data", root / "log") as process:
        yield process


def opened(server: ServerProcess, content: str) -> RemoteShuffle:
    options: dict[str, OptionValue] = {"server": server.control, "timeout": 120, "retry": 20, "content": content}
    return RemoteShuffle(options)


def rows_of(map: int) -> pa.RecordBatch:
    chance = np.random.default_rng(map)
    return pa.record_batch({"k": chance.normal(size=ROWS), "n": np.arange(ROWS) + map * ROWS})


def write_sorted(handle: ShuffleHandle, map: int, partitioner: RangePartitioner) -> int:
    """A map task, in a process of its own."""
    with RemoteShuffle() as plugin:
        writer = SortedBatchWriter(plugin.writer(handle, MapAttempt(map, 0)), handle, ORDER, memory=200_000)
        with writer:
            writer.write_batch(rows_of(map), partitioner)
            spilled = writer.spilled_bytes
            writer.commit()
    return spilled


def hashed(map: int) -> list[int]:
    """Where a map task of its own process says that its rows go."""
    numbers: list[int] = HashPartitioner("k").partitions_of(rows_of(map), PARTITIONS).tolist()
    return numbers


def test_a_distributed_sort_by_range_with_spilling_tasks(server: ServerProcess) -> None:
    everything = pa.concat_batches([rows_of(map) for map in range(MAPS)])
    partitioner = RangePartitioner(ORDER, sample_bounds([everything], ORDER, PARTITIONS))
    with opened(server, "arrow") as plugin, plugin.master(f"sort-{uuid.uuid4().hex}") as master:
        handle = master.register_shuffle(PARTITIONS, MAPS)
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as tasks:
            writing = [tasks.submit(write_sorted, handle, map, partitioner) for map in range(MAPS)]
            assert all(task.result(timeout=300) > 0 for task in writing)
            assert tasks.submit(hashed, 1).result(timeout=300) == hashed(1)
        with plugin.reader(handle, range(PARTITIONS)) as reader:
            got = [batch for _, batch in merged_batches(reader, handle, ORDER, memory=100_000)]
    assert pa.concat_batches(got).equals(
        pa.Table.from_batches([everything]).sort_by([("k", "ascending")]).to_batches()[0]
    )


def test_a_word_count_with_combiner(server: ServerProcess) -> None:
    text = b"to be or not to be that is the question whether tis nobler in the mind to suffer".split()

    def word(record: bytes) -> bytes:
        return record.partition(b" ")[0]

    def add(one: bytes, other: bytes) -> bytes:
        return b"%s %d" % (word(one), int(one.split()[1]) + int(other.split()[1]))

    with opened(server, "records") as plugin, plugin.master(f"count-{uuid.uuid4().hex}") as master:
        handle = master.register_shuffle(1, MAPS)
        for map in range(MAPS):
            with SortedWriter(plugin.writer(handle, MapAttempt(map, 0)), word, combine=add) as writer:
                for found in text * (map + 1):
                    writer.write(0, b"%s 1" % found)
                assert writer.commit().totals.records == len(set(text))
        with plugin.reader(handle, range(1)) as reader:
            counted = [record for _, record in merged_records(reader, word, combine=add)]
    expected = Counter(text * sum(range(1, MAPS + 1)))
    assert counted == [b"%s %d" % (found, expected[found]) for found in sorted(expected)]
