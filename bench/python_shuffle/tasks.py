"""The Flight Shuffle side of `bench.python_shuffle`: map and reduce tasks in worker processes that live on.

And the input of all sides in two forms, with the same rows in as many files: parquet, and Arrow files (IPC, not
compressed). The latter are mapped into memory, as in a program that has its data in Arrow: to decode parquet takes
longer than a shuffle.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.harness.files import once
from shuffle_api import MapAttempt, ShuffleHandle
from shuffle_api.columnar import HashPartitioner
from shuffle_plugins.remote import RemoteShuffle

T = TypeVar("T")

START_TIMEOUT_S = 300.0
TASK_TIMEOUT_S = 600.0
PARQUET, ARROW = ".parquet", ".arrow"
BATCH_ROWS = 128 << 10


def prepare_arrow(parquet: Path) -> Path:
    """The directory with the rows of the directory `parquet` as Arrow files, written if it is not there."""

    def write(directory: Path) -> None:
        directory.mkdir()
        for file in files_of(parquet):
            table = pq.read_table(file)
            with pa.ipc.new_file(directory / f"{file.stem}{ARROW}", table.schema) as out:
                out.write_table(table.combine_chunks(), max_chunksize=BATCH_ROWS)

    return once(parquet.with_name(f"{parquet.name}-arrow"), write)


def files_of(directory: Path) -> list[Path]:
    """The input's files, of either form."""
    return sorted(file for file in directory.iterdir() if file.suffix in (PARQUET, ARROW))


def batches_of(file: Path) -> Iterator[Any]:
    """The RecordBatches of a file of either form; those of an Arrow file lie in the file."""
    if file.suffix == PARQUET:
        with pq.ParquetFile(file, memory_map=True) as source:
            yield from source.iter_batches(BATCH_ROWS, use_threads=False)
        return
    with pa.memory_map(str(file)) as mapped, pa.ipc.open_file(mapped) as arrow:
        for number in range(arrow.num_record_batches):
            yield arrow.get_batch(number)


def table_of(file: Path) -> Any:
    """An Arrow file as a table that lies in the file."""
    with pa.memory_map(str(file)) as mapped:
        return pa.ipc.open_file(mapped).read_all()


@dataclass(frozen=True, slots=True)
class Digest:
    """What arrived, whatever the order of rows and the way keys were hashed. Integers are modulo 2**64.

    `keys` is the sum over the partitions of the different keys in each: that of all different keys there are,
    if each key is in one partition only.
    """

    rows: int = 0
    ids: int = 0
    key_sum: int = 0
    characters: int = 0
    keys: int = 0

    def __add__(self, other: Digest) -> Digest:
        return Digest(
            self.rows + other.rows,
            self.ids + other.ids,
            self.key_sum + other.key_sum,
            self.characters + other.characters,
            self.keys + other.keys,
        )


def digest(rows: Any) -> Digest:
    """The digest of one partition: an Arrow table, or a DataFrame, with the columns of the input."""
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pandas(rows, preserve_index=False)
    ids, keys, characters = (
        pc.sum(column).as_py() or 0 for column in (table["id"], table["k"], pc.binary_length(table["s"]))
    )
    return Digest(table.num_rows, ids, keys, characters, pc.count_distinct(table["k"]).as_py())


class FrameSide(ExitStack):
    """Another library, which reads, shuffles by `k` and looks at the partitions in one go; a context manager."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: dict[str, list[int]] = {}  # that live through all rounds: their processor time counts

    @abstractmethod
    def each(self, directory: Path, partitions: int, function: Callable[[Any], Any]) -> list[Any]:
        """What `function` makes of the rows of each partition."""

    def count(self, directory: Path, partitions: int) -> int:
        """The rows of all partitions."""
        return sum(self.each(directory, partitions, len))

    def check(self, directory: Path, partitions: int) -> Digest:
        """The digest of all rows, partition by partition."""
        return sum(self.each(directory, partitions, digest), Digest())


class FlightSide(ExitStack):
    """A driver with `workers` task processes; a context manager. `hand_over` is the plugin's option."""

    def __init__(self, server: str, app: str, *, workers: int, codec: str, hand_over: str) -> None:
        super().__init__()
        plugin = self.enter_context(RemoteShuffle({"server": server, "content": "arrow", "codec": codec}))
        self._master = self.enter_context(plugin.master(app))
        # Workers are new interpreters, as dask's are.
        context = get_context("spawn")
        self._pool = ProcessPoolExecutor(
            workers, mp_context=context, initializer=_open, initargs=(context.Barrier(workers), hand_over)
        )
        self.callback(self._pool.shutdown, cancel_futures=True)
        self.pids = self._all(_meet, [()] * workers)

    def write(self, files: Iterable[Path], partitions: int) -> ShuffleHandle:
        """Shuffle the files, a map each."""
        files = list(files)
        handle = self._master.register_shuffle(partitions, len(files))
        self._all(write_map, [(handle, number, file) for number, file in enumerate(files)])
        return handle

    def count(self, handle: ShuffleHandle) -> int:
        """Read every partition, a task each; the rows in all."""
        return sum(self._all(count_rows, [(handle, number) for number in range(handle.spec.partitions)]))

    def check(self, handle: ShuffleHandle) -> Digest:
        """Read every partition; the digest of all rows."""
        return sum(self._all(digest_rows, [(handle, n) for n in range(handle.spec.partitions)]), Digest())

    def forget(self, handle: ShuffleHandle) -> None:
        """Free a shuffle's data."""
        self._master.unregister_shuffle(handle)

    def _all(self, task: Callable[..., T], arguments: list[tuple[Any, ...]]) -> list[T]:
        running = [self._pool.submit(task, *given) for given in arguments]
        return [future.result(timeout=TASK_TIMEOUT_S) for future in running]


def write_map(handle: ShuffleHandle, number: int, file: Path) -> int:
    """A map task: read a file, partition its rows by `k`, write them. Returns their number."""
    partitioner = HashPartitioner("k")
    with _plugin[0].writer(handle, MapAttempt(number, 0)) as writer:
        for batch in batches_of(file):
            writer.write_batch(batch, partitioner)
        return int(writer.commit().totals.records)


def count_rows(handle: ShuffleHandle, partition: int) -> int:
    """A reduce task: all batches of a partition, counted."""
    with _plugin[0].reader(handle, range(partition, partition + 1)) as reader:
        return sum(batch.num_rows for _, batch in reader.read_batches())


def digest_rows(handle: ShuffleHandle, partition: int) -> Digest:
    """A reduce task: the digest of a partition."""
    with _plugin[0].reader(handle, range(partition, partition + 1)) as reader:
        batches = [batch for _, batch in reader.read_batches()]
    return digest(pa.Table.from_batches(batches)) if batches else Digest()


_plugin: list[RemoteShuffle] = []  # of this task process, as long as it lives
_barrier: list[Barrier] = []


def _open(barrier: Barrier, hand_over: str) -> None:
    _plugin.append(RemoteShuffle({"hand_over": hand_over}))
    _barrier.append(barrier)


def _meet() -> int:
    """Wait until every task process is here; the process's id."""
    _barrier[0].wait(START_TIMEOUT_S)
    return os.getpid()
