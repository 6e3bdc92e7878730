"""Columns of every Arrow type, in slices of batches, through every plugin: each arrives as it was, or is refused by a
typed error that names its column."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.harness.server import ServerProcess
from flight_shuffle import MapAttempt, ShuffleMaster, ShufflePlugin, open_plugin
from flight_shuffle.columnar import RoundRobinPartitioner, SupportsReadBatches, SupportsWriteBatch
from shuffle_api.errors import InvalidArgument

ROWS = 21
SLICES = (slice(0, ROWS), slice(3, 17), slice(5, 5), slice(9, 10), slice(13, ROWS))
PARTITIONS = 2
DAY = datetime.date(2020, 2, 28)
MOMENT = datetime.datetime(2020, 2, 28, 23, 59, 58)


def values(value: Callable[[int], Any], kind: Any) -> Any:
    """A column with a null here and there."""
    return pa.array([None if n % 5 == 2 else value(n) for n in range(ROWS)], kind)


def text(n: int) -> str:
    return "é" * (n % 4) + str(n)


def words(kind: Any, *, ordered: bool = False, absent: bool = False) -> Any:
    numbers = values(lambda n: n % 4, kind)
    return pa.DictionaryArray.from_arrays(numbers, pa.array(["a", "b", None if absent else "c", ""]), ordered=ordered)


def union(mode: str) -> Any:
    kinds = pa.array([n % 2 for n in range(ROWS)], pa.int8())
    if mode == "sparse":
        return pa.UnionArray.from_sparse(kinds, [pa.array(range(ROWS)), pa.array(map(text, range(ROWS)))])
    offsets = pa.array([n // 2 for n in range(ROWS)], pa.int32())
    return pa.UnionArray.from_dense(kinds, offsets, [pa.array(range(ROWS)), pa.array(map(text, range(ROWS)))])


class Degrees(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """A type of a program's own, which is not registered."""

    def __init__(self, storage: Any) -> None:
        super().__init__(storage, "tests.degrees")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: Any, data: bytes) -> Degrees:
        return cls(storage)


def own(storage: Any) -> Any:
    return pa.ExtensionArray.from_storage(Degrees(storage.type), storage)


UNITS = ("s", "ms", "us", "ns")
PLAIN: dict[str, Any] = {
    "null": pa.nulls(ROWS),
    "bool": values(lambda n: n % 3 == 0, pa.bool_()),
    **{f"{sign}int{bits}": values(lambda n: n, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": values(lambda n: np.float16(n / 2), pa.float16()),
    "float32": values(lambda n: n / 2, pa.float32()),
    "float64": values(lambda n: n / 3, pa.float64()),
    "date32": values(lambda n: DAY + datetime.timedelta(n), pa.date32()),
    "date64": values(lambda n: DAY + datetime.timedelta(n), pa.date64()),
    "time32[s]": values(lambda n: n * 1000, pa.time32("s")),
    "time32[ms]": values(lambda n: n * 1001, pa.time32("ms")),
    "time64[us]": values(lambda n: n * 10**6 + 1, pa.time64("us")),
    "time64[ns]": values(lambda n: n * 10**9 + 1, pa.time64("ns")),
    **{f"timestamp[{unit}]": values(lambda n: MOMENT, pa.timestamp(unit)) for unit in UNITS},
    "timestamp[tz]": values(lambda n: 10**9 * n, pa.timestamp("ms", "Europe/Rome")),
    **{f"duration[{unit}]": values(lambda n: datetime.timedelta(seconds=n), pa.duration(unit)) for unit in UNITS},
    "interval": values(lambda n: (n, -n, 10**9 * n), pa.month_day_nano_interval()),
    "string": values(text, pa.string()),
    "large_string": values(text, pa.large_string()),
    "binary": values(lambda n: b"\0" * n, pa.binary()),
    "large_binary": values(lambda n: b"\xff" * (n % 3), pa.large_binary()),
    "fixed_size_binary": values(lambda n: b"%05d" % n, pa.binary(5)),
    "decimal32": values(lambda n: Decimal(n).scaleb(-2), pa.decimal32(7, 2)),
    "decimal64": values(lambda n: Decimal(n).scaleb(-2), pa.decimal64(17, 2)),
    "decimal128": values(lambda n: Decimal(-n).scaleb(-3), pa.decimal128(30, 3)),
    "decimal256": values(lambda n: Decimal(10**50 + n), pa.decimal256(70, 0)),
}
DEEP = pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.list_(pa.int8())))]))
NESTED: dict[str, Any] = {
    "list": values(lambda n: [n] * (n % 4), pa.list_(pa.int32())),
    "list of texts": values(lambda n: [text(n), None], pa.list_(pa.string())),
    "large_list": values(lambda n: [n] * (n % 4), pa.large_list(pa.int8())),
    "fixed_size_list": values(lambda n: [n, None, -n], pa.list_(pa.float32(), 3)),
    "list_view": values(lambda n: [n] * (n % 4), pa.list_view(pa.int16())),
    "large_list_view": values(lambda n: [n] * (n % 4), pa.large_list_view(pa.int16())),
    "struct": values(lambda n: {"a": n, "b": None}, pa.struct([("a", pa.int64()), ("b", pa.string())])),
    "struct of nothing": values(lambda n: {}, pa.struct([])),
    "map": values(lambda n: [(text(n), n)] * (n % 3), pa.map_(pa.string(), pa.int32())),
    "deep": values(lambda n: [{"m": [("k", [n])]}] * (n % 2), DEEP),
    "sparse_union": union("sparse"),
    "dense_union": union("dense"),
}
DICTIONARIES: dict[str, Any] = {
    "dictionary[int8]": words(pa.int8()),
    "dictionary[uint16]": words(pa.uint16()),
    "dictionary[int64]": words(pa.int64()),
    "dictionary, ordered": words(pa.int32(), ordered=True),
    "dictionary with null": words(pa.int32(), absent=True),
    "dictionary of decimals": values(lambda n: Decimal(n % 3), pa.decimal128(5, 1)).dictionary_encode(),
    "dictionary of structs": pa.DictionaryArray.from_arrays(
        values(lambda n: n % 2, pa.int8()), pa.array([{"a": 1}, {"a": 2}])
    ),
    "struct of dictionaries": pa.StructArray.from_arrays([words(pa.int8())], ["d"]),
}
EXTENSIONS: dict[str, Any] = {
    "uuid": values(lambda n: uuid.UUID(int=n).bytes, pa.uuid()),
    "json": values(lambda n: "{}", pa.json_()),
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), values(lambda n: n % 2, pa.int8())),
    "tensor": pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int16(), [2]), values(lambda n: [n, -n], pa.list_(pa.int16(), 2))
    ),
    "opaque": pa.ExtensionArray.from_storage(
        pa.opaque(pa.binary(), "point", "tests"), values(lambda n: b"%d" % n, pa.binary())
    ),
    "own": own(values(lambda n: n / 2, pa.float64())),
    "own of dictionary": own(words(pa.int8())),
}
REFUSED: dict[str, Any] = {
    "string_view": values(text, pa.string_view()),
    "binary_view": values(lambda n: b"%d" % n, pa.binary_view()),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays([5, ROWS], ["a", "b"]),
    "list of views": values(lambda n: [text(n)], pa.list_(pa.string_view())),
    "own of views": own(values(text, pa.string_view())),
}
COLUMNS = {**PLAIN, **NESTED, **DICTIONARIES, **EXTENSIONS, **REFUSED}
PLUGINS: dict[str, tuple[str, dict[str, str | int]]] = {
    "memory": ("memory", {}),
    "pipelined": ("pipelined", {"local": "false"}),
    "hybrid": ("hybrid", {}),
    "by file": ("remote", {"hand_over_from": 0}),
    "over the wire": ("remote", {"hand_over": "off"}),
}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[ShufflePlugin, ShuffleMaster]]]:
    root: Path = tmp_path_factory.mktemp("server")
    with ExitStack() as opened:
        server = opened.enter_context(ServerProcess(root / "data", root / "log"))
        found = {}
        for number, (name, (plugin_name, options)) in enumerate(PLUGINS.items()):
            where = {"server": server.control} if plugin_name in ("hybrid", "remote") else {}
            plugin = opened.enter_context(open_plugin(plugin_name, {"content": "arrow", **options, **where}))
            found[name] = plugin, opened.enter_context(plugin.master(f"types-{number}"))
        yield found


