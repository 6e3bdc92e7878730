"""tools.demo.folder: the tables in a directory, and the errors for one that can't be used."""

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from tools.demo.folder import BadInput, find_tables

NUMBERS = pa.table({"id": [1, 2]})
WORDS = pa.table({"word": ["a"]})


def write(table: pa.Table, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table, path)


def found(directory: Path) -> dict[str, tuple[str, int]]:
    return {table.name: (table.format, len(table.paths)) for table in find_tables(directory)}


def test_files_with_equal_columns_are_one_table_named_for_the_directory(tmp_path: Path) -> None:
    for name in ("part-0.parquet", "part-1.parquet"):
        write(NUMBERS, tmp_path / "orders" / name)
    assert found(tmp_path / "orders") == {"orders": ("parquet", 2)}


def test_files_with_other_columns_are_tables_of_their_own(tmp_path: Path) -> None:
    write(NUMBERS, tmp_path / "numbers.parquet")
    write(WORDS, tmp_path / "words.parquet")
    (tmp_path / "towns.csv").write_text("id,town\n1,Bonn\n")
    assert found(tmp_path) == {"numbers": ("parquet", 1), "words": ("parquet", 1), "towns": ("csv", 1)}


def test_each_subdirectory_is_a_table_with_what_its_partitions_hold(tmp_path: Path) -> None:
    write(NUMBERS, tmp_path / "sales" / "year=2013" / "a.parquet")
    write(NUMBERS, tmp_path / "sales" / "year=2014" / "a.parquet")
    write(WORDS, tmp_path / "words" / "a.parquet")
    write(WORDS, tmp_path / "words" / "b.parquet")
    assert found(tmp_path) == {"sales": ("parquet", 2), "words": ("parquet", 2)}
    assert {table.root.name for table in find_tables(tmp_path)} == {"sales", "words"}


def test_equal_names_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "towns.csv").write_text("id,town\n")
    (tmp_path / "x.csv").write_text("other\n")
    write(WORDS, tmp_path / "towns.parquet")
    write(NUMBERS, tmp_path / "numbers.parquet")
    assert set(found(tmp_path)) == {"towns", "towns 2", "x", "numbers"}


def test_hidden_files_are_skipped_and_compressed_csv_is_read(tmp_path: Path) -> None:
    write(NUMBERS, tmp_path / "_temporary" / "a.parquet")
    (tmp_path / ".x.csv").write_text("")
    (tmp_path / "real.csv.gz").write_bytes(gzip.compress(b"id\n1\n"))
    assert found(tmp_path) == {"real": ("csv", 1)}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.parquet", b"no parquet", "x.parquet cannot be read"),
        ("x.csv", b"", "x.csv is empty"),
        ("x.csv", b"\xff\xfe\n", "x.csv cannot be read"),
        ("x.csv.gz", b"no gzip", "x.csv.gz cannot be read"),
        ("x.txt", b"text", "holds no .parquet, .csv or .csv.gz file"),
    ],
)
def test_find_tables_names_the_file_that_cannot_be_read(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInput, match=said):
        find_tables(tmp_path)


def test_find_tables_says_that_a_directory_is_missing_or_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere does not exist"):
        find_tables(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="file is not a directory"):
        find_tables(tmp_path / "file")
