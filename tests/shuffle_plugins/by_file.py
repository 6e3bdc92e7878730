"""What the tests of map outputs that are handed over as files share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from shuffle_api.columnar import HashPartitioner
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle

MIB = 1 << 20
PARTITIONS = 4
BY_FILE: dict[str, OptionValue] = {
    "timeout": 30,
    "retry": 30,
    "content": "arrow",
    "hand_over_from": 0,
    "block_bytes": "256k",
}


def rows(map_id: int, count: int = 40_000) -> Any:
    """About 4 MiB that do not compress; `n` is unique among the rows of all maps."""
    texts = np.random.default_rng(map_id).bytes(48 * count).hex()
    return pa.record_batch(
        {
            "n": np.arange(count) + map_id * count,
            "text": [texts[at : at + 96] for at in range(0, 96 * count, 96)],
        }
    )


def write(plugin: RemoteShuffle, handle: ShuffleHandle, map_id: int, batches: int = 1) -> list[int]:
    """Write and commit one map; its `n`."""
    batch = rows(map_id)
    with plugin.writer(handle, MapAttempt(map_id, 0)) as writer:
        for _ in range(batches):
            writer.write_batch(batch, HashPartitioner("n"))
        writer.commit()
    written: list[int] = batch["n"].to_pylist() * batches
    return written


def read(plugin: RemoteShuffle, handle: ShuffleHandle, partitions: range = range(PARTITIONS)) -> list[Any]:
    with plugin.reader(handle, partitions) as reader:
        return [batch for _, batch in reader.read_batches()]


def numbers(batches: list[Any]) -> list[int]:
    return sorted(n for batch in batches for n in batch["n"].to_pylist())
