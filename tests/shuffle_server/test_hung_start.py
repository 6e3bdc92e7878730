"""Servers that start while a disk hangs: without a further directory until it is back, never without the first."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from shuffle_api.errors import MapOutputLost, Overloaded, StorageFailed
from shuffle_api.ids import MapAttempt
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.options import ServerOptions
from shuffle_server.server import MasterServer
from shuffle_server.store import recovery
from shuffle_server.store.catalog import CatalogEntry
from shuffle_server.store.directories import Claims
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.object_store import ObjectStore
from shuffle_server.store.store import Store
from tests.hung_disk import hang_below
from tests.shuffle_server.helpers import SPEC, batch, block, mounted_tmpfs, read_all, write_map
from tests.shuffle_server.test_hung_disk import DEADLINE, LIMIT, HungServer, command_of, eventually, outputs_in

Restart = Callable[[], HungServer]


@pytest.fixture(params=["server", "worker"])
def restarting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restart]:
    """Starts a server, or a worker of a master elsewhere, and each time after that again at the same address."""
    running: list[HungServer] = []
    with ExitStack() as undo:
        undo.enter_context(mounted_tmpfs(tmp_path / "first", 64 << 20))  # with less room: outputs go to the second
        master = ""
        if request.param == "worker":
            elsewhere = MasterServer(ServerOptions(data_dir=str(tmp_path / "master"), listen="127.0.0.1:0"))
            undo.callback(elsewhere.stop)
            master = elsewhere.control_address

        def start() -> HungServer:
            listen = "127.0.0.1:0"
            if running:
                assert running[-1].stop() == 0
                listen = running[-1].listens
            running.append(HungServer(tmp_path, "second", master, listen))
            undo.callback(running[-1].close)
            return running[-1]

        yield start


@pytest.fixture
def patient(restarting: Restart) -> Iterator[tuple[HungServer, RemoteShuffle]]:
    server = restarting()
    with server.plugin(retry=DEADLINE) as plugin:
        yield server, plugin


def test_a_start_goes_on_without_a_further_directory_that_hangs_and_its_outputs_come_back_with_it(
    restarting: Restart, patient: tuple[HungServer, RemoteShuffle]
) -> None:
    server, plugin = patient
    with plugin.master("live") as master:
        handle = master.register_shuffle(4, 8)
        written = sorted(record for map_id in range(8) for record in write_map(plugin, handle, map_id))
        assert len(outputs_in(server.second)) == 8
        server.hang()
        server = restarting()
        first, second = server.out()
        assert not first  # and others serve
        assert "has not returned" in second
        other = master.register_shuffle(2, 4)
        elsewhere = sorted(record for map_id in range(4) for record in write_map(plugin, other, map_id))
        assert read_all(plugin, other) == elsewhere
        server.go_on()
        eventually(lambda: not any(server.out()), "it is back")
        assert read_all(plugin, handle) == written  # none of them was lost
        assert read_all(plugin, other) == elsewhere
        server = restarting()
        assert read_all(plugin, handle) == written


def test_outputs_that_were_asked_for_meanwhile_are_written_again_and_the_former_ones_go(
    restarting: Restart, patient: tuple[HungServer, RemoteShuffle]
) -> None:
    server, plugin = patient
    with plugin.master("live") as master:
        handle = master.register_shuffle(4, 4)
        written = {map_id: write_map(plugin, handle, map_id) for map_id in range(4)}
        server.hang()
        server = restarting()
        for map_id in (0, 1):
            with pytest.raises(MapOutputLost, match="directory that is out"):
                read_all(plugin, handle, range(map_id, map_id + 1))
            written[map_id] = write_map(plugin, handle, map_id, attempt=1)
        server.go_on()
        eventually(lambda: not any(server.out()), "it is back")
        eventually(lambda: len(outputs_in(server.second)) == 2, "the lost ones are deleted")
        assert read_all(plugin, handle) == sorted(record for records in written.values() for record in records)


@pytest.mark.parametrize("role", ["server", "master", "worker"])
def test_a_start_with_a_first_directory_that_hangs_ends_and_says_why(role: str, tmp_path: Path) -> None:
    (tmp_path / "flag").touch()
    command = command_of(tmp_path, "first", role, *(("--master", "127.0.0.1:1") if role == "worker" else ()))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    said = f"data directory {tmp_path / 'first'}, its lock: a call to the file system has not returned for"
    assert said in ended.stderr
    assert f"--disk-timeout ({LIMIT:g} s). To do: see to this disk" in ended.stderr


def test_a_start_with_a_journal_that_hangs_ends_and_says_why(tmp_path: Path) -> None:
    MasterServer(ServerOptions(data_dir=str(tmp_path / "first"), listen="127.0.0.1:0")).stop()
    (tmp_path / "flag").touch()
    [journal] = (tmp_path / "first" / "master").glob("log-*")
    command = command_of(tmp_path, str(journal.relative_to(tmp_path)), "master", "--listen", "127.0.0.1:0")
    ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert ended.returncode == 1
    assert f"data directory {tmp_path / 'first'}, the registry's journal: a call to the file system" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_start_that_waits_for_a_disk_and_says_so(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "flag").touch()
    command = command_of(tmp_path, "first", "server", "--listen", "127.0.0.1:0", limit=10 * DEADLINE)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as starting:
        assert starting.stderr is not None
        assert f"waits for data directory {tmp_path / 'first'}, its lock" in starting.stderr.readline()
        starting.send_signal(number)
        out, _ = starting.communicate(timeout=DEADLINE)
    assert (starting.returncode, out) == (0, "")


# ------------------------------------------------------------------------------------------ the parts


@pytest.fixture
def claims(tmp_path: Path) -> Iterator[Claims]:
    claims = Claims([tmp_path / "first", tmp_path / "second"], 0.2)
    yield claims
    claims.close()


def stored(claims: Claims, tier: ObjectStore | None = None) -> Store:
    claims.identify()
    return Store(*(disk.root / "worker" for disk in claims.disks), claims=claims, tier=tier)


def published(store: Store, output: MapAttempt) -> None:
    store.add_shuffle(SPEC.id)
    writer = store.stage(SPEC, output, "none")
    writer.append(turn := writer.new_fencing_token(), batch([block(0, b"an output")]))
    assert store.publish(writer, turn) is not None


def test_an_output_that_may_be_in_a_directory_is_lost_if_that_is_out_and_not_while_it_is_being_recovered(
    claims: Claims, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def want_of_descriptors(*_: object, **__: object) -> None:
        raise Overloaded("Too many open files")

    flag, asked = tmp_path / "flag", (SPEC.id, MapAttempt(0, 0))
    with hang_below(tmp_path / "second", flag):
        flag.touch()
        claims.lock()
        store = stored(claims)
        store.add_shuffle(SPEC.id)
        assert list(store.recover()) == []
        with pytest.raises(MapOutputLost, match=f"{tmp_path / 'second'}.*has not returned"):
            store.open_output(*asked)
        with monkeypatch.context() as patch:
            patch.setattr(recovery, "recover_directory", want_of_descriptors)
            flag.unlink()
            eventually(lambda: not store.statistics().disks[1].out.startswith("a call"), "it answers")
            with pytest.raises(Overloaded, match="is being recovered"):
                store.open_output(*asked)
        store.start()
        store.maintain(600.0, DEADLINE)
        eventually(lambda: store.recovery.complete, "it is recovered")
        with pytest.raises(MapOutputLost, match="it is not here"):
            store.open_output(*asked)
    store.close()


def test_a_directory_that_is_another_workers_when_it_answers_stays_out_and_nothing_in_it_is_deleted(
    claims: Claims, tmp_path: Path
) -> None:
    flag, removed = tmp_path / "flag", tmp_path / "second/worker/apps/app/3.0/0.0.out"
    removed.parent.mkdir(parents=True)
    removed.write_text("an output")
    (tmp_path / "second/belongs-to").write_text("w-another")
    with hang_below(tmp_path / "second", flag):
        flag.touch()
        claims.lock()
        store = stored(claims)
        list(store.recover())
        store.start()
        store.remove_app("app")
        flag.unlink()
        eventually(lambda: "belongs to worker w-another" in store.statistics().disks[1].out, "it is refused")
    store.maintain(600.0, DEADLINE)
    store.look()
    store.close()
    assert removed.read_text() == "an output"
    assert not store.recovery.complete


def test_objects_of_outputs_in_a_directory_that_hangs_stay_in_the_object_store(claims: Claims, tmp_path: Path) -> None:
    flag, output, second = tmp_path / "flag", MapAttempt(0, 0), tmp_path / "second"
    (tmp_path / "tier").mkdir()
    tier = ObjectStore(f"file://{tmp_path / 'tier'}", "w-1")
    former = Store(second / "worker", tier=tier)
    list(former.recover())
    published(former, output)
    assert former.evict_cold(0) == 1
    former.close()
    (tmp_path / "first").mkdir()
    (tmp_path / "first/worker-id").write_text("w-1")
    (second / "belongs-to").write_text("w-1")
    with hang_below(second, flag):
        flag.touch()
        claims.lock()
        store = stored(claims, tier)
        assert list(store.recover()) == []
        store.evict_cold(0)  # deletes objects without outputs
        assert tier.objects() == [(SPEC.id, output)]
        flag.unlink()
        eventually(lambda: store.recovery.complete, "it is back")
    assert [each.output for each in store.recovery.take(lambda _: True)] == [output]
    os.close(store.open_output(SPEC.id, output)[1])
    store.close()


def test_what_is_found_late_is_behind_the_attempt_that_was_written_meanwhile(tmp_path: Path) -> None:
    store = Store(tmp_path)
    published(store, MapAttempt(0, 1))
    former = CatalogEntry(MapAttempt(0, 0), DataDirectory(tmp_path / "late"), 3)
    assert store.catalog.put(SPEC.id, former)
    held = store.catalog.find(SPEC.id, 0)
    assert held is not None
    assert held.output == MapAttempt(0, 1)
    assert store.catalog.holds(SPEC.id, MapAttempt(0, 0))
    assert store.catalog.retire(SPEC.id, MapAttempt(0, 0)) == former
    store.close()


def test_a_directory_named_twice_is_refused_by_its_lock(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    claims = Claims([tmp_path / "data", tmp_path / "link"], DEADLINE)
    with pytest.raises(StorageFailed, match="in use by another server.*and none twice"):
        claims.lock()
    claims.close()
