"""Which partition each row of a batch goes to: by hash, by range, in turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shuffle_api.columnar.arrays import fixed_width, nulls, taken
from shuffle_api.columnar.hashing import hash_rows
from shuffle_api.columnar.order import Order
from shuffle_api.errors import InvalidArgument

SAMPLE_PER_PARTITION = 100
"""Rows that `sample_bounds` keeps for each partition: then partitions differ by about a tenth in size."""


@runtime_checkable
class Partitioner(Protocol):
    """Says where rows go. One of your own needs this one method."""

    def partitions_of(self, batch: Any, partitions: int) -> npt.NDArray[np.integer[Any]]:
        """The partition of each row of a RecordBatch: integers in [0, partitions), shape [num_rows].

        :raises InvalidArgument: the batch has not the columns it takes.
        """


@dataclass(frozen=True, slots=True, init=False)
class HashPartitioner:
    """Rows with equal values in `columns` meet, in any process, on any machine: see `shuffle_api.columnar.hashing`.

    :raises InvalidArgument: no columns.
    """

    columns: tuple[str, ...]

    def __init__(self, *columns: str) -> None:
        if not columns:
            raise InvalidArgument("a hash of no columns", remedy="name the key: HashPartitioner('k')")
        object.__setattr__(self, "columns", columns)

    def partitions_of(self, batch: Any, partitions: int) -> npt.NDArray[np.integer[Any]]:
        hashes = hash_rows(batch, self.columns)
        if partitions & (partitions - 1) == 0:
            return hashes.astype(np.int32) & (partitions - 1)  # the same as below, several times as fast
        return (hashes % partitions).astype(np.int32)


@dataclass(slots=True)
class RoundRobinPartitioner:
    """Rows go to the partitions in turn, from `start` on, over all batches. One object per writer, as it counts.

    Give each map another start (its number, say), or every map's remainder goes to the same partitions.
    """

    start: int = 0

    def partitions_of(self, batch: Any, partitions: int) -> npt.NDArray[np.integer[Any]]:
        numbers = np.arange(self.start, self.start + batch.num_rows, dtype=np.int64) % partitions
        self.start = (self.start + batch.num_rows) % partitions
        return numbers.astype(np.int32)


@dataclass(frozen=True, slots=True)
class RangePartitioner:
    """Rows in an order: all of partition i before all of partition i + 1.

    `bounds` is a RecordBatch with the columns of the order, sorted, each row the last one of its partition: a row that
    equals a bound belongs before it. Rows above all bounds go to the partition after them, so there is
    one bound fewer than partitions (or still fewer, which leaves the last partitions empty).

    :raises InvalidArgument: bounds without those columns, or not sorted.
    """

    order: Order
    bounds: Any

    def __post_init__(self) -> None:
        keys = self.order.keys_of(self.bounds)
        rows = self.order.sorted_rows(keys)
        if (np.diff(rows) < 0).any():
            raise InvalidArgument("the bounds are not sorted", remedy="sort them in the order of the partitioner")
        object.__setattr__(self, "bounds", keys)

    def partitions_of(self, batch: Any, partitions: int) -> npt.NDArray[np.integer[Any]]:
        if self.bounds.num_rows >= partitions:
            raise InvalidArgument(
                f"{self.bounds.num_rows} bounds for {partitions} partitions", remedy="give one bound less, or fewer"
            )
        keys = self.order.keys_of(batch)
        if keys.schema.types != self.bounds.schema.types:
            raise InvalidArgument(
                f"bounds of types {self.bounds.schema.types} for keys of types {keys.schema.types}",
                remedy="cast one to the types of the other",
            )
        if self._searchable():
            return self._searched(keys.column(0))
        # Rows before bounds: among equals, which a stable sort leaves in place, the bound comes last.
        rows = self.order.sorted_rows(pa.concat_batches([keys, self.bounds]))
        before = np.cumsum(rows >= batch.num_rows)
        partition = np.empty(len(rows), np.int32)
        partition[rows] = before
        return partition[: batch.num_rows]

    def _searchable(self) -> bool:
        """One ascending column of numbers, the common case: bisection instead of a sort."""
        column = self.bounds.column(0)
        kind = column.type
        plain = pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)
        return plain and len(self.order.keys) == 1 and self.order.keys[0][1] == "ascending" and not column.null_count

    def _searched(self, column: Any) -> npt.NDArray[np.integer[Any]]:
        kind = column.type
        letter = "f" if pa.types.is_floating(kind) else "u" if pa.types.is_unsigned_integer(kind) else "i"
        dtype = f"<{letter}{kind.bit_width // 8}"
        bounds = fixed_width(self.bounds.column(0), dtype)
        partition = np.searchsorted(bounds, fixed_width(column, dtype), side="left").astype(np.int32)
        absent = nulls(column)
        if absent is not None:
            partition[absent] = len(bounds)
        return partition


def sample_bounds(batches: Iterable[Any], order: Order, partitions: int, *, seed: int = 0) -> Any:
    """Bounds for a `RangePartitioner`, out of all rows that go through here: a uniform sample, cut into equal parts.

    Runs over the batches once and keeps `SAMPLE_PER_PARTITION` rows per partition. The same batches and the same `seed`
    give the same bounds. Where a key is so frequent that it fills several partitions, there are fewer bounds.

    :raises InvalidArgument: partitions < 1, no batch, or a batch without the columns of the order.
    """
    if partitions < 1:
        raise InvalidArgument(f"bounds for {partitions} partitions", remedy="one partition is the least")
    chance = np.random.default_rng(seed)
    kept, places, size = None, np.empty(0), SAMPLE_PER_PARTITION * partitions
    for batch in batches:
        keys = order.keys_of(batch)
        kept = keys if kept is None else pa.concat_batches([kept, keys])
        places = np.concatenate([places, chance.random(keys.num_rows)])
        if len(places) > size:  # each row has drawn a place; the lowest places stay
            lowest = np.sort(np.argpartition(places, size)[:size])
            kept, places = taken(kept, lowest), places[lowest]
    if kept is None:
        raise InvalidArgument("no batches to take a sample of", remedy="give one batch at least; it may be empty")
    if not kept.num_rows:
        return kept
    kept = taken(kept, order.sorted_rows(kept))
    cuts = (np.arange(1, partitions) * kept.num_rows) // partitions
    return _distinct(taken(kept, cuts.astype(np.int64)))


def _distinct(bounds: Any) -> Any:
    """Sorted bounds without those that equal the one before."""
    rows = [bounds.slice(i, 1) for i in range(bounds.num_rows)]
    keep = [i for i, row in enumerate(rows) if i == 0 or not _same(row, rows[i - 1])]
    return taken(bounds, np.array(keep, np.int64))


def _same(one: Any, other: Any) -> bool:
    return bool(one.equals(other))
