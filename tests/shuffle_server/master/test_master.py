"""The registry's journal."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from shuffle_api.errors import StorageFailed
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry.operations import (
    CommitMapOutput,
    ExpireApps,
    LoseMapOutput,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
    UnregisterApp,
    UnregisterShuffle,
)
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo
from shuffle_server.master.journal import Journal, decode, encode, replay
from shuffle_server.master.master import Master
from tests.shuffle_server.helpers import fill, mounted_tmpfs

SHUFFLE = ShuffleId("app", 1)
OPERATIONS: list[Operation] = [
    RegisterApp("app", "i", "näme", 1.5),
    RegisterShuffle(ShuffleSpec(SHUFFLE, 4, 2, "zstd:3", "spark")),
    RegisterWorker(WorkerInfo("w", "h", 1, 2)),
    CommitMapOutput(SHUFFLE, MapOutput(MapAttempt(1, 2), "w", Totals(1, 2, 3, 4, 5))),
    LoseMapOutput(SHUFFLE, MapAttempt(1, 2), "gone"),
    UnregisterShuffle(SHUFFLE),
    ExpireApps(1.0),
    UnregisterApp("app"),
]


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda op: type(op).__name__)
def test_every_operation_survives_the_journal(operation: Operation) -> None:
    assert decode(encode(operation)[8:]) == operation


def test_replay_gives_what_was_appended_in_order(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", OPERATIONS[:2])
    for operation in OPERATIONS[2:]:
        journal.flush(journal.append(operation))
    journal.close()
    assert list(replay(tmp_path / "j")) == OPERATIONS


@pytest.mark.parametrize("lost", range(1, 60, 7))
def test_a_torn_tail_is_cut_and_what_comes_before_it_is_kept(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "j"
    Journal(path, OPERATIONS).close()
    os.truncate(path, path.stat().st_size - lost)
    kept = list(replay(path))
    assert kept == OPERATIONS[: len(kept)]
    assert len(kept) < len(OPERATIONS)
    assert list(replay(path)) == kept
    assert path.stat().st_size == sum(len(encode(op)) for op in kept)


def test_a_flipped_bit_ends_the_replay_before_it(tmp_path: Path) -> None:
    path = tmp_path / "j"
    Journal(path, OPERATIONS).close()
    data = bytearray(path.read_bytes())
    data[len(encode(OPERATIONS[0])) + 12] ^= 4
    path.write_bytes(data)
    assert list(replay(path)) == OPERATIONS[:1]


def test_concurrent_appends_are_all_there_once(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "j", [])

    def work(thread: int) -> None:
        for i in range(50):
            journal.flush(journal.append(RegisterApp(f"a{thread}-{i}", "i", "", 0.0)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    apps = [op.app for op in replay(tmp_path / "j") if isinstance(op, RegisterApp)]
    assert sorted(apps) == sorted(f"a{t}-{i}" for t in range(8) for i in range(50))
    journal.close()


def test_a_master_that_is_not_closed_loses_nothing_it_has_acknowledged(tmp_path: Path) -> None:
    master = Master(tmp_path)
    for operation in OPERATIONS[:4]:
        master.apply(operation)
    again = Master(tmp_path)
    assert again.registry.map_output(SHUFFLE, 1).totals == Totals(1, 2, 3, 4, 5)
    assert again.epoch == master.epoch + 1
    master.close()
    again.close()


def test_a_full_disk_leaves_no_half_record_and_writes_it_when_there_is_room(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "small", 1 << 20) as root:
        journal = Journal(root / "j", OPERATIONS[:1])
        ballast = fill(root)
        with pytest.raises(StorageFailed, match="No space left"):
            for i in range(100):
                journal.flush(journal.append(RegisterApp(f"a{i}", "i", "x" * 1000, 0.0)))
        assert next(iter(replay(root / "j"))) == OPERATIONS[0]
        ballast.unlink()
        journal.close()
        names = [op.app for op in replay(root / "j") if isinstance(op, RegisterApp)]
        assert names == ["app", *(f"a{i}" for i in range(len(names) - 1))]
        assert len(names) > 1


def test_operations_that_change_nothing_do_not_grow_the_journal(tmp_path: Path) -> None:
    master = Master(tmp_path)
    for operation in OPERATIONS[:4]:
        master.apply(operation)
    before = (tmp_path / "registry.journal").stat().st_size
    for operation in OPERATIONS[:4]:
        master.apply(operation)
    for map_id in range(50):
        master.lose(SHUFFLE, MapAttempt(map_id, 77), "nobody has ever written it")
    master.apply(UnregisterShuffle(ShuffleId("app", 99)))
    master.apply(UnregisterApp("nobody"))
    assert (tmp_path / "registry.journal").stat().st_size == before
    master.lose(SHUFFLE, MapAttempt(1, 2), "really gone")
    assert (tmp_path / "registry.journal").stat().st_size > before
    master.close()
