"""How large the partitions of a shuffle are, as far as map outputs lie here: from the indexes at the ends of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shuffle_api.errors import Overloaded, StorageFailed
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.format import TornFile
from shuffle_server.store.opening import load_committed
from shuffle_server.store.store import Store


@dataclass(frozen=True, slots=True)
class PartitionSizes:
    """Payload of each partition, and of how many map outputs: without those that are gone or in an object store."""

    outputs: int
    bytes: np.ndarray  # int64, by partition


def partition_sizes(store: Store, shuffle: ShuffleId, outputs: Sequence[MapAttempt], partitions: int) -> PartitionSizes:
    """Of these outputs. Reads an index for each, past the caches of pulls, which it must not push anything out of."""
    sizes, found = np.zeros(partitions, np.int64), 0
    for output in outputs:
        held = store.catalog.find(shuffle, output.map)
        if held is None or held.output != output or held.tiered:
            continue
        try:
            with held.home.calls.request():
                index = load_committed(shuffle, held).index
        except (OSError, TornFile, StorageFailed, Overloaded):
            continue  # it was removed meanwhile, its directory hangs, or whoever reads it declares it lost
        sizes += np.bincount(index["partition"], index["length"], partitions).astype(np.int64)[:partitions]
        found += 1
    return PartitionSizes(found, sizes)
