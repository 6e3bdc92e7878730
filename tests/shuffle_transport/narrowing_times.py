"""What narrowing gains on Arrow blocks of 1 MiB: ``python -m tests.shuffle_transport.narrowing_times TPCH_DIRECTORY``.

The rows are those that one of many partitions gets. Bytes are parts of those before compression; times those of the
fastest of several turns of one thread, to write and to read one block. The directory has the tables of TPC-H as parquet
(`bench.tpch`).
"""

# ruff: noqa: T201 - what it prints is what it is for

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from shuffle_api.columnar import HashPartitioner
from shuffle_api.columnar.ipc import encode
from shuffle_transport.codecs import Codec, get_codec

BLOCK, TURNS, PARTITION = 1 << 20, 30, 3
NUMBERS = ["l_orderkey", "l_partkey", "l_suppkey", "l_quantity", "l_extendedprice", "l_discount", "l_shipdate"]


def one_partition(table: Any, key: str, partitions: int) -> Any:
    for number, field in enumerate(table.schema):
        if pa.types.is_string_view(field.type):
            table = table.set_column(number, field.name, table[field.name].cast(pa.string()))
    batch = table.combine_chunks().to_batches()[0]
    found = HashPartitioner(key).partitions_of(batch, partitions)
    return batch.take(pa.array(np.flatnonzero(found == PARTITION)))


def kinds(directory: Path) -> Iterator[tuple[str, Any]]:
    lines = pq.read_table(directory / "lineitem.parquet").slice(0, 2_000_000)
    yield "lineitem, 7 numbers and dates", one_partition(lines.select(NUMBERS), "l_orderkey", 32)
    yield "lineitem, 16 columns", one_partition(lines, "l_orderkey", 64)
    yield "orders, 9 columns", one_partition(pq.read_table(directory / "orders.parquet"), "o_orderkey", 64)
    rng = np.random.default_rng(1)
    texts = pa.array([f"customer number {n} of {n % 37} words" for n in rng.integers(0, 1 << 20, 30_000).tolist()])
    yield "short texts", pa.record_batch({"text": texts})
    yield "random numbers of 8 bytes", pa.record_batch({"number": pa.array(rng.integers(-(2**62), 2**62, 140_000))})


def fastest(work: Callable[[], object]) -> float:
    """Microseconds."""
    times = []
    for _ in range(TURNS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times) * 1e6


def figures(block: memoryview, codec: Codec, *, narrows: bool) -> str:
    compress, decompress = type(codec).compress, type(codec).decompress
    if not narrows:
        compress, decompress = Codec.compress, Codec.decompress
    stored = compress(codec, block)
    payload = block if stored is None else stored
    write = fastest(lambda: compress(codec, block))
    read = fastest(lambda: decompress(codec, payload, len(block)))
    return f"{memoryview(payload).nbytes / len(block):.2f} | {write:.0f} + {read:.0f}"


def main(directory: Path) -> None:
    print("| rows | lz4 | us | narrowed | us | zstd | us | narrowed | us |\n|---|---|---|---|---|---|---|---|---|")
    for name, batch in kinds(directory):
        rows = max(1, batch.num_rows * BLOCK // batch.nbytes)
        block = memoryview(encode(batch.slice(0, rows))).cast("B")
        ways = [(get_codec(codec), narrows) for codec in ("lz4", "zstd") for narrows in (False, True)]
        print(f"| {name} |", " | ".join(figures(block, codec, narrows=narrows) for codec, narrows in ways), "|")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
