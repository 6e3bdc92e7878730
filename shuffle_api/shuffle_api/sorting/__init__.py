"""Batch shuffles in the order of a key, over any plugin: MapReduce's sort, combine, spill and merge.

Records: `SortedWriter(writer, key)` and `merged_records(reader, key)`. Arrow batches: `SortedBatchWriter` and
`merged_batches`, which need pyarrow and numpy; import them from `shuffle_api.sorting.batches`. docs/api.md, "In order".
"""

from shuffle_api.sorting.records import SortedWriter, merged_records
from shuffle_api.sorting.spill import Spill

__all__ = ["SortedWriter", "Spill", "merged_records"]
