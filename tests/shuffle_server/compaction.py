"""Stores whose outputs are compacted because of their disk, and their pulls."""

from __future__ import annotations

import random
from pathlib import Path

from shuffle_api.ids import MapAttempt
from shuffle_server.store.compacted_run import CompactedRun
from shuffle_server.store.compaction_model import CompactionOptions
from shuffle_server.store.device import Device
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from tests.shuffle_server.helpers import SPEC
from tests.shuffle_server.test_fetch_handler import pull, write

PARTITIONS = 8
DISK = Device("measured", 1000, 150 << 20)
SLOW = CompactionOptions(below=1, device=DISK, page_cache=1)  # nothing is small, and all is on the disk
Pushed = list[list[tuple[int, bytes]]]


def wanted(outputs: list[MapAttempt], first: int = 0, end: int = PARTITIONS) -> list[OutputRange]:
    return [OutputRange(output, first, end) for output in outputs]


def expected(pushed: Pushed, ranges: list[OutputRange]) -> list[tuple[int, int, bytes]]:
    """What a pull of these has: range by range, by partition, inside one as it was written."""
    return [
        (each.output.map, partition, payload)
        for each in ranges
        for partition, payload in sorted(pushed[each.output.map], key=lambda pushed: pushed[0])
        if each.first <= partition < each.end
    ]


def compacted(store: Store, outputs: list[MapAttempt]) -> int:
    """Read one of them, so that all are compacted; the number of compacted files made."""
    pull(store, wanted(outputs[:1], 0, 1))
    return store.compaction.merge()


def in_files(store: Store, ranges: list[OutputRange]) -> int:
    """How many ranges are read out of compacted files."""
    return sum(len(each.ranges) for each in store.merged(SPEC.id, ranges) if isinstance(each, CompactedRun))


def some_outputs(maps: int = 6, size: int = 90) -> Pushed:
    rng = random.Random(7)
    return [[(rng.randrange(PARTITIONS), rng.randbytes(rng.randrange(size))) for _ in range(20)] for _ in range(maps)]


def written(root: Path, pushed: Pushed, options: CompactionOptions = SLOW) -> tuple[Store, list[MapAttempt]]:
    store = Store(root, options=StoreOptions(compaction=options))
    return store, [write(store, map_id, blocks) for map_id, blocks in enumerate(pushed)]


def compacted_paths(root: Path) -> list[Path]:
    """Compacted files below a store, whole or not."""
    return sorted(path for path in root.rglob("*") if ".compacted" in path.name)


def own_files(root: Path) -> list[Path]:
    """Outputs that have a file of their own."""
    return sorted(root.rglob("*.out"))


def decided(store: Store) -> dict[str, int]:
    return {what: count for what, count in store.statistics().compaction.decisions.items() if count}
