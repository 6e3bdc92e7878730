"""The hash of rows: equal rows have equal hashes on every machine, and Spark computes the same."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from shuffle_api.columnar.hashing import SEED, hash_rows
from shuffle_api.errors import InvalidArgument
from tests.shuffle_api.columnar import spark_hashes

NAN_WITH_PAYLOAD = np.array([0x7FF800000000BEEF], np.uint64).view(np.float64)[0]


def hashed(values: list[Any], kind: Any) -> list[int]:
    found: list[int] = hash_rows(pa.record_batch({"k": pa.array(values, kind)}), ["k"]).tolist()
    return found


SAME_AS_SPARK: list[tuple[str, Any, list[Any]]] = [
    ("boolean", pa.bool_(), [True, False, None]),
    ("byte", pa.int8(), [1, -128, 127, None]),
    ("short", pa.int16(), [1, -32768, None]),
    ("int", pa.int32(), [1, -1, 0, 2**31 - 1, -(2**31), None]),
    ("long", pa.int64(), [1, -1, 0, 2**63 - 1, -(2**63), None]),
    ("float", pa.float32(), [1.5, -0.0, 0.0, float("nan"), float("inf"), None]),
    ("double", pa.float64(), [1.5, -0.0, 0.0, float("nan"), float("-inf"), None]),
    ("string", pa.string(), ["", "a", "ä" * 20, "x" * 31, "x" * 32, "x" * 33, "y" * 200, None]),
    ("binary", pa.binary(), [b"", b"\0\1\2", b"z" * 100, None]),
    ("date", pa.date32(), [0, 20_000, -1, None]),
    ("timestamp", pa.timestamp("us", "UTC"), [0, 1_700_000_000_123_456, -1, None]),
    ("decimal(10,2)", pa.decimal128(10, 2), [Decimal("1.25"), Decimal("-99999999.99"), Decimal(0), None]),
]


@pytest.mark.spark
def test_same_as_spark_computes(tmp_path: Path) -> None:
    longest = max(len(values) for _, _, values in SAME_AS_SPARK)
    columns = {name: pa.array(values + [None] * (longest - len(values)), kind) for name, kind, values in SAME_AS_SPARK}
    batch = pa.record_batch(columns)
    pq.write_table(pa.table(batch), tmp_path / "in.parquet")
    with SparkDriver(local_conf(tmp_path), tmp_path / "log") as driver:
        answers = driver.call(spark_hashes.hashes, path=str(tmp_path / "in.parquet"))
    for name in columns:
        assert hash_rows(batch, [name]).tolist() == answers[name], name
    assert hash_rows(batch, list(columns)).tolist() == answers["all"]


@pytest.mark.parametrize(
    ("equal", "kind"),
    [
        ([0.0, -0.0], pa.float64()),
        ([0.0, -0.0], pa.float32()),
        ([np.float16(0.0), np.float16(-0.0)], pa.float16()),
        ([float("nan"), -float("nan"), NAN_WITH_PAYLOAD], pa.float64()),
        ([float("nan"), -float("nan")], pa.float32()),
    ],
)
def test_floats_that_are_equal_or_no_number_meet(equal: list[Any], kind: Any) -> None:
    assert len(set(hashed(equal, kind))) == 1
    assert hashed([1.0 if kind != pa.float16() else np.float16(1)], kind) != hashed(equal[:1], kind)


def test_a_null_leaves_the_hash_of_the_columns_before() -> None:
    batch = pa.record_batch({"a": [1, 2, None], "b": pa.array([None, "x", None])})
    assert hash_rows(batch, ["a", "b"])[0] == hash_rows(batch, ["a"])[0]
    assert hash_rows(batch, ["a", "b"])[1] != hash_rows(batch, ["a"])[1]
    assert hash_rows(batch, ["a", "b"])[2] == SEED
    assert hash_rows(pa.record_batch({"n": pa.nulls(2)}), ["n"]).tolist() == [SEED, SEED]


@pytest.mark.parametrize(
    ("values", "kind", "other"),
    [
        (["a", None, "bcd", "a"], pa.string(), pa.dictionary(pa.int8(), pa.string())),
        (["a", None, "bcd"], pa.string(), pa.large_string()),
        ([b"a", None, b"bcd"], pa.binary(), pa.large_binary()),
        ([1, None, 3], pa.int32(), pa.int8()),
        ([1, None, 3], pa.int32(), pa.uint16()),
        ([1, None, 3, 2**31 - 1], pa.int32(), pa.uint32()),
        ([2**31, None, 2**32 - 1], pa.int64(), pa.uint32()),
        ([1, None, 3], pa.int32(), pa.date32()),
        ([1, None, 3], pa.int64(), pa.duration("s")),
        ([Decimal("1.5"), None, Decimal("-7")], pa.decimal128(9, 1), pa.decimal32(9, 1)),
        ([Decimal("1.5"), None, Decimal("-7")], pa.decimal128(18, 1), pa.decimal64(18, 1)),
        ([Decimal("1.5"), None, Decimal("-7")], pa.decimal128(18, 1), pa.decimal256(18, 1)),
    ],
)
def test_what_is_stored_otherwise_hashes_the_same(values: list[Any], kind: Any, other: Any) -> None:
    assert hashed(values, kind) == hashed(values, other)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 3, 4], pa.int32()),
        ([True, None, False, True] * 3, pa.bool_()),
        ([1.5, None, -0.0, 4], pa.float64()),
        (["x", None, "", "yz"], pa.string()),
        ([b"abc", None, b"def", b"ghi"], pa.binary(3)),
        ([Decimal("1.5"), None, Decimal("2.5")], pa.decimal128(10, 1)),
        ([Decimal("1.5"), None, Decimal("2.5")], pa.decimal128(30, 1)),
        ([Decimal("1.5"), None, Decimal("2.5")], pa.decimal256(60, 1)),
        ([Decimal("1.5"), None, Decimal("2.5")], pa.decimal32(5, 1)),
        ([(1, 2, 3), None, (4, 5, 6)], pa.month_day_nano_interval()),
        ([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        (["x", None, "y", "x"], pa.dictionary(pa.int16(), pa.string())),
    ],
)
def test_a_row_hashes_the_same_wherever_its_slice_begins(values: list[Any], kind: Any) -> None:
    whole = pa.record_batch({"k": pa.array(values, kind)})
    expected = hash_rows(whole, ["k"]).tolist()
    for start in range(len(values)):
        assert hash_rows(whole.slice(start), ["k"]).tolist() == expected[start:]
    assert [hashed([value], kind)[0] for value in values] == expected
    assert len(set(expected)) == len({repr(value) for value in values})


def test_a_dictionary_of_structs_hashes_as_the_structs() -> None:
    structs = pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0], pa.int8()), structs)
    plain = pa.array([{"a": 1, "b": "x"}, {"a": 2, "b": None}, None, {"a": 1, "b": "x"}])
    found, expected = (hash_rows(pa.record_batch({"k": keys}), ["k"]).tolist() for keys in (column, plain))
    assert found == expected


def test_a_struct_is_hashed_field_by_field() -> None:
    columns = {"a": pa.array([1, None, 3]), "b": pa.array(["x", "y", None])}
    together = pa.record_batch({"s": pa.StructArray.from_arrays(list(columns.values()), names=list(columns))})
    assert hash_rows(together, ["s"]).tolist() == hash_rows(pa.record_batch(columns), ["a", "b"]).tolist()


def test_another_process_with_another_hash_seed_computes_the_same() -> None:
    program = (
        "import json, pyarrow as pa; from shuffle_api.columnar import hash_rows;"
        "b = pa.record_batch({'k': [1, None, 3], 't': ['x', 'longer than thirty-two bytes, this text is', None]});"
        "print(json.dumps(hash_rows(b, ['k', 't']).tolist()))"
    )
    answers = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", program],
                env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
                capture_output=True,
                timeout=240,
                check=True,
            ).stdout
        )
        for seed in ("1", "2")
    ]
    assert answers[0] == answers[1] == STABLE


# These never change: two releases may write and read one shuffle.
STABLE = [6158280145716684778, -3651562799118000855, 3188756510806108107]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.int8()), pa.map_(pa.string(), pa.int8()), pa.struct([("x", pa.list_(pa.int8()))])]
)
def test_lists_and_maps_are_refused_by_name(kind: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"column 'k(\.x)?' of type (list|map).* cannot be hashed"):
        hashed([None], kind)


def test_a_missing_column_is_refused_with_those_there_are() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(InvalidArgument, match=r"no column 'k'.*a, a"):
        hash_rows(batch, ["k"])
    with pytest.raises(InvalidArgument, match="2 columns 'a'"):
        hash_rows(batch, ["a"])
