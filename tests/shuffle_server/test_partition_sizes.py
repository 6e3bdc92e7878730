"""Sizes of partitions come from the indexes of outputs, in files of their own and in compacted ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from shuffle_api.ids import MapAttempt
from shuffle_server.store import pending_outputs
from shuffle_server.store.partition_sizes import partition_sizes
from tests.shuffle_server.compaction import PARTITIONS, compacted, some_outputs, written
from tests.shuffle_server.helpers import SPEC


def test_sizes_are_the_same_after_compaction_and_without_an_output_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_outputs, "READ_SECONDS", 0.0)
    pushed = some_outputs()
    store, outputs = written(tmp_path, pushed)
    wanted = [0] * PARTITIONS
    for partition, payload in (block for blocks in pushed for block in blocks):
        wanted[partition] += len(payload)
    before = partition_sizes(store, SPEC.id, outputs, PARTITIONS)
    assert (before.outputs, before.bytes.tolist()) == (len(outputs), wanted)
    assert compacted(store, outputs) == 1
    after = partition_sizes(store, SPEC.id, [*outputs, MapAttempt(10_000, 0)], PARTITIONS)
    assert (after.outputs, after.bytes.tolist()) == (len(outputs), wanted)
    store.close()
