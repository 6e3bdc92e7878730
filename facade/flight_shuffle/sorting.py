"""`shuffle_api.sorting`, under the name of the distribution; with what sorts and merges Arrow batches."""

from shuffle_api.sorting import SortedWriter, Spill, merged_records
from shuffle_api.sorting.batches import SortedBatchWriter, merged_batches
from shuffle_api.sorting.combining import Combiner

__all__ = ["Combiner", "SortedBatchWriter", "SortedWriter", "Spill", "merged_batches", "merged_records"]
