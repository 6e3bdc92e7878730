"""Batches: the optional ability to shuffle Arrow data."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from shuffle_api.columnar import (
    HashPartitioner,
    Order,
    Partitioner,
    RangePartitioner,
    RoundRobinPartitioner,
    SupportsReadBatches,
    SupportsWriteBatch,
    read_table,
)
from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue, ShuffleMaster, ShufflePlugin
from shuffle_api.testing.plugin_tests.base import PluginTestBase
from shuffle_api.values import MapOutput, ShuffleHandle

PARTITIONS, ROWS = 3, 500


def table(attempt: MapAttempt, start: int = 0, rows: int = ROWS) -> Any:
    """Rows of many types that say which attempt wrote them (`n` is unique among the rows of a shuffle)."""
    numbers = [attempt.map * 1_000_000 + attempt.attempt * 100_000 + row for row in range(start, start + rows)]
    return pa.record_batch(
        {
            "n": pa.array(numbers, pa.int64()),
            "k": pa.array([n * 7919 % 101 if n % 11 else None for n in numbers], pa.int32()),
            "text": pa.array([f"row {n}" * (n % 4) if n % 5 else None for n in numbers], pa.string()),
            "kind": pa.array([("a", "b", None)[n % 3] for n in numbers]).dictionary_encode(),
            "list": pa.array([list(range(n % 3)) if n % 7 else None for n in numbers], pa.list_(pa.int8())),
            "point": pa.array([{"x": n / 3, "ok": bool(n % 2)} for n in numbers]),
        }
    )


class BatchTests(PluginTestBase):
    """`SupportsWriteBatch` and `SupportsReadBatches`."""

    @pytest.fixture
    def arrow(self, arrow_options: dict[str, OptionValue], app: str) -> Iterator[ShufflePlugin]:
        """A plugin whose shuffles have the content `arrow`."""
        self.needs(self.supports_batches, "supports batches")
        with self.plugin_class(arrow_options) as plugin:
            self.needs(not plugin.mode.bounded, "writes ahead of its readers without bound")
            yield plugin

    @pytest.fixture
    def arrow_handle(self, arrow: ShufflePlugin, app: str) -> Iterator[ShuffleHandle]:
        """A shuffle of two maps and three partitions, of content `arrow`."""
        with arrow.master(f"{app}-arrow") as master:
            yield master.register_shuffle(PARTITIONS, 2)

    def write_batches(
        self, plugin: ShufflePlugin, handle: ShuffleHandle, attempt: MapAttempt, given: list[Any], to: Partitioner
    ) -> MapOutput:
        """Write and commit batches."""
        with plugin.writer(handle, attempt) as writer:
            assert isinstance(writer, SupportsWriteBatch)
            for batch in given:
                writer.write_batch(batch, to)
            return writer.commit()

    def read_rows(
        self, plugin: ShufflePlugin, handle: ShuffleHandle, partitions: range | None = None, maps: range | None = None
    ) -> dict[int, list[dict[str, Any]]]:
        """The rows of each partition in the order read; no batch of them is empty."""
        rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
        wanted = range(handle.spec.partitions) if partitions is None else partitions
        with plugin.reader(handle, wanted, maps) as reader:
            assert isinstance(reader, SupportsReadBatches)
            for partition, batch in reader.read_batches():
                assert batch.num_rows
                rows[partition] += batch.to_pylist()
        return rows

    def expected(self, given: list[Any], to: Partitioner) -> dict[int, list[dict[str, Any]]]:
        """The rows of each partition in the order written."""
        rows: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for batch in given:
            for partition, row in zip(to.partitions_of(batch, PARTITIONS), batch.to_pylist(), strict=True):
                rows[int(partition)].append(row)
        return rows

    def test_ability_is_what_the_flag_says(self, plugin: ShufflePlugin, master: ShuffleMaster) -> None:
        handle = master.register_shuffle(1, 1)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer:
            assert isinstance(writer, SupportsWriteBatch) == self.supports_batches
            writer.commit()
        with plugin.reader(handle, range(1)) as reader:
            assert isinstance(reader, SupportsReadBatches) == self.supports_batches

    @pytest.mark.parametrize(
        "partitioner",
        [
            HashPartitioner("k", "text"),
            RangePartitioner(Order.by("k"), pa.record_batch({"k": pa.array([33, 66], pa.int32())})),
        ],
        ids=["hash", "range"],
    )
    def test_rows_come_out_as_they_went_in_each_in_its_partition(
        self, arrow: ShufflePlugin, arrow_handle: ShuffleHandle, partitioner: Partitioner
    ) -> None:
        given = {map: [table(MapAttempt(map, 0), at) for at in (0, ROWS)] for map in range(2)}
        for map, batches in given.items():
            output = self.write_batches(arrow, arrow_handle, MapAttempt(map, 0), batches, partitioner)
            assert output.totals.records == 2 * ROWS
        for map, batches in given.items():  # of one map and one partition, also in the order written
            expected = self.expected(batches, partitioner)
            assert self.read_rows(arrow, arrow_handle, maps=range(map, map + 1)) == expected
        everything = self.read_rows(arrow, arrow_handle)
        written = self.expected(given[0] + given[1], partitioner)
        for partition in range(PARTITIONS):
            assert Counter(map_repr(everything[partition])) == Counter(map_repr(written[partition]))

    def test_round_robin_fills_the_partitions_alike(self, arrow: ShufflePlugin, arrow_handle: ShuffleHandle) -> None:
        for map in range(2):
            self.write_batches(
                arrow, arrow_handle, MapAttempt(map, 0), [table(MapAttempt(map, 0))], RoundRobinPartitioner(map)
            )
        rows = self.read_rows(arrow, arrow_handle)
        sizes = [len(rows[partition]) for partition in range(PARTITIONS)]
        assert sum(sizes) == 2 * ROWS
        assert max(sizes) - min(sizes) <= 2

    def test_partition_range(self, arrow: ShufflePlugin, arrow_handle: ShuffleHandle) -> None:
        to = HashPartitioner("n")
        for map in range(2):
            self.write_batches(arrow, arrow_handle, MapAttempt(map, 0), [table(MapAttempt(map, 0))], to)
        everything = self.read_rows(arrow, arrow_handle)
        for partition in range(PARTITIONS):
            alone = self.read_rows(arrow, arrow_handle, range(partition, partition + 1))
            assert alone == {partition: everything[partition]}

    def test_only_the_winner_is_read(self, arrow: ShufflePlugin, arrow_handle: ShuffleHandle) -> None:
        to = HashPartitioner("n")
        for attempt in (MapAttempt(0, 0), MapAttempt(0, 1), MapAttempt(1, 1)):
            winner = self.write_batches(arrow, arrow_handle, attempt, [table(attempt)], to)
            assert winner.output == (MapAttempt(0, 0) if attempt.map == 0 else attempt)
        read = self.read_rows(arrow, arrow_handle)
        expected = table(MapAttempt(0, 0)).to_pylist() + table(MapAttempt(1, 1)).to_pylist()
        got = [row for rows in read.values() for row in rows]
        assert sorted(row["n"] for row in got) == sorted(row["n"] for row in expected)

    def test_batches_without_rows_or_without_columns(self, arrow: ShufflePlugin, arrow_handle: ShuffleHandle) -> None:
        empty = table(MapAttempt(0, 0), rows=0)
        none = self.write_batches(arrow, arrow_handle, MapAttempt(0, 0), [empty, empty], HashPartitioner("k"))
        assert none.totals.records == 0
        bare = pa.RecordBatch.from_struct_array(pa.nulls(ROWS, pa.struct([])))
        self.write_batches(arrow, arrow_handle, MapAttempt(1, 0), [bare, bare], RoundRobinPartitioner())
        rows = self.read_rows(arrow, arrow_handle)
        assert sorted(len(rows[partition]) for partition in range(PARTITIONS)) == [333, 333, 334]

    def test_other_schema_is_refused_and_the_rest_goes_on(
        self, arrow: ShufflePlugin, arrow_handle: ShuffleHandle
    ) -> None:
        first, to = table(MapAttempt(0, 0)), HashPartitioner("n")
        with arrow.writer(arrow_handle, MapAttempt(0, 0)) as writer:
            assert isinstance(writer, SupportsWriteBatch)
            writer.write_batch(first, to)
            with pytest.raises(InvalidArgument, match="gone: k: int32; new: nothing"):
                writer.write_batch(first.drop_columns(["k"]), to)
            writer.commit()
        assert sum(map(len, self.read_rows(arrow, arrow_handle, maps=range(1)).values())) == ROWS
        self.write_batches(arrow, arrow_handle, MapAttempt(1, 0), [first.drop_columns(["k"])], to)
        with pytest.raises(InvalidArgument, match="schema changes"):
            self.read_rows(arrow, arrow_handle)

    @pytest.mark.parametrize("without", ["kind", "point"])  # a dictionary; then blocks have their schema, else not
    def test_declared_schema_holds_for_all_partitions_and_for_those_without_rows(
        self, arrow: ShufflePlugin, arrow_handle: ShuffleHandle, without: str
    ) -> None:
        batch = table(MapAttempt(0, 0), rows=20).drop_columns([without])
        declared = arrow_handle.with_schema(batch.schema)
        with arrow.writer(declared, MapAttempt(0, 0)) as writer:
            assert isinstance(writer, SupportsWriteBatch)
            with pytest.raises(InvalidArgument, match="has not the schema that the shuffle's driver declared"):
                writer.write_batch(batch.rename_columns(["n", "k", "text", "list", "other"]), HashPartitioner("n"))
            writer.write_batch(batch, RangePartitioner(Order.by("n"), batch.select(["n"]).slice(19)))
            writer.commit()
        other = batch.select(["n"])
        self.write_batches(arrow, arrow_handle, MapAttempt(1, 0), [other], RoundRobinPartitioner(1))
        for partition, maps, rows in ((0, range(1), 20), (2, range(1), 0)):
            with arrow.reader(declared, range(partition, partition + 1), maps) as reader:
                assert isinstance(reader, SupportsReadBatches)
                found = read_table(reader, declared)
            assert (found.num_rows, found.schema) == (rows, batch.schema)
            assert found.to_pylist() == batch.to_pylist()[:rows]
        with arrow.reader(declared, range(1, 2)) as reader, pytest.raises(InvalidArgument, match="driver declared"):
            assert isinstance(reader, SupportsReadBatches)
            read_table(reader, declared)

    def test_what_is_not_committed_is_not_there(self, arrow: ShufflePlugin, arrow_handle: ShuffleHandle) -> None:
        with arrow.writer(arrow_handle, MapAttempt(0, 0)) as writer:
            assert isinstance(writer, SupportsWriteBatch)
            writer.write_batch(table(MapAttempt(0, 0)), HashPartitioner("k"))
        with pytest.raises(InvalidArgument):
            writer.write_batch(table(MapAttempt(0, 0)), HashPartitioner("k"))
        attempt = MapAttempt(0, 1)
        self.write_batches(arrow, arrow_handle, attempt, [table(attempt)], HashPartitioner("k"))
        read = self.read_rows(arrow, arrow_handle, maps=range(1))
        assert sorted(row["n"] for rows in read.values() for row in rows) == table(attempt)["n"].to_pylist()

    def test_records_and_batches_are_told_apart(
        self, arrow: ShufflePlugin, arrow_handle: ShuffleHandle, plugin: ShufflePlugin, master: ShuffleMaster
    ) -> None:
        with arrow.writer(arrow_handle, MapAttempt(0, 0)) as writer, pytest.raises(InvalidArgument, match="no records"):
            writer.write(0, b"x")
        with arrow.reader(arrow_handle, range(1)) as reader, pytest.raises(InvalidArgument, match="no records"):
            next(iter(reader))
        handle = master.register_shuffle(1, 1)
        with plugin.writer(handle, MapAttempt(0, 0)) as writer, pytest.raises(InvalidArgument, match="no batches"):
            assert isinstance(writer, SupportsWriteBatch)
            writer.write_batch(table(MapAttempt(0, 0)), HashPartitioner("k"))
        with plugin.reader(handle, range(1)) as reader, pytest.raises(InvalidArgument, match="no batches"):
            assert isinstance(reader, SupportsReadBatches)
            next(iter(reader.read_batches()))


def map_repr(rows: list[dict[str, Any]]) -> list[str]:
    """Rows as something that can be counted."""
    return [repr(row) for row in rows]
