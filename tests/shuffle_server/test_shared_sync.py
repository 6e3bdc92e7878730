"""Group commit: who shares a sync, who must wait for the next."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from shuffle_api.ids import MapAttempt
from shuffle_server.store import directory
from shuffle_server.store.calls import SharedSync
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.store import Store
from tests.shuffle_server.helpers import SPEC, batch, block

DEADLINE = 120.0


class Disk:
    """Syncs that begin and end when the test says so."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.syncs = 0

    def __call__(self, path: Path) -> None:
        self.syncs += 1
        self.begun.release()
        assert self.may_end.acquire(timeout=DEADLINE)


def test_who_comes_while_a_sync_runs_shares_the_next_one() -> None:
    disk = Disk()
    sync = SharedSync(disk)
    with ThreadPoolExecutor(9) as threads:
        first = threads.submit(sync, Path("d"))
        assert disk.begun.acquire(timeout=DEADLINE)
        others = [threads.submit(sync, Path("d")) for _ in range(8)]
        while sync._next.get(Path("d")) is None:
            pass
        disk.may_end.release()
        first.result(DEADLINE)
        for _ in range(8):  # one of them late: it needs one more
            disk.may_end.release()
        for other in others:
            other.result(DEADLINE)
    assert 2 <= disk.syncs <= 9
    assert not sync._running
    assert not sync._next


def test_a_sync_that_fails_fails_all_who_shared_it_and_the_next_one_is_a_new_one() -> None:
    failing = [True]

    def flush(path: Path) -> None:
        if failing[0]:
            raise OSError(5, "Input/output error")

    sync = SharedSync(flush)
    with pytest.raises(OSError, match="Input/output"):
        sync(Path("d"))
    failing[0] = False
    sync(Path("d"))


def test_after_each_call_everything_made_before_it_is_synced() -> None:
    """The promise itself: a name that was made before the call is among those that a sync saw."""
    made: set[int] = set()
    synced: set[int] = set()
    lock = threading.Lock()

    def flush(path: Path) -> None:
        with lock:
            seen = set(made)
        os.sched_yield()
        with lock:
            synced.update(seen)

    sync = SharedSync(flush)

    def commit(number: int) -> bool:
        with lock:
            made.add(number)
        sync(Path("d"))
        with lock:
            return number in synced

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(commit, range(2000)))


def test_a_published_output_is_synced_with_its_name_and_the_directories_above_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(directory, "sync_directory", synced.append)
    store = Store(tmp_path, options=StoreOptions(sync=True))
    store.add_shuffle(SPEC.id)
    for map_id in range(2):
        writer = store.stage(SPEC, MapAttempt(map_id, 0), "none")
        turn = writer.new_fencing_token()
        writer.append(turn, batch([block(0, b"x")]))
        assert store.publish(writer, turn) is not None
    apps = tmp_path / "apps"
    assert synced == [apps, apps / "app", apps / "app/3.0", apps / "app/3.0"]
    store.remove_shuffle(SPEC.id)
    store.add_shuffle(SPEC.id)
    writer = store.stage(SPEC, MapAttempt(0, 0), "none")
    turn = writer.new_fencing_token()
    writer.append(turn, batch([block(0, b"x")]))
    assert store.publish(writer, turn) is not None
    assert synced[4:] == [apps, apps / "app", apps / "app/3.0"]
