"""The decision about a shuffle's small blocks, as `shuffles` and the page show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from shuffle_server.compaction_shown import CompactionShown
from shuffle_server.store import compacted_files as files_module
from shuffle_server.store import pending_outputs as pending_module
from shuffle_server.store.compaction_model import CompactionOptions
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.compaction import DISK, SLOW, compacted, some_outputs, written
from tests.shuffle_server.helpers import SPEC

KEY = messages.key_of(SPEC.id)


def shown(states: list[pb.WorkerStatus]) -> str:
    shuffle = pb.ShuffleStatus(shuffle=KEY, totals=pb.Totals(blocks=10, bytes=10_000))
    return CompactionShown(pb.StatusReply(states=states)).of(shuffle)


def state(
    *, bound: bool = True, seek: int = 100_000, compacted: int = 0, large: int = 0, failed: int = 0, pending: int = 0
) -> pb.WorkerStatus:
    told = pb.ShuffleCompaction(
        shuffle=KEY, compacted=compacted, large_blocks=large, failed=failed, pending_bytes=pending
    )
    return pb.WorkerStatus(disks=[pb.DiskStatus(seek_bytes=seek)], disk_bound=bound, compactions=[told])


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], "-"),
        ([state()], "-"),
        ([state(seek=500)], "large blocks"),
        ([state(seek=0)], "-"),
        ([state(pending=7)], "waiting"),
        ([state(pending=7, bound=False)], "in memory"),
        ([state(compacted=3, pending=7), state(compacted=4, failed=2)], "compacted 7, failed 2, waiting"),
        ([state(large=3, compacted=1)], "compacted 1, large blocks 3"),
    ],
)
def test_it_says_what_was_decided_and_why(states: list[pb.WorkerStatus], expected: str) -> None:
    assert shown(states) == expected


def test_the_statistics_have_the_largest_shuffles_until_they_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, outputs = written(tmp_path, some_outputs(), SLOW)
    (of,) = store.statistics().compaction.shuffles
    assert (of.shuffle, of.decisions) == (SPEC.id, {})
    assert of.pending > 0
    monkeypatch.setattr(pending_module, "READ_SECONDS", 0.0)
    assert compacted(store, outputs) == 1
    (of,) = store.statistics().compaction.shuffles
    assert (of.decisions, of.pending) == ({"compacted": 6}, 0)
    with monkeypatch.context() as patch:
        patch.setattr(files_module, "MOST_TOLD", 0)
        assert store.statistics().compaction.shuffles == ()
    store.remove_shuffle(SPEC.id)
    assert store.statistics().compaction.shuffles == ()
    store, _ = written(tmp_path / "held", some_outputs(), CompactionOptions(1, DISK, 1 << 30))
    assert not store.statistics().compaction.disk_bound
    (of,) = store.statistics().compaction.shuffles
    assert of.pending > 0
