"""What goes wrong at one place of the store harms nothing else: other outputs, committed ones, later attempts."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from shuffle_api.errors import (
    AttemptSuperseded,
    DeadlineExceeded,
    InvalidArgument,
    MapOutputLost,
    Overloaded,
    QuotaExceeded,
    StorageFailed,
    UnknownShuffle,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo
from shuffle_server.observe.instruments import Instruments
from shuffle_server.store.attempt_writer import AttemptWriter
from shuffle_server.store.catalog import Catalog, CatalogEntry
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.failures import gone
from shuffle_server.store.file_pool import FilePool
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.scrub import Pace, check_all, check_one
from shuffle_server.store.store import Store
from shuffle_server.worker.recovery import _keep
from shuffle_server.worker.runtime import MaintenanceTasks
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.blocks import table_rows
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import SPEC, batch, block

OUTPUT = MapAttempt(0, 0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    store.add_shuffle(SPEC.id)
    yield store
    store.close()


def stage(store: Store, output: MapAttempt = OUTPUT, payload: bytes = b"payload") -> tuple[AttemptWriter, int]:
    writer = store.stage(SPEC, output, "none")
    turn = writer.new_fencing_token()
    writer.append(turn, batch([block(0, payload)]))
    return writer, turn


def commit(store: Store, output: MapAttempt = OUTPUT, payload: bytes = b"payload") -> None:
    assert store.publish(*stage(store, output, payload)) is not None


def read(store: Store, output: MapAttempt = OUTPUT) -> bytes:
    file, fd = store.open_output(SPEC.id, output)
    with open(fd, "rb") as opened:
        return os.pread(opened.fileno(), int(file.index["length"][0]), int(file.index["offset"][0]))


def test_no_file_is_lent_below_a_stream(store: Store) -> None:
    waiting = store.stage(SPEC, MapAttempt(1, 0), "none")
    waiting.new_fencing_token()  # its first batch is still under way
    for writer in (waiting, stage(store)[0]):
        with pytest.raises(InvalidArgument, match="a stream writes"):
            writer.create_file()


def test_file_of_another_shuffle_under_this_name_is_not_served(store: Store, tmp_path: Path) -> None:
    commit(store)
    app = tmp_path / "apps" / "app"
    shutil.copytree(app / "3.0", app / "4.0")
    shutil.copy(app / "3.0" / "0.0.out", app / "3.0" / "7.0.out")
    again = Store(tmp_path)
    assert [(d.shuffle_id, d.output) for d in again.recover()] == [(SPEC.id, OUTPUT)]
    assert sorted(path.name for path in app.rglob("*.torn")) == ["0.0.torn", "7.0.torn"]


def test_file_that_was_exchanged_is_not_served(tmp_path: Path) -> None:
    other = replace(SPEC, id=ShuffleId("app", 4))
    store = Store(tmp_path)
    for spec in (SPEC, other):
        store.add_shuffle(spec.id)
        writer = store.stage(spec, OUTPUT, "none")
        assert store.publish(writer, writer.new_fencing_token()) is not None
    (tmp_path / "apps/app/4.0/0.0.out").replace(tmp_path / "apps/app/3.0/0.0.out")
    with pytest.raises(MapOutputLost, match="it holds"):
        store.open_output(SPEC.id, OUTPUT)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK, errno.EINTR])
def test_want_of_descriptors_or_memory_says_nothing_about_a_file(
    store: Store, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store)

    def short(path: Any, *_: Any) -> int:
        raise OSError(number, os.strerror(number), str(path))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", short)
        with pytest.raises(Overloaded):
            store.open_output(SPEC.id, OUTPUT)
        with pytest.raises(Overloaded):
            store.describe(SPEC.id, OUTPUT.map)
        with pytest.raises(Overloaded):
            check_one(store, SPEC.id, OUTPUT)  # what ReportLost asks
        with pytest.raises(Overloaded):
            list(check_all(store, None, Pace(0)))
    assert read(store) == b"payload"
    assert check_one(store, SPEC.id, OUTPUT) == ""


class Registry:
    """A coordinator with one shuffle, which records commits."""

    def __init__(self) -> None:
        self.known = True

    def opening(self, shuffle: ShuffleId, map_id: int) -> tuple[ShuffleSpec, MapOutput | None]:
        return SPEC, None

    def spec(self, shuffle: ShuffleId) -> ShuffleSpec:
        if not self.known:
            raise gone(shuffle)
        return SPEC

    def winner(self, shuffle: ShuffleId, map_id: int) -> MapOutput | None:
        return None

    def commit(self, shuffle: ShuffleId, output: MapOutput) -> MapOutput:
        return output


@pytest.fixture
def worker(store: Store) -> Worker:
    registry = cast(Any, Registry())
    return Worker(WorkerInfo("w", "localhost", 1), store, registry, BufferPool(1 << 20), Instruments())


def command() -> pb.PutCommand:
    return pb.PutCommand(
        protocol=1, shuffle=messages.key_of(SPEC.id), output=pb.MapAttempt(), partitions=SPEC.partitions, codec="none"
    )


def fail_once(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, number: int = errno.EIO) -> None:
    """The next call of a function fails as a disk does."""
    real = getattr(owner, name)

    def failing(*arguments: Any, **keywords: Any) -> Any:
        monkeypatch.setattr(owner, name, real)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(owner, name, failing)


def test_commit_whose_sync_failed_does_not_succeed_when_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path, options=StoreOptions(sync=True))
    store.add_shuffle(SPEC.id)
    writer, turn = stage(store)
    fail_once(monkeypatch, os, "fdatasync")
    with pytest.raises(StorageFailed):
        store.publish(writer, turn)
    with pytest.raises(AttemptSuperseded):
        store.publish(writer, writer.new_fencing_token())
    assert store.statistics().staged_outputs == 0
    store.look()

    writer, turn = stage(store, MapAttempt(0, 1))
    fail_once(monkeypatch, os, "fsync")  # of the directory, once the name is there
    with pytest.raises(StorageFailed):
        store.publish(writer, turn)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    store.look()
    commit(store, MapAttempt(0, 2))


def test_an_attempt_that_is_refused_is_not_there_after_a_restart_and_one_that_may_be_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path, options=StoreOptions(sync=True))
    store.add_shuffle(SPEC.id)
    writer, turn = stage(store)
    for name in ("fsync", "unlink"):  # the directory becomes read-only once the attempt has its name
        fail_once(monkeypatch, os, name, errno.EROFS)
    with pytest.raises(DeadlineExceeded, match="may be committed when this worker starts again"):
        store.publish(writer, turn)
    assert not store.catalog.holds(SPEC.id, OUTPUT)
    assert [d.output for d in Store(tmp_path).recover()] == [OUTPUT]


def test_a_removal_says_whether_the_file_is_gone(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(store)
    commit(store, MapAttempt(1, 0))
    assert store.remove_output(SPEC.id, OUTPUT, 60.0)
    fail_once(monkeypatch, os, "unlink", errno.EROFS)
    assert not store.remove_output(SPEC.id, MapAttempt(1, 0), 0.2)
    assert [path.name for path in tmp_path.rglob("*.out")] == ["1.0.out"]


def test_partial_that_cannot_be_deleted_gives_up_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store)
    stage(store, MapAttempt(1, 0))
    fail_once(monkeypatch, os, "unlink")
    assert [d.output for d in Store(tmp_path).recover()] == [OUTPUT]


def test_torn_file_that_cannot_be_set_aside_gives_up_no_other(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for map_id in range(2):
        commit(store, MapAttempt(map_id, 0))
    os.truncate(tmp_path / "apps/app/3.0/0.0.out", 3)
    fail_once(monkeypatch, Path, "rename")
    assert [d.output for d in Store(tmp_path).recover()] == [MapAttempt(1, 0)]


def test_directory_that_cannot_be_listed_is_not_taken_for_empty(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store)
    again = Store(tmp_path)
    monkeypatch.setattr(Store, "empty_trash", lambda _: None)
    fail_once(monkeypatch, os, "scandir")
    with pytest.raises(StorageFailed, match=f"{tmp_path} cannot be listed"):
        list(again.recover())


def test_start_does_not_drop_what_the_registry_could_not_record(store: Store) -> None:
    commit(store)
    outputs = [MapOutput(OUTPUT, "w", Totals())]
    with pytest.raises(StorageFailed):
        _keep(store, SPEC.id, outputs, [StorageFailed("the log")])
    assert read(store) == b"payload"


def test_housekeeping_survives_an_unexpected_error() -> None:
    again = threading.Event()

    class Part:
        role: ClassVar[str] = "test"
        rounds = 0

        def maintain(self) -> None:
            self.rounds += 1
            if self.rounds == 1:
                raise RuntimeError("Set changed size during iteration")
            again.set()

    housekeeper = MaintenanceTasks(0.01, Part())
    try:
        assert again.wait(30)
    finally:
        housekeeper.stop()


def test_shuffles_are_forgotten_while_others_are_published(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.begin()
    *shuffles, late = [ShuffleId("app", number) for number in range(4)]
    for shuffle in shuffles:
        directory.make(shuffle)
        directory._sync_names(shuffle)
    directory.make(late)
    adding = threading.Thread(target=directory._sync_names, args=(late,))

    def removed() -> Iterator[ShuffleId]:
        adding.start()
        adding.join(0.5)  # it ends after us
        yield shuffles[0]

    directory.forget(removed())
    adding.join(30)
    assert late in directory._synced


def test_removed_output_does_not_take_the_next_attempts_file_along(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(store)
    writer, turn = stage(store, MapAttempt(0, 1), b"next")
    publishing = threading.Thread(target=store.publish, args=(writer, turn))
    real = os.unlink

    def unlink(path: str) -> None:
        if str(path).endswith(".out") and not publishing.ident:
            publishing.start()
            publishing.join(0.5)  # it waits for us
        real(path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", unlink)
        store.remove_output(SPEC.id, OUTPUT)
        publishing.join(30)
    assert read(store, MapAttempt(0, 1)) == b"next"


def test_statement_said_twice_commits_once(store: Store, worker: Worker) -> None:
    writer = store.stage(SPEC, OUTPUT, "none")
    writer.create_file().write_bytes(b"payload")
    rows = table_rows([block(0, b"payload")])
    first = writer.new_fencing_token()
    writer.finalize(first, rows)
    second = writer.new_fencing_token()
    writer.finalize(second, rows)
    with pytest.raises(AttemptSuperseded):
        worker.commit(writer, first)
    committed = worker.commit(writer, second)
    assert worker.commit(writer, first) == committed
    assert read(store) == b"payload"


def test_disk_that_only_takes_what_stays_in_memory_is_not_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_once(monkeypatch, os, "write")
    store.look()
    assert store.statistics().disks[0].out
    fail_once(monkeypatch, os, "fsync")
    store.look()
    assert store.statistics().disks[0].out
    store.look()
    assert not store.statistics().disks[0].out


def test_claim_that_is_being_published_is_not_dropped(tmp_path: Path) -> None:
    catalog = Catalog()
    catalog.add(SPEC.id)
    assert catalog.claim(SPEC.id, CatalogEntry(OUTPUT, DataDirectory(tmp_path), 7))
    assert catalog.retire(SPEC.id, OUTPUT) is None
    assert catalog.settle(SPEC.id, OUTPUT, published=True)


def test_attempt_dropped_while_it_is_published_still_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path, options=StoreOptions(app_max_bytes=10))
    store.add_shuffle(SPEC.id)
    writer, turn = stage(store)
    real = DataDirectory.publish

    def publish(*arguments: Any, **keywords: Any) -> None:
        real(*arguments, **keywords)
        store.drop_attempt(SPEC.id, OUTPUT)

    monkeypatch.setattr(DataDirectory, "publish", publish)
    assert store.publish(writer, turn) is not None
    with pytest.raises(QuotaExceeded):
        stage(store, MapAttempt(1, 0))
    store.close()


def test_partial_that_could_not_be_deleted_goes_when_its_directory_is_back(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(store)
    stage(store, MapAttempt(1, 0))
    fail_once(monkeypatch, os, "unlink")
    store.drop_attempt(SPEC.id, OUTPUT)
    assert store.statistics().disks[0].out
    store.look()
    assert [path.name for path in tmp_path.rglob("*.partial")] == ["1.0.1.partial"]


def test_spare_file_that_cannot_be_kept_takes_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file_pool, file = FilePool(tmp_path / "spares", 100), tmp_path / "file"
    file.write_bytes(bytes(80))
    fail_once(monkeypatch, os, "rename")
    with pytest.raises(OSError, match="error"):
        file_pool.keep("app", str(file), 80)
    assert file_pool.bytes == 0
    assert file_pool.keep("app", str(file), 80)


def test_removal_frees_a_full_disk_at_once(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (tmp_path / "trash").is_dir()
    commit(store)
    fail_once(monkeypatch, Path, "rename", errno.ENOSPC)
    store.remove_shuffle(SPEC.id)
    assert not (tmp_path / "apps/app").exists()


def test_push_that_races_with_unregister_does_not_bring_the_shuffle_back(store: Store, worker: Worker) -> None:
    cast(Registry, worker._registry).known = False
    with pytest.raises(UnknownShuffle):
        worker.open_attempt(command())
    assert SPEC.id not in store.catalog