def test_the_types_are_different_ones() -> None:
    assert len({str(column.type) for column in COLUMNS.values()}) >= 61


@pytest.mark.parametrize("plugin", PLUGINS)
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_arrives_as_it_was(
    scenes: dict[str, tuple[ShufflePlugin, ShuffleMaster]], plugin: str, name: str
) -> None:
    opened, master = scenes[plugin]
    whole = pa.record_batch([pa.array(range(ROWS)), COLUMNS[name]], names=["n", name])
    given = [whole.slice(part.start, part.stop - part.start) for part in SLICES]
    handle = master.register_shuffle(PARTITIONS, 1)
    with opened.writer(handle, MapAttempt(0, 0)) as writer:
        assert isinstance(writer, SupportsWriteBatch)
        partitioner = RoundRobinPartitioner()
        if name in REFUSED:
            with pytest.raises(InvalidArgument, match=f"column '{name}'"):
                writer.write_batch(given[0], partitioner)
            return
        for batch in given:
            writer.write_batch(batch, partitioner)
        writer.commit()
        assert read(opened, handle) == expected(given)
    master.unregister_shuffle(handle)


def read(plugin: ShufflePlugin, handle: Any) -> list[list[Any]]:
    """The rows of each partition, and the type that the column has there."""
    found = []
    for partition in range(PARTITIONS):
        with plugin.reader(handle, range(partition, partition + 1)) as reader:
            assert isinstance(reader, SupportsReadBatches)
            found.append([row for _, batch in reader.read_batches() for row in rows_of(batch)])
    return found


def expected(batches: list[Any]) -> list[list[Any]]:
    rows = [row for batch in batches for row in rows_of(batch)]
    return [rows[partition::PARTITIONS] for partition in range(PARTITIONS)]


def rows_of(batch: Any) -> list[tuple[Any, ...]]:
    column = batch.column(1)
    storage = column.storage if isinstance(column, pa.ExtensionArray) else column
    kind = column.type if isinstance(column, pa.ExtensionArray) else storage.type
    if isinstance(kind, Degrees):
        kind = kind.storage_type  # it is not registered, so it arrives as its storage
    return list(zip(batch.column(0).to_pylist(), storage.to_pylist(), [str(kind)] * batch.num_rows, strict=True))
