"""Files that are written over: always the same application's, never one that is being read, gone in the end."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import ShuffleSpec
from shuffle_server.store import file_pool
from shuffle_server.store.file_pool import LARGE_BYTES, SMALL_BYTES
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.store import Store
from tests.shuffle_server.helpers import SPEC, batch, block, fill, mounted_tmpfs


def spec(shuffle: int, app: str = SPEC.id.app) -> ShuffleSpec:
    return replace(SPEC, id=ShuffleId(app, shuffle))


LARGE = os.urandom(LARGE_BYTES)


def write(store: Store, of: ShuffleSpec, payload: bytes, map_id: int = 0) -> int:
    """Commit one map output of one block; the inode it lies in."""
    store.add_shuffle(of.id)
    writer = store.stage(of, MapAttempt(map_id, 0), "none")
    turn = writer.new_fencing_token()
    writer.append(turn, batch([block(0, payload)]))
    assert store.publish(writer, turn) is not None
    file, fd = store.open_output(of.id, MapAttempt(map_id, 0))
    os.close(fd)
    return file.identity.inode


def read(store: Store, of: ShuffleSpec, map_id: int = 0) -> bytes:
    file, fd = store.open_output(of.id, MapAttempt(map_id, 0))
    try:
        return os.pread(fd, int(file.index["length"][0]), int(file.index["offset"][0]))
    finally:
        os.close(fd)


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


@pytest.mark.parametrize("length", [5000, 8000, 20_000])
def test_a_removed_output_is_written_over_and_nothing_of_it_shows(tmp_path: Path, length: int) -> None:
    store = Store(tmp_path, options=StoreOptions(recycle=1 << 23))
    inode = write(store, spec(0), 2 * LARGE)
    store.remove_shuffle(spec(0).id)
    new = bytes(range(256)) * length
    assert write(store, spec(1), new) == inode
    assert read(store, spec(1)) == new
    assert [d.output for d in Store(tmp_path).recover()] == [MapAttempt(0, 0)]


def test_a_file_that_pulls_left_open_is_written_over_all_the_same(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(recycle=1 << 23))
    inode = write(store, spec(0), LARGE)
    store.open_cached(spec(0).id, MapAttempt(0, 0))
    store.remove_shuffle(spec(0).id)
    assert write(store, spec(1), LARGE) == inode


def test_small_files_are_for_small_outputs(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(recycle=1 << 23))
    small = write(store, spec(0), b"small")
    large = write(store, spec(0), LARGE, 1)
    store.remove_shuffle(spec(0).id)
    store.empty_trash()
    assert write(store, spec(1), LARGE, 2) == large
    assert write(store, spec(1), LARGE, 3) != small
    assert write(store, spec(1), b"another") == small
    assert write(store, spec(1), b"small", 1) not in (small, large)
    assert read(store, spec(1)) == b"another"
    assert [read(store, spec(1), map_id) for map_id in (1, 2, 3)] == [b"small", LARGE, LARGE]


def test_what_a_small_file_held_before_does_not_show(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(recycle=1 << 23))
    inode = write(store, spec(0), bytes(5000))
    store.remove_shuffle(spec(0).id)
    assert write(store, spec(1), b"short") == inode
    assert read(store, spec(1)) == b"short"
    assert [d.totals.bytes for d in Store(tmp_path).recover()] == [len(b"short")]


def test_what_is_neither_small_nor_large_is_not_worth_it(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(recycle=1 << 23))
    write(store, spec(0), bytes(SMALL_BYTES + 1))
    write(store, spec(0), bytes(LARGE_BYTES - 1000), 1)
    small = write(store, spec(0), bytes(SMALL_BYTES - 1000), 2)
    store.remove_shuffle(spec(0).id)
    store.empty_trash()
    assert [path.stat().st_ino for path in files(tmp_path)] == [small]


def test_small_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_pool, "MOST_SMALL", 3)
    store = Store(tmp_path, options=StoreOptions(recycle=1 << 23))
    written = {write(store, spec(0), b"small", map_id) for map_id in range(5)}
    write(store, spec(0), LARGE, 5)
    store.remove_shuffle(spec(0).id)
    store.empty_trash()
    kept = sorted((path.stat() for path in files(tmp_path)), key=lambda status: status.st_size)
    assert len(kept) == 4
    assert {status.st_ino for status in kept[:3]} < written
    for map_id in range(3):
        assert write(store, spec(1), b"small", map_id) in written
    store.remove_shuffle(spec(1).id)
    store.empty_trash()
    assert len(files(tmp_path)) == 4  # those that were taken had made room


def test_files_that_somebody_has_cleared_away_are_not_missed(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(recycle=1 << 23))
    for map_id, payload in enumerate((b"one", b"two", LARGE)):
        write(store, spec(0), payload, map_id)
    store.remove_shuffle(spec(0).id)
    shutil.rmtree(tmp_path / "spares")
    for map_id, payload in enumerate((b"three", LARGE)):
        write(store, spec(1), payload, map_id)
        assert read(store, spec(1), map_id) == payload


def test_another_application_never_gets_it(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(recycle=1 << 23))
    inode = write(store, spec(0), LARGE)
    store.remove_shuffle(spec(0).id)
    assert write(store, spec(0, app="other"), LARGE) != inode


def test_a_file_that_is_being_read_is_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(recycle=1 << 23))
    inode = write(store, spec(0), LARGE)
    file, fd = store.open_output(spec(0).id, MapAttempt(0, 0))
    store.remove_shuffle(spec(0).id)
    assert write(store, spec(1), bytes(1 << 20)) != inode
    assert os.pread(fd, len(LARGE), int(file.index["offset"][0])) == LARGE
    os.close(fd)


def test_a_crash_in_the_middle_of_writing_over_leaves_nothing_visible(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(recycle=1 << 23))
    write(store, spec(0), 2 * LARGE)
    store.remove_shuffle(spec(0).id)
    store.add_shuffle(spec(1).id)
    writer = store.stage(spec(1), MapAttempt(0, 0), "none")
    # the old trailer is still at the end of the file
    writer.append(writer.new_fencing_token(), batch([block(0, LARGE)]))
    again = Store(tmp_path)
    assert list(again.recover()) == []
    assert files(tmp_path) == []


def test_the_budget_is_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(recycle=5 << 20))
    for map_id in range(4):
        write(store, spec(0), bytes(2 << 20), map_id)
    store.remove_shuffle(spec(0).id)
    store.empty_trash()
    kept = files(tmp_path)
    assert len(kept) == 2
    assert sum(path.stat().st_size for path in kept) <= 5 << 20


def test_they_go_with_the_application_and_with_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(recycle=1 << 23))
    for app in ("a", "b"):
        write(store, spec(0, app), LARGE)
        store.remove_shuffle(spec(0, app).id)
    store.remove_app("a")
    store.empty_trash()
    assert [path.parent.name for path in files(tmp_path)] == ["b"]
    store.close()
    assert files(tmp_path) == []


def test_a_full_disk_takes_them_back(tmp_path: Path) -> None:
    with mounted_tmpfs(tmp_path / "small", 4 << 20) as root:
        store = Store(root, options=StoreOptions(recycle=1 << 30))
        for map_id in range(2):
            write(store, spec(0), bytes(1 << 20), map_id)
        store.remove_shuffle(spec(0).id)
        fill(root)
        data = os.urandom(1 << 20) + os.urandom(1 << 19)  # more than a spare file holds, less than both
        write(store, spec(1), data)
        assert read(store, spec(1)) == data
