"""A user's directory of parquet or CSV files: what tables it holds, and whether they can be read at all."""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

FORMATS = {".parquet": "parquet", ".csv": "csv", ".csv.gz": "csv"}


class BadInput(Exception):
    """The directory can't be used; the message names the file and says what is expected."""


@dataclass(frozen=True, slots=True)
class Table:
    """Files below ``root`` that are read as one table. ``format`` is parquet or csv."""

    name: str
    format: str
    root: Path
    paths: tuple[Path, ...]
    bytes: int


def find_tables(directory: Path) -> list[Table]:
    """The tables of a directory: one per subdirectory; files beside each other are one table if their columns agree,
    else one each. Directories ``column=value`` belong to the table above them; names that begin with ``_`` or ``.``
    are skipped, as Spark skips them.

    Raises BadInput if the directory is missing, has no parquet or CSV file, or has one that cannot be read.
    """
    if not directory.is_dir():
        raise BadInput(f"{directory} is not a directory" if directory.exists() else f"{directory} does not exist")
    groups: dict[tuple[Path, str], dict[Path, tuple[str, ...]]] = {}
    for path in _files(directory):
        inside = [part for part in path.relative_to(directory).parts[:-1] if "=" not in part]
        root = directory / inside[0] if inside else directory
        groups.setdefault((root, _format(path)), {})[path] = _columns(path)
    if not groups:
        raise BadInput(f"{directory} holds no .parquet, .csv or .csv.gz file")
    tables = [table for (root, kind), files in groups.items() for table in _tables(root, kind, files)]
    return sorted(_distinct(tables), key=lambda table: (-table.bytes, table.name))


def _tables(root: Path, kind: str, files: dict[Path, tuple[str, ...]]) -> Iterator[Table]:
    if len(files) > 1 and len(set(files.values())) == 1:
        yield Table(root.resolve().name, kind, root, tuple(files), sum(path.stat().st_size for path in files))
        return
    for path in files:
        yield Table(path.name.split(".")[0], kind, root, (path,), path.stat().st_size)


def _distinct(tables: list[Table]) -> Iterator[Table]:
    seen: dict[str, int] = {}
    for table in tables:
        seen[table.name] = seen.get(table.name, 0) + 1
        yield table if seen[table.name] == 1 else replace(table, name=f"{table.name} {seen[table.name]}")


def _files(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.rglob("*")):
        hidden = any(part.startswith(("_", ".")) for part in path.relative_to(directory).parts)
        if not hidden and path.is_file() and path.name.endswith(tuple(FORMATS)):
            yield path


def _format(path: Path) -> str:
    return next(kind for suffix, kind in FORMATS.items() if path.name.endswith(suffix))


def _columns(path: Path) -> tuple[str, ...]:
    try:
        if _format(path) == "parquet":
            return tuple(parquet.read_schema(path).names)
        with gzip.open(path, "rt") if path.name.endswith(".gz") else path.open() as text:
            header = text.readline()
    except (OSError, EOFError, UnicodeDecodeError, pa.ArrowException) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    if not header.strip():
        raise BadInput(f"{path} is empty; a CSV file begins with a line of column names")
    return (header.strip(),)
