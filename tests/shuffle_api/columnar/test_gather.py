"""The gatherer: rows in = rows out, each in its partition and in order, whatever the schema and the sizes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shuffle_api.columnar import HashPartitioner, RoundRobinPartitioner
from shuffle_api.columnar.gather import BatchGatherer
from shuffle_api.columnar.ipc import decode, encode
from shuffle_api.errors import InvalidArgument, StorageFull
from shuffle_api.ids import ShuffleId
from shuffle_api.values import ShuffleSpec
from tests.arrow_memory import own_arrow_memory
from tests.shuffle_api.columnar.strategies import assigned, batches, rows_of


class Named(pa.ExtensionType):  # type: ignore[misc]
    """An extension type over any other."""

    def __init__(self, storage: Any) -> None:
        super().__init__(storage, "flight_shuffle.tests.named")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: Any, serialized: bytes) -> Any:
        return cls(storage)


class Given:
    """A partitioner that says what it was told to say."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    def partitions_of(self, batch: Any, partitions: int) -> Any:
        return self._answers.pop(0)


class Out:
    """What a gatherer hands out, through the encoding of blocks and back."""

    def __init__(self, partitions: int, *, block: int = 1 << 10, buffer: int = 1 << 20) -> None:
        self.rows: dict[int, list[str]] = defaultdict(list)
        self.batches: list[tuple[int, Any]] = []
        spec = ShuffleSpec(ShuffleId("app", 0), partitions, 1, content="arrow")
        self.gatherer = BatchGatherer(spec, self.take, block_bytes=block, buffer_bytes=buffer)

    def take(self, partition: int, batch: Any) -> None:
        assert batch.num_rows
        back = decode(encode(batch), batch.num_rows)
        back.validate(full=True)
        assert back.schema.equals(batch.schema, check_metadata=True)
        self.batches.append((partition, back))
        self.rows[partition] += rows_of(back)


@settings(max_examples=300, deadline=None)
@given(
    batches(), st.integers(1, 5), st.sampled_from([1, 50, 1 << 20]), st.sampled_from([1, 200, 1 << 20]), st.integers()
)
def test_rows_in_are_rows_out_each_in_its_partition_and_in_order(
    many: list[Any], partitions: int, block: int, buffer: int, seed: int
) -> None:
    out = Out(partitions, block=block, buffer=buffer)
    expected: dict[int, list[str]] = defaultdict(list)
    for number, batch in enumerate(many):
        to = assigned(abs(seed) + number, batch.num_rows, partitions)
        out.gatherer.add(batch, Given(to))
        for partition, row in zip(to.tolist(), rows_of(batch), strict=True):
            expected[partition].append(row)
    out.gatherer.flush()
    assert out.rows == expected


def test_a_batch_larger_than_the_buffer_is_cut_and_memory_stays_bounded() -> None:
    rows, buffer = 400_000, 4 << 20
    batch = pa.record_batch({"n": np.arange(rows), "x": np.arange(rows) * 0.5})
    spec = ShuffleSpec(ShuffleId("app", 0), 16, 1, content="arrow")
    with own_arrow_memory() as memory:
        gatherer = BatchGatherer(spec, lambda *_: memory.look(), block_bytes=64 << 10, buffer_bytes=buffer)
        for _ in range(4):
            gatherer.add(batch, HashPartitioner("n"))
        gatherer.flush()
    assert 0 < memory.most <= buffer


def test_small_slices_gather_up_to_the_block_size() -> None:
    out = Out(4, block=32 << 10, buffer=16 << 20)
    for start in range(0, 400_000, 1_000):
        out.gatherer.add(pa.record_batch({"n": np.arange(start, start + 1_000)}), RoundRobinPartitioner())
    out.gatherer.flush()
    sizes = [batch.nbytes for _, batch in out.batches]
    assert sum(sizes) == 400_000 * 8
    assert all(size >= 32 << 10 for size in sizes[:-4])


