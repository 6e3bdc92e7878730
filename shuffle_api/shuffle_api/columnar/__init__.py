"""Shuffling Arrow data: partitioners, the hash they use, and what a plugin needs to take RecordBatches.

    writer.write_batch(batch, HashPartitioner("country"))
    for partition, batch in reader.read_batches(): ...

Needs pyarrow and numpy, which the rest of `shuffle_api` does not; docs/api.md, "Arrow tables".
"""

from shuffle_api.columnar.hashing import hash_rows
from shuffle_api.columnar.interfaces import SupportsReadBatches, SupportsWriteBatch
from shuffle_api.columnar.order import Order
from shuffle_api.columnar.partitioners import (
    HashPartitioner,
    Partitioner,
    RangePartitioner,
    RoundRobinPartitioner,
    sample_bounds,
)
from shuffle_api.columnar.reading import read_table
from shuffle_api.columnar.rows import frame_rows, rows_of

__all__ = [
    "HashPartitioner",
    "Order",
    "Partitioner",
    "RangePartitioner",
    "RoundRobinPartitioner",
    "SupportsReadBatches",
    "SupportsWriteBatch",
    "frame_rows",
    "hash_rows",
    "read_table",
    "rows_of",
    "sample_bounds",
]
