"""Comparing the two results of a query, each a directory of parquet files that Spark wrote."""

from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as parquet

from bench.harness.compare import rows_equal

# Above this many rows a difference is not looked at row by row; equal results of any size are found by their hashes.
ROW_BY_ROW = 500_000


def count_rows(result: Path) -> int:
    """The number of rows, from the files' footers."""
    return sum(parquet.read_metadata(file).num_rows for file in _files(result))


def compare(one: Path, other: Path, ordered_by: Sequence[str]) -> str | None:
    """None if the results are equal, else one line that describes a difference.

    As multisets of rows (`bench.harness.compare`), and the columns in ``ordered_by`` also in their order: rows with
    equal keys may come in any order.
    """
    left, right = count_rows(one), count_rows(other)
    if left != right:
        return f"{left} rows against {right}"
    with duckdb.connect() as connection:
        if left and _fingerprint(connection, one) != _fingerprint(connection, other):
            if left > ROW_BY_ROW:
                return f"contents differ ({left} rows, too many to say where)"
            difference = rows_equal(_rows(connection, one), _rows(connection, other), ordered=False)
            if difference is not None:
                return difference
    return _compare_order(one, other, ordered_by) if ordered_by and left else None


def _compare_order(one: Path, other: Path, columns: Sequence[str]) -> str | None:
    left, right = _in_order(one, columns), _in_order(other, columns)
    if left.equals(right):
        return None
    for name in columns:
        pairs = enumerate(zip(left[name], right[name], strict=True))
        differing = next((n for n, (a, b) in pairs if rows_equal([(a.as_py(),)], [(b.as_py(),)], True)), None)
        if differing is not None:
            return f"order differs: row {differing}, {name} {left[name][differing]} against {right[name][differing]}"
    return None


def _in_order(result: Path, columns: Sequence[str]) -> pa.Table:
    # Spark numbers the files by partition, and a sort's partitions follow each other.
    return pa.concat_tables([parquet.read_table(file, columns=list(columns)) for file in _files(result)])


def _fingerprint(connection: duckdb.DuckDBPyConnection, result: Path) -> tuple[object, ...] | None:
    """Equal for equal multisets of rows, whatever their order."""
    return connection.execute("select sum(hash(t)::hugeint) from read_parquet(?) t", [_names(result)]).fetchone()


def _rows(connection: duckdb.DuckDBPyConnection, result: Path) -> list[tuple[object, ...]]:
    return connection.execute("select * from read_parquet(?)", [_names(result)]).fetchall()


def _names(result: Path) -> list[str]:
    return [str(file) for file in _files(result)]


def _files(result: Path) -> list[Path]:
    return sorted(result.glob("*.parquet"))
