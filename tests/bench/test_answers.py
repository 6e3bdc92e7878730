"""bench.answers: an answer that is not DuckDB's is one, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from bench import tpch
from bench.answers import SUITES, answer
from bench.harness.spark_driver import JobFailed, SparkDriver


class Driver:
    """Answers with what it was given."""

    def __init__(self, rows: list[tuple[Any, ...]] | Exception) -> None:
        self._rows = rows

    def call(self, function: object, **arguments: object) -> list[tuple[Any, ...]]:
        if isinstance(self._rows, Exception):
            raise self._rows
        return self._rows


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tpch") / "tables"
    SUITES["tpch"].generate(directory, 0.001)
    return directory


def difference(tables: Path, rows: list[tuple[Any, ...]] | Exception) -> str | None:
    found = answer(cast(SparkDriver, Driver(rows)), SUITES["tpch"], tables, 4)
    assert found.rows == 5
    return found.difference


def test_rows_of_duckdb_are_equal_and_others_are_not(tables: Path) -> None:
    right = tpch.answer(tables, tpch.queries()[4])
    assert difference(tables, right) is None
    assert difference(tables, right[1:]) == "4 rows against 5"
    assert difference(tables, [*right[1:], right[1]]) is not None


def test_a_job_that_failed_is_a_difference(tables: Path) -> None:
    assert "no worker" in str(difference(tables, JobFailed("no worker")))


def test_tables_that_are_there_are_not_generated_again(tables: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in tables.iterdir()}
    SUITES["tpch"].generate(tables, 0.001)
    assert {path.name: path.stat().st_mtime_ns for path in tables.iterdir()} == before