def test_skewed_rows_leave_as_soon_as_they_make_a_block() -> None:
    out = Out(1000, block=64 << 10, buffer=64 << 20)
    for _ in range(20):
        out.gatherer.add(pa.record_batch({"n": np.zeros(1 << 18, np.int64)}), HashPartitioner("n"))
    assert sum(batch.num_rows for _, batch in out.batches) >= 1 << 20


def test_metadata_is_that_of_the_first_batch() -> None:
    out = Out(1)
    for text in ("one", "two"):
        schema = pa.schema([pa.field("n", pa.int64(), metadata={"f": text})], metadata={"s": text})
        out.gatherer.add(pa.record_batch([pa.array([1])], schema=schema), RoundRobinPartitioner())
    out.gatherer.flush()
    [(_, batch)] = out.batches
    assert batch.schema.metadata == {b"s": b"one"}
    assert batch.schema.field("n").metadata == {b"f": b"one"}


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ([("a", pa.int64())], "gone: b: string; new: nothing"),
        ([("a", pa.int32()), ("b", pa.string())], "gone: a: int64; new: a: int32"),
        ([("b", pa.string()), ("a", pa.int64())], "the same columns in another order"),
        ([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())], "gone: a: int64; new: a: int64 not null"),
    ],
)
def test_another_schema_is_refused_and_says_in_what_it_differs(schema: Any, says: str) -> None:
    out = Out(2)
    first = pa.record_batch({"a": [1, 2], "b": ["x", "y"]})
    out.gatherer.add(first, HashPartitioner("a"))
    with pytest.raises(InvalidArgument, match=says):
        out.gatherer.add(pa.RecordBatch.from_pylist([], pa.schema(schema)), HashPartitioner("a"))
    out.gatherer.add(first, HashPartitioner("a"))
    out.gatherer.flush()
    assert sum(map(len, out.rows.values())) == 4


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (np.array([0, 2]), r"partition 2 is not in \[0, 2\)"),
        (np.array([-1, 0]), r"partition -1 is not in \[0, 2\)"),
        (np.array([0, 1, 1]), r"of shape \(3,\) for 2 rows"),
        (np.array([0.0, 1.0]), "gave float64"),
    ],
)
def test_a_partitioner_that_is_wrong_is_refused_and_nothing_is_taken(answer: Any, says: str) -> None:
    out = Out(2)
    with pytest.raises(InvalidArgument, match=says):
        out.gatherer.add(pa.record_batch({"a": [1, 2]}), Given(answer))
    out.gatherer.flush()
    assert not out.batches


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a"], pa.string_view()),
        pa.array([b"a"], pa.binary_view()),
        pa.RunEndEncodedArray.from_arrays([1], ["a"]),
        pa.array([["a"]], pa.list_(pa.string_view())),
        pa.ExtensionArray.from_storage(Named(pa.string_view()), pa.array(["a"], pa.string_view())),
    ],
    ids=str,
)
def test_columns_that_arrow_cannot_reorder_are_refused_by_name(column: Any) -> None:
    with pytest.raises(InvalidArgument, match="column 'odd' is of type"):
        Out(1).gatherer.add(pa.record_batch([column], names=["odd"]), RoundRobinPartitioner())


def test_after_rows_could_not_be_handed_out_nothing_more_is_taken() -> None:
    def full(partition: int, batch: Any) -> None:
        raise StorageFull("no room")

    spec = ShuffleSpec(ShuffleId("app", 0), 2, 1, content="arrow")
    gatherer = BatchGatherer(spec, full, block_bytes=1, buffer_bytes=1 << 20)
    batch = pa.record_batch({"a": [1, 2]})
    gatherer.add(batch, HashPartitioner("a"))
    with pytest.raises(StorageFull):
        gatherer.flush()
    for again in (gatherer.flush, lambda: gatherer.add(batch, HashPartitioner("a"))):
        with pytest.raises(InvalidArgument, match="rows of it are missing"):
            again()


def test_cleared_it_hands_out_nothing() -> None:
    out = Out(2)
    out.gatherer.add(pa.record_batch({"a": [1, 2]}), HashPartitioner("a"))
    out.gatherer.clear()
    out.gatherer.flush()
    assert not out.batches
