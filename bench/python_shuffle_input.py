"""The input of `bench.python_shuffle` in two forms, with the same rows in as many files: parquet, and Arrow's own.

Arrow files (IPC, not compressed) are mapped into memory: to read them is to look at them, as in a program that
has its data in Arrow. Decoding parquet takes longer than a shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness.files import once

PARQUET, ARROW = ".parquet", ".arrow"
BATCH_ROWS = 128 << 10


def prepare_arrow(parquet: Path) -> Path:
    """The directory with the rows of the directory `parquet` as Arrow files, written if it is not there."""

    def write(directory: Path) -> None:
        directory.mkdir()
        for file in files_of(parquet):
            table = pq.read_table(file)
            with pa.ipc.new_file(directory / f"{file.stem}{ARROW}", table.schema) as out:
                out.write_table(table.combine_chunks(), max_chunksize=BATCH_ROWS)

    return once(parquet.with_name(f"{parquet.name}-arrow"), write)


def files_of(directory: Path) -> list[Path]:
    """The input's files, of either form."""
    return sorted(file for file in directory.iterdir() if file.suffix in (PARQUET, ARROW))


def batches_of(file: Path) -> Iterator[Any]:
    """The RecordBatches of a file of either form; those of an Arrow file lie in the file."""
    if file.suffix == PARQUET:
        with pq.ParquetFile(file, memory_map=True) as source:
            yield from source.iter_batches(BATCH_ROWS, use_threads=False)
        return
    with pa.memory_map(str(file)) as mapped, pa.ipc.open_file(mapped) as arrow:
        for number in range(arrow.num_record_batches):
            yield arrow.get_batch(number)


def table_of(file: Path) -> Any:
    """An Arrow file as a table that lies in the file."""
    with pa.memory_map(str(file)) as mapped:
        return pa.ipc.open_file(mapped).read_all()
