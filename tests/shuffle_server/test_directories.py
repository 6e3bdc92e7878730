"""Several data directories: the choice for an output, and directories that are full or fail."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from shuffle_api.errors import InvalidArgument, MapOutputLost, ShuffleError, StorageFailed, StorageFull
from shuffle_api.ids import MapAttempt
from shuffle_server.options import split_directories
from shuffle_server.store.calls import DISK_SECONDS
from shuffle_server.store.directories import Claims, lock_directory
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.paths import StorePaths
from shuffle_server.store.store import Store
from tests.shuffle_server.helpers import SPEC, batch, block, fill, mounted_tmpfs

MIB = 1 << 20


def write(store: Store, map_id: int, payload: bytes, attempt: int = 0) -> bool:
    store.add_shuffle(SPEC.id)
    writer = store.stage(SPEC, MapAttempt(map_id, attempt), "none")
    fencing_token = writer.new_fencing_token()
    try:
        writer.append(fencing_token, batch([block(0, payload)]))
        return store.publish(writer, fencing_token) is not None
    except ShuffleError:
        store.drop_attempt(SPEC.id, writer.output)
        raise


def read(store: Store, map_id: int, attempt: int = 0) -> bytes:
    file, fd = store.open_output(SPEC.id, MapAttempt(map_id, attempt))
    with open(fd, "rb") as opened:
        opened.seek(int(file.index["offset"][0]))
        return opened.read(int(file.index["length"][0]))


@contextmanager
def disks(tmp_path: Path, *sizes: int) -> Iterator[list[Path]]:
    with ExitStack() as stack:
        yield [stack.enter_context(mounted_tmpfs(tmp_path / f"disk{i}", size)) for i, size in enumerate(sizes)]


@contextmanager
def read_only(root: Path) -> Iterator[None]:
    subprocess.run(["mount", "-o", "remount,ro", str(root)], check=True, timeout=30)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(root)], check=True, timeout=30)


def outputs_in(root: Path) -> set[str]:
    return {path.name for path in root.rglob("*.out")}


def test_outputs_go_to_the_directory_with_most_room(tmp_path: Path) -> None:
    with disks(tmp_path, 16 * MIB, 8 * MIB) as (large, small):
        store = Store(large, small)
        for map_id in range(14):
            write(store, map_id, bytes([map_id]) * MIB)
        assert len(outputs_in(large)) >= 9
        assert len(outputs_in(small)) >= 2
        assert [read(store, m) for m in range(14)] == [bytes([m]) * MIB for m in range(14)]


def test_writers_at_the_same_time_are_spread(tmp_path: Path) -> None:
    with disks(tmp_path, 16 * MIB, 16 * MIB) as roots:
        store = Store(*roots)
        store.add_shuffle(SPEC.id)
        homes = [store.stage(SPEC, MapAttempt(m, 0), "none").home.root for m in range(4)]
        assert sorted(homes) == sorted([*roots, *roots])
        store.close()


def test_the_first_attempt_wins_although_another_lies_in_another_directory(tmp_path: Path) -> None:
    with disks(tmp_path, 8 * MIB, 8 * MIB) as roots:
        store = Store(*roots)
        store.add_shuffle(SPEC.id)
        first, second = (store.stage(SPEC, MapAttempt(0, attempt), "none") for attempt in (0, 1))
        assert first.home is not second.home
        turns = [writer.new_fencing_token() for writer in (first, second)]
        second.append(turns[1], batch([block(0, b"second")]))
        first.append(turns[0], batch([block(0, b"first")]))
        assert store.publish(second, turns[1]) is not None
        assert store.publish(first, turns[0]) is None
        assert read(store, 0, 1) == b"second"
        assert sorted(outputs_in(roots[0]) | outputs_in(roots[1])) == ["0.1.out"]


def test_recovery_reads_all_directories_and_names_one_that_cannot_be_listed(tmp_path: Path) -> None:
    roots = [tmp_path / "a", tmp_path / "b"]
    store = Store(*roots)
    store.add_shuffle(SPEC.id)
    writer = [store.stage(SPEC, MapAttempt(m, 0), "none") for m in range(4)]
    for map_id, output in enumerate(writer):
        fencing_token = output.new_fencing_token()
        output.append(fencing_token, batch([block(0, b"%d" % map_id)]))
        store.publish(output, fencing_token)
    assert outputs_in(roots[0])
    assert outputs_in(roots[1])
    again = Store(*roots)
    assert sorted(d.output.map for d in again.recover()) == [0, 1, 2, 3]
    assert [read(again, m) for m in range(4)] == [b"0", b"1", b"2", b"3"]
    shutil.rmtree(roots[1])
    roots[1].write_text("no directory")
    with pytest.raises(StorageFailed, match=f"{roots[1]} cannot be listed: Not a directory"):
        list(Store(*roots).recover())
    rest = Store(roots[0])
    assert {f"{d.output.map}.0.out" for d in rest.recover()} == outputs_in(roots[0])


def test_of_two_attempts_in_two_directories_recovery_keeps_the_one_that_its_listener_keeps(tmp_path: Path) -> None:
    """It happens when a directory was out, its outputs were given up, and it is back with the next start."""
    roots = [tmp_path / "a", tmp_path / "b"]
    for attempt, root in enumerate(roots):
        write(Store(root), 0, b"%d" % attempt, attempt)
    for lost, kept in ((0, 1), (1, 0)):
        shutil.copytree(roots[0], tmp_path / f"a{lost}")
        shutil.copytree(roots[1], tmp_path / f"b{lost}")
        store = Store(tmp_path / f"a{lost}", tmp_path / f"b{lost}")
        for description in store.recover():
            if description.attempt == lost:
                store.remove_output(SPEC.id, description.output)
        assert read(store, 0, kept) == b"%d" % kept
        with pytest.raises(MapOutputLost):
            store.open_output(SPEC.id, MapAttempt(0, lost))


def test_a_full_directory_is_passed_over_and_used_again_when_there_is_room(tmp_path: Path) -> None:
    with disks(tmp_path, 8 * MIB, 8 * MIB) as (full, other):
        store = Store(full, other)
        ballast = fill(full)
        write(store, 0, b"0")
        assert outputs_in(other) == {"0.0.out"}
        more = fill(other)
        with pytest.raises(StorageFull) as refused:
            write(store, 1, b"1")
        assert str(full) in str(refused.value)
        assert str(other) in str(refused.value)
        assert read(store, 0) == b"0"
        ballast.unlink()
        assert write(store, 1, b"1", attempt=1)
        assert outputs_in(full) == {"1.1.out"}
        more.unlink()


def test_the_floor_stays_free_and_the_refusal_names_the_directory(tmp_path: Path) -> None:
    with disks(tmp_path, 8 * MIB) as (disk,):
        store = Store(disk, options=StoreOptions(floor=0.5))
        assert write(store, 0, bytes(3 * MIB))
        with pytest.raises(StorageFull, match=f"{disk}: .* stay free"):
            write(store, 1, bytes(3 * MIB))
        assert shutil.disk_usage(disk).free >= 4 * MIB
        assert write(store, 1, bytes(MIB // 2), attempt=1)


def test_spare_files_give_way_before_the_floor_refuses(tmp_path: Path) -> None:
    with disks(tmp_path, 8 * MIB) as (disk,):
        store = Store(disk, options=StoreOptions(recycle=8 * MIB, floor=0.25))
        for map_id in range(4):
            write(store, map_id, bytes(MIB))
        store.remove_shuffle(SPEC.id)
        assert store.statistics().spare_bytes > 4 * MIB
        assert write(store, 0, bytes(5 * MIB))


def test_a_failing_directory_is_taken_out_is_still_read_and_comes_back(tmp_path: Path) -> None:
    with disks(tmp_path, 16 * MIB, 8 * MIB) as (failing, other):
        store = Store(failing, other)
        write(store, 0, b"kept")
        assert outputs_in(failing) == {"0.0.out"}
        with read_only(failing):
            with pytest.raises(StorageFailed, match=f"{failing}: Read-only"):
                write(store, 1, b"refused")
            assert [disk.out for disk in store.statistics().disks] == ["Read-only file system", ""]
            assert write(store, 1, b"elsewhere", attempt=1)  # the next attempt goes to the other
            assert read(store, 0) == b"kept"
            store.look()
            assert store.statistics().disks[0].out
        store.look()
        assert not store.statistics().disks[0].out
        assert write(store, 2, b"back")
        assert outputs_in(failing) == {"0.0.out", "2.0.out"}
        assert outputs_in(other) == {"1.1.out"}


def test_what_was_removed_while_its_directory_was_out_is_deleted_when_it_is_back(tmp_path: Path) -> None:
    with disks(tmp_path, 16 * MIB, 8 * MIB) as (failing, other):
        store = Store(failing, other)
        write(store, 0, b"lost")
        write(store, 1, b"kept")
        assert outputs_in(failing) == {"0.0.out", "1.0.out"}
        with read_only(failing):
            store.remove_output(SPEC.id, MapAttempt(0, 0))
            assert write(store, 0, b"again", attempt=1)
        store.look()
        assert outputs_in(failing) == {"1.0.out"}
        assert read(store, 0, 1) == b"again"
        with read_only(failing):
            store.remove_shuffle(SPEC.id)
        store.look()
        store.empty_trash()
        assert not outputs_in(failing)


def test_nothing_is_written_below_the_mount_point_of_a_disk_that_is_gone(tmp_path: Path) -> None:
    with disks(tmp_path, 16 * MIB, 8 * MIB) as (gone, other):
        store = Store(gone, other)
        write(store, 0, b"0")
        subprocess.run(["umount", str(gone)], check=True, timeout=30)
        try:
            store.look()
            with pytest.raises(MapOutputLost):
                store.open_output(SPEC.id, MapAttempt(0, 0))
            assert write(store, 1, b"1")
            assert list(gone.iterdir()) == []
        finally:
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(gone)], check=True, timeout=30)


@pytest.mark.parametrize("times", [1, 2])
def test_the_last_shuffle_of_an_application_goes_while_its_next_one_begins(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "only")
    of_app = StorePaths(tmp_path / "only").app(SPEC.id.app)
    of_app.mkdir()
    mkdir = os.mkdir
    removed: list[Path] = []

    def removed_meanwhile(path: str, mode: int) -> None:
        if Path(path).parent == of_app and len(removed) < times:  # as another thread's `remove_shuffle` does
            removed.append(of_app)
            os.rmdir(of_app)
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", removed_meanwhile)
    assert write(store, 0, b"of the next one")
    assert len(removed) == times
    assert read(store, 0) == b"of the next one"
    store.close()


def test_a_list_of_directories_is_claimed_whole_or_not_at_all(tmp_path: Path) -> None:
    held = lock_directory(tmp_path / "b")
    claims = Claims([tmp_path / "a", tmp_path / "b"], DISK_SECONDS)
    with pytest.raises(StorageFailed, match="b is in use"):
        claims.lock()
    claims.close()
    with open(lock_directory(tmp_path / "a")), open(held):
        assert split_directories("a, b") == [Path("a"), Path("b")]
    for wrong in ("a,,b", "a,a", "a,./a"):
        with pytest.raises(InvalidArgument, match="--data-dir"):
            split_directories(wrong)


def test_want_of_descriptors_takes_no_directory_out(tmp_path: Path) -> None:
    store = Store(tmp_path / "only")
    next_one = os.dup(0)
    os.close(next_one)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_one, limits[1]))
    try:
        store.look()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert write(store, 0, b"still in use")
    store.close()
