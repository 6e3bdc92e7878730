"""The store of a worker, without a network."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from shuffle_api.clock import Silence
from shuffle_api.errors import AttemptSuperseded, InvalidArgument, MapOutputLost, StorageFailed, UnknownShuffle
from shuffle_api.ids import MapAttempt
from shuffle_server.store.directories import lock_directory
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.store import Store
from tests.shuffle_server.helpers import SPEC, batch, block


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    store.add_shuffle(SPEC.id)
    return store


def commit(store: Store, output: MapAttempt, *payloads: bytes) -> bool:
    writer = store.stage(SPEC, output, "none")
    fencing_token = writer.new_fencing_token()
    writer.append(fencing_token, batch([block(i, p) for i, p in enumerate(payloads)]))
    return store.publish(writer, fencing_token) is not None


def files(store_root: Path) -> list[str]:
    return sorted(p.name for p in store_root.rglob("*") if p.is_file())


def test_nothing_is_visible_before_publish(store: Store, tmp_path: Path) -> None:
    output = MapAttempt(0, 0)
    writer = store.stage(SPEC, output, "none")
    writer.append(writer.new_fencing_token(), batch([block(0, b"x")]))
    with pytest.raises(MapOutputLost):
        store.open_output(SPEC.id, output)
    assert files(tmp_path) == ["0.0.0.partial"]
    store.close()


def test_first_attempt_to_publish_wins_and_the_other_leaves_nothing(store: Store, tmp_path: Path) -> None:
    assert commit(store, MapAttempt(0, 0), b"first")
    assert not commit(store, MapAttempt(0, 1), b"second")
    file, fd = store.open_output(SPEC.id, MapAttempt(0, 0))
    assert os.pread(fd, 5, int(file.index["offset"][0])) == b"first"
    os.close(fd)
    with pytest.raises(MapOutputLost, match="holds attempt 0"):
        store.open_output(SPEC.id, MapAttempt(0, 1))
    assert files(tmp_path) == ["0.0.out"]


def test_a_stream_that_was_taken_over_can_neither_append_nor_publish(store: Store) -> None:
    writer = store.stage(SPEC, MapAttempt(0, 0), "none")
    old, new = writer.new_fencing_token(), writer.new_fencing_token()
    writer.append(new, batch([block(0, b"x")]))
    with pytest.raises(AttemptSuperseded):
        writer.append(old, batch([block(0, b"x")]))
    with pytest.raises(AttemptSuperseded):
        store.publish(writer, old)
    assert store.publish(writer, new) is not None


def test_another_codec_for_the_same_attempt_is_refused(store: Store) -> None:
    store.stage(SPEC, MapAttempt(0, 0), "none")
    with pytest.raises(InvalidArgument, match="'lz4'"):
        store.stage(SPEC, MapAttempt(0, 0), "lz4")
    store.close()


def test_recovery_keeps_committed_drops_partial_and_sets_torn_files_aside(store: Store, tmp_path: Path) -> None:
    commit(store, MapAttempt(0, 0), b"kept")
    commit(store, MapAttempt(1, 0), b"torn")
    store.stage(SPEC, MapAttempt(2, 0), "none").close()
    torn = tmp_path / "apps/app/3.0/1.0.out"
    os.truncate(torn, torn.stat().st_size - 3)
    recovered = list(Store(tmp_path).recover())
    assert [d.output for d in recovered] == [MapAttempt(0, 0)]
    assert files(tmp_path) == ["0.0.out", "1.0.torn"]


def test_a_crash_between_publishing_and_dropping_the_partial_name_is_harmless(store: Store, tmp_path: Path) -> None:
    commit(store, MapAttempt(0, 0), b"kept")
    os.link(tmp_path / "apps/app/3.0/0.0.out", tmp_path / "apps/app/3.0/0.0.7.partial")
    assert [d.output for d in Store(tmp_path).recover()] == [MapAttempt(0, 0)]
    assert files(tmp_path) == ["0.0.out"]


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_recovered_is_on_the_disk_before_the_registry_takes_it(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    commit(store, MapAttempt(0, 0), b"named, and then the process was killed")
    commit(store, MapAttempt(1, 0), b"x")
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    recovering = Store(tmp_path, options=StoreOptions(sync=durable)).recover()
    synced.clear()
    next(recovering)
    names = [str(tmp_path / path) for path in ("apps", "apps/app", "apps/app/3.0")]
    assert synced == (names if durable else [])
    next(recovering)
    assert len(synced) == len(names) * durable  # once for a shuffle


def test_a_deleted_file_is_lost_even_when_its_index_was_cached(store: Store, tmp_path: Path) -> None:
    commit(store, MapAttempt(0, 0), b"x")
    os.close(store.open_output(SPEC.id, MapAttempt(0, 0))[1])
    (tmp_path / "apps/app/3.0/0.0.out").unlink()
    with pytest.raises(MapOutputLost, match="No such file"):
        store.open_output(SPEC.id, MapAttempt(0, 0))


def test_removed_shuffle_is_gone_at_once_and_its_writers_are_refused(store: Store, tmp_path: Path) -> None:
    commit(store, MapAttempt(0, 0), b"x")
    writer = store.stage(SPEC, MapAttempt(1, 0), "none")
    fencing_token = writer.new_fencing_token()
    store.remove_shuffle(SPEC.id)
    with pytest.raises(AttemptSuperseded):
        writer.append(fencing_token, batch([block(0, b"late")]))
    with pytest.raises(UnknownShuffle):
        store.stage(SPEC, MapAttempt(2, 0), "none")
    store.empty_trash()
    assert files(tmp_path) == []
    store.remove_shuffle(SPEC.id)


def test_a_file_that_a_killed_worker_left_in_the_trash_is_deleted(store: Store, tmp_path: Path) -> None:
    (tmp_path / "trash").mkdir(exist_ok=True)
    (tmp_path / "trash" / "of a region").touch()
    store.empty_trash()
    assert files(tmp_path) == []


def test_idle_attempts_are_dropped(store: Store, tmp_path: Path) -> None:
    store.stage(SPEC, MapAttempt(0, 0), "none")
    store.drop_idle(3600)
    assert store.has_attempt(SPEC.id, MapAttempt(0, 0))
    store.drop_idle(-1)
    assert not store.has_attempt(SPEC.id, MapAttempt(0, 0))
    assert files(tmp_path) == []


def test_a_file_that_another_process_writes_is_idle_by_looks_at_it_and_not_by_its_age(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("shuffle_server.store.attempt_writer.Silence", partial(Silence, source=lambda: now))
    path = store.stage(SPEC, MapAttempt(0, 0), "none").create_file()
    for modified in range(3):  # long before the wall clock was set
        os.utime(path, (modified, modified))
        now += 1000.0
        store.drop_idle(30)
    kept = []
    for _ in range(4):
        now += 1000.0  # the worker stood still
        store.drop_idle(30)
        kept.append(store.has_attempt(SPEC.id, MapAttempt(0, 0)))
    assert kept == [True, True, True, False]


def test_a_data_directory_has_one_server(tmp_path: Path) -> None:
    fd = lock_directory(tmp_path)
    with pytest.raises(StorageFailed, match="another server"):
        lock_directory(tmp_path)
    os.close(fd)
    os.close(lock_directory(tmp_path))


def test_a_data_directory_that_is_made_is_for_its_owner_only(tmp_path: Path) -> None:
    os.close(lock_directory(tmp_path / "data"))
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_a_data_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed, match="file/data"):
        lock_directory(tmp_path / "file" / "data")
