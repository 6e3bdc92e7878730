"""tools.demo.results: the verdict on two results written as parquet."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tools.demo import results
from tools.demo.results import compare, count_rows


def write(directory: Path, *parts: dict[str, list[object]]) -> Path:
    directory.mkdir()
    for number, part in enumerate(parts):
        parquet.write_table(pa.table(part), directory / f"part-{number:05}.parquet")
    return directory


def test_compare_takes_rows_in_any_order_and_any_files(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"k": [1, 2, 2], "v": ["a", None, "b"]})
    other = write(tmp_path / "other", {"k": [2], "v": ["b"]}, {"k": [2, 1], "v": [None, "a"]})
    assert count_rows(other) == 3
    assert compare(one, other, ()) is None


def test_compare_forgives_the_order_of_additions_and_nothing_more(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"k": [1], "v": [0.1 + 0.2]})
    assert compare(one, write(tmp_path / "near", {"k": [1], "v": [0.3]}), ()) is None
    assert "0.30001" in str(compare(one, write(tmp_path / "far", {"k": [1], "v": [0.30001]}), ()))


def test_compare_finds_a_missing_row_and_one_in_two_copies(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"k": [1, 1, 2]})
    assert compare(one, write(tmp_path / "short", {"k": [1, 2]}), ()) == "3 rows against 2"
    assert "only in the first: (1,)" in str(compare(one, write(tmp_path / "twice", {"k": [1, 2, 2]}), ()))


def test_compare_checks_the_order_of_the_sorted_columns_only(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"k": [1, 1], "v": ["a", "b"]}, {"k": [2], "v": ["c"]})
    tied = write(tmp_path / "tied", {"k": [1, 1, 2], "v": ["b", "a", "c"]})
    wrong = write(tmp_path / "wrong", {"k": [1, 2, 1], "v": ["a", "c", "b"]})
    assert compare(one, tied, ("k",)) is None
    assert compare(one, wrong, ()) is None
    assert compare(one, wrong, ("k",)) == "order differs: row 1, k 1 against 2"


def test_compare_of_nan_in_order_is_equal(tmp_path: Path) -> None:
    one = write(tmp_path / "one", {"k": [1.0, float("nan")]})
    assert compare(one, write(tmp_path / "other", {"k": [1.0, float("nan")]}), ("k",)) is None


def test_compare_says_so_when_there_is_too_much_to_look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "ROW_BY_ROW", 1)
    one = write(tmp_path / "one", {"k": [1, 2]})
    assert "contents differ (2 rows" in str(compare(one, write(tmp_path / "other", {"k": [1, 3]}), ()))


def test_compare_of_empty_results_is_equal(tmp_path: Path) -> None:
    assert compare(write(tmp_path / "one", {"k": []}), write(tmp_path / "other", {"k": []}), ("k",)) is None
