"""Shuffles of Arrow tables for engines that hand tables to tasks: by hash, in order, at random."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flight_shuffle._tasks import Options, new_attempt, opened
from shuffle_api import ShuffleHandle, ShuffleReader, ShuffleWriter
from shuffle_api.columnar import (
    HashPartitioner,
    Order,
    Partitioner,
    RangePartitioner,
    SupportsReadBatches,
    SupportsWriteBatch,
)
from shuffle_api.columnar.blocks import BlockCodec
from shuffle_api.interfaces import SupportsReadBlocks
from shuffle_api.sorting.batches import SortedBatchWriter, merged_batches

ROWS = "__flight_shuffle_row"


class Way(ABC):
    """How rows are divided among partitions, and what becomes of a partition."""

    @abstractmethod
    def partitioner(self, number: int) -> Partitioner:
        """For the map of that number: the same each time the map is written."""

    def write(self, writer: ShuffleWriter, handle: ShuffleHandle, table: Any, number: int) -> None:
        """Write and commit the rows of a map."""
        assert isinstance(writer, SupportsWriteBatch)
        to = self.partitioner(number)
        for batch in table.to_batches():
            writer.write_batch(batch, to)
        writer.commit()

    def read(self, reader: ShuffleReader, handle: ShuffleHandle, partition: int) -> Iterator[Any]:
        """The tables of a partition."""
        assert isinstance(reader, SupportsReadBatches)
        for _, batch in reader.read_batches():
            yield pa.Table.from_batches([batch])


@dataclass(frozen=True)
class Hashed(Way):
    """Rows with equal keys meet.

    :param whole: what becomes of the rows of a partition, all in one table; None: they are handed out as they come.
    """

    columns: tuple[str, ...]
    whole: Callable[[Any], Iterator[Any]] | None = None

    def partitioner(self, number: int) -> Partitioner:
        return HashPartitioner(*self.columns)

    def read(self, reader: ShuffleReader, handle: ShuffleHandle, partition: int) -> Iterator[Any]:
        if self.whole is None:
            yield from super().read(reader, handle, partition)
            return
        if found := list(super().read(reader, handle, partition)):
            yield from self.whole(pa.concat_tables(found))


@dataclass(frozen=True)
class Sorted(Way):
    """Partitions are in order, and so are the rows of each. Sorted runs are written and merged: memory is bounded."""

    order: Order
    bounds: Any

    def partitioner(self, number: int) -> Partitioner:
        return RangePartitioner(self.order, self.bounds)

    def write(self, writer: ShuffleWriter, handle: ShuffleHandle, table: Any, number: int) -> None:
        with SortedBatchWriter(writer, handle, self.order) as ordered:
            to = self.partitioner(number)
            for batch in table.to_batches():
                ordered.write_batch(batch, to)
            ordered.commit()

    def read(self, reader: ShuffleReader, handle: ShuffleHandle, partition: int) -> Iterator[Any]:
        for _, batch in merged_batches(reader, handle, self.order):
            yield pa.Table.from_batches([batch])


@dataclass(frozen=True)
class Shuffled(Way):
    """Rows go anywhere, in any order; a seed makes it the same order each time."""

    seed: int

    def partitioner(self, number: int) -> Partitioner:
        return _Random(np.random.default_rng((self.seed, 0, number)))

    def read(self, reader: ShuffleReader, handle: ShuffleHandle, partition: int) -> Iterator[Any]:
        assert isinstance(reader, SupportsReadBlocks)
        # In the order of maps: which of them comes first depends on where they lie.
        found = sorted(reader.read_blocks(), key=lambda block: block[1].map)
        if not found:
            return
        codec = BlockCodec(handle.spec)
        table = pa.Table.from_batches([codec.decode(payload, records) for _, _, payload, records in found])
        yield table.take(np.random.default_rng((self.seed, 1, partition)).permutation(table.num_rows))


@dataclass(frozen=True)
class _Random:
    chance: np.random.Generator

    def partitions_of(self, batch: Any, partitions: int) -> npt.NDArray[np.integer[Any]]:
        numbers: npt.NDArray[np.integer[Any]] = self.chance.integers(0, partitions, batch.num_rows, np.int32)
        return numbers


@dataclass(frozen=True)
class TableShuffle:
    """A shuffle, as its tasks have it."""

    handle: ShuffleHandle
    plugin: str
    options: Options
    way: Way

    def write(self, table: Any, number: int) -> int:
        """Write a table as the output of a map; its rows."""
        writer = opened(self.plugin, self.options).writer(self.handle, new_attempt(number))
        with writer:
            self.way.write(writer, self.handle, table, number)
        return int(table.num_rows)

    def read(self, partition: int, maps: int) -> Iterator[Any]:
        """The tables of a partition, of the first so many maps; none if it has no rows."""
        wanted = range(partition, partition + 1)
        with opened(self.plugin, self.options).reader(self.handle, wanted, range(maps)) as reader:
            yield from self.way.read(reader, self.handle, partition)


@dataclass(frozen=True)
class Aggregated:
    """One row for each key, as `pyarrow.TableGroupBy.aggregate` makes it."""

    columns: tuple[str, ...]
    aggregations: tuple[Any, ...]

    def __call__(self, table: Any) -> Iterator[Any]:
        yield table.group_by(list(self.columns)).aggregate(list(self.aggregations))


@dataclass(frozen=True)
class Grouped:
    """What a function makes of the rows of each key."""

    columns: tuple[str, ...]
    function: Callable[[Any], Any]

    def __call__(self, table: Any) -> Iterator[Any]:
        numbered = table.select(list(self.columns)).append_column(ROWS, pa.array(np.arange(table.num_rows)))
        groups = numbered.group_by(list(self.columns), use_threads=False).aggregate([(ROWS, "list")])
        for rows in groups[f"{ROWS}_list"]:
            yield self.function(table.take(rows.values))
