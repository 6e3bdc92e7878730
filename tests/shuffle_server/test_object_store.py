"""Cold outputs in an object store: a real S3 API in this process, real faults at every step."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from pyarrow import fs

from bench.harness.files import files_below
from bench.harness.server import ServerProcess
from shuffle_api.errors import InvalidArgument, MapOutputLost, StorageFailed, UnknownShuffle
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.observe.instruments import Instruments
from shuffle_server.options import ServerOptions
from shuffle_server.store.directories import Claims
from shuffle_server.store.object_store import ObjectStore
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from shuffle_server.worker.fetch_handler import serve
from shuffle_server.worker.runtime import WorkerRuntime
from shuffle_transport.blocks import GET_SCHEMA
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import SPEC, batch, block, read_all, room, write_map
from tests.shuffle_server.test_directories import read

DEADLINE = 240.0
PAYLOAD = bytes(range(256)) * 100


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The URI of a bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    query = f"scheme=http&endpoint_override={host}:{port}&region=us-east-1"
    s3fs, _ = fs.FileSystem.from_uri(f"s3://key:secret@cold?{query}&allow_bucket_creation=true")
    s3fs.create_dir("cold")
    yield f"s3://key:secret@cold/deep?{query}"
    server.stop()


@pytest.fixture
def tier(s3: str, tmp_path: Path) -> ObjectStore:
    return ObjectStore(s3, tmp_path.name)


def write(store: Store, map_id: int, attempt: int = 0) -> None:
    store.add_shuffle(SPEC.id)
    writer = store.stage(SPEC, MapAttempt(map_id, attempt), "none")
    turn = writer.new_fencing_token()
    writer.append(turn, batch([block(0, b"%d" % map_id + PAYLOAD)]))
    assert store.publish(writer, turn) is not None


def files(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


def test_cold_outputs_go_are_read_again_and_go_again_without_a_second_upload(tier: ObjectStore, tmp_path: Path) -> None:
    store = Store(tmp_path, tier=tier)
    list(store.recover())
    for map_id in range(3):
        write(store, map_id)
    assert store.evict_cold(3600) == 0
    assert store.evict_cold(0) == 3
    assert files(tmp_path) == ["0.0.away", "1.0.away", "2.0.away"]
    assert len(tier.objects()) == 3
    assert read(store, 1) == b"1" + PAYLOAD
    assert files(tmp_path) == ["0.0.away", "1.0.away", "1.0.out", "2.0.away"]
    tier.remove(SPEC.id, MapAttempt(1, 0))
    assert store.evict_cold(0) == 1  # the object is thought to be there still
    assert read(store, 0) == b"0" + PAYLOAD
    with pytest.raises(MapOutputLost, match="object store"):
        read(store, 1)


def test_a_restart_knows_what_is_away_and_what_came_back(tier: ObjectStore, tmp_path: Path) -> None:
    store = Store(tmp_path, tier=tier)
    for map_id in range(3):
        write(store, map_id)
    assert store.evict_cold(0) == 3
    read(store, 1)
    again = Store(tmp_path, tier=tier)
    assert sorted(d.output.map for d in again.recover()) == [0, 1, 2]
    assert [read(again, m) for m in range(3)] == [b"%d" % m + PAYLOAD for m in range(3)]
    without = Store(tmp_path)
    assert sorted(d.output.map for d in without.recover()) == [0, 1, 2]  # all of them are back


@pytest.mark.parametrize("step", ["put", "stub", "change", "unlink"])
def test_a_crash_at_any_step_of_moving_out_loses_nothing(
    tier: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A crash is a step that does not return; a new store then opens the same disk."""
    store = Store(tmp_path, tier=tier)
    write(store, 0)

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if step == "put":
            patch.setattr(tier, "put", crash)
        elif step == "stub":
            patch.setattr("shuffle_server.store.tiering._write_stub", crash)
        elif step == "change":
            patch.setattr(store.catalog, "change", crash)
        else:
            patch.setattr(Path, "unlink", crash)
        with pytest.raises(KeyboardInterrupt):
            store.evict_cold(0)
    again = Store(tmp_path, tier=tier)
    assert [d.output for d in again.recover()] == [MapAttempt(0, 0)]
    assert read(again, 0) == b"0" + PAYLOAD
    assert again.evict_cold(0) == 1
    assert read(again, 0) == b"0" + PAYLOAD


def test_a_crash_while_one_comes_back_loses_nothing(
    tier: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path, tier=tier)
    write(store, 0)
    store.evict_cold(0)

    def crash(path: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            read(store, 0)
    again = Store(tmp_path, tier=tier)
    assert [d.output for d in again.recover()] == [MapAttempt(0, 0)]
    assert files(tmp_path) == ["0.0.away"]
    assert read(again, 0) == b"0" + PAYLOAD


def test_what_is_removed_goes_from_the_object_store_too(tier: ObjectStore, tmp_path: Path) -> None:
    store = Store(tmp_path, tier=tier)
    list(store.recover())
    for map_id in range(3):
        write(store, map_id)
    store.evict_cold(0)
    store.remove_output(SPEC.id, MapAttempt(1, 0))
    store.evict_cold(3600)
    assert sorted(output.map for _, output in tier.objects()) == [0, 2]
    store.remove_shuffle(SPEC.id)
    store.empty_trash()
    store.evict_cold(3600)
    assert tier.objects() == []
    assert files(tmp_path) == []


def test_nothing_is_swept_before_recovery_has_ended(tier: ObjectStore, tmp_path: Path) -> None:
    store = Store(tmp_path, tier=tier)
    write(store, 0)
    store.evict_cold(0)
    again = Store(tmp_path, tier=tier)
    again.evict_cold(0)
    assert len(tier.objects()) == 1
    list(again.recover())
    again.evict_cold(0)
    assert len(tier.objects()) == 1


def test_a_damaged_object_or_stub_is_a_lost_output(tier: ObjectStore, tmp_path: Path) -> None:
    store = Store(tmp_path, tier=tier)
    for map_id in range(2):
        write(store, map_id)
    store.evict_cold(0)
    (tmp_path / "short").write_bytes(b"short")
    tier.put(SPEC.id, MapAttempt(0, 0), tmp_path / "short")
    with pytest.raises(MapOutputLost, match="too short"):
        read(store, 0)
    [stub] = tmp_path.rglob("1.0.away")
    stub.write_bytes(stub.read_bytes().replace(b'"map":1', b'"map":2'))
    assert [d.output.map for d in Store(tmp_path, tier=tier).recover()] == [0]


def test_an_object_store_that_is_away_loses_nothing(tmp_path: Path) -> None:
    closed = "s3://key:secret@cold/deep?scheme=http&endpoint_override=127.0.0.1:9&region=us-east-1"
    tier = ObjectStore(closed, "w")
    store = Store(tmp_path, tier=tier)
    write(store, 0)
    assert store.evict_cold(0) == 0
    assert read(store, 0) == b"0" + PAYLOAD


def test_what_cannot_be_fetched_now_is_not_lost(
    tier: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path, tier=tier)
    write(store, 0)
    store.evict_cold(0)

    lost: list[MapOutputLost] = []

    def refuse(*_: object) -> None:
        raise StorageFailed("object store, cold: connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(tier, "get", refuse)
        with pytest.raises(StorageFailed, match="connection refused"):
            read(store, 0)
        wanted = [OutputRange(MapAttempt(0, 0), 0, 8)]
        served = serve(store, "w", GET_SCHEMA, SPEC.id, wanted, lambda _, __: None, lost.append, room())
        [first, _] = [pb.GetControl.FromString(metadata) for _, metadata in served]
        assert first.error.code == pb.STORAGE_FAILED
        assert first.error.output.map == 0
        assert not lost
    assert read(store, 0) == b"0" + PAYLOAD


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """Where a file system is mounted, or is not: then the directory is there and empty."""
    mount = tmp_path / "mount"
    mount.mkdir()
    return mount


def test_a_tier_that_is_not_mounted_loses_nothing_and_takes_nothing(mount: Path, tmp_path: Path) -> None:
    def start() -> Store:
        store = Store(tmp_path / "data", tier=ObjectStore(f"file://{mount}/deep", "w"))
        list(store.recover())
        return store

    store = start()
    write(store, 0)
    assert store.evict_cold(0) == 1
    write(store, 1)
    mount.rename(tmp_path / "unmounted")
    mount.mkdir()
    for each in (store, start()):
        with pytest.raises(StorageFailed, match="mount it"):
            read(each, 0)
        assert each.evict_cold(0) == 0
        assert files(mount) == []
        assert read(each, 1) == b"1" + PAYLOAD
    mount.rmdir()
    (tmp_path / "unmounted").rename(mount)
    assert read(store, 0) == b"0" + PAYLOAD
    assert store.evict_cold(0) == 2
    for name in ("0.0", "1.0"):
        [gone] = mount.rglob(name)
        gone.unlink()
    with pytest.raises(MapOutputLost, match="no such object"):
        read(store, 0)


def test_an_output_that_cannot_be_written_when_it_comes_back_is_not_lost(mount: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "data", tier=ObjectStore(f"file://{mount}", "w"))
    write(store, 0)
    assert store.evict_cold(0) == 1
    directory = tmp_path / "data" / "apps" / "app" / "3.0"
    directory.rename(tmp_path / "aside")
    with pytest.raises(UnknownShuffle):
        read(store, 0)
    (tmp_path / "aside").rename(directory)
    assert read(store, 0) == b"0" + PAYLOAD


def test_one_output_that_cannot_be_moved_keeps_no_other_from_moving(
    mount: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tier = ObjectStore(f"file://{mount}", "w")
    store = Store(tmp_path / "data", tier=tier)
    list(store.recover())
    for map_id in range(4):
        write(store, map_id)
    [torn] = tmp_path.rglob("0.0.out")
    torn.write_bytes(torn.read_bytes()[:-3])
    put = tier.put

    def refuse_one(shuffle: ShuffleId, output: MapAttempt, path: Path) -> None:
        if output.map == 1:
            raise StorageFailed("object store: refused")
        put(shuffle, output, path)

    monkeypatch.setattr(tier, "put", refuse_one)
    assert [store.evict_cold(0) for _ in range(3)] == [2, 0, 0]
    assert len(caplog.records) == 1
    assert "2 failures" in caplog.text
    assert [read(store, map_id) for map_id in (1, 2, 3)] == [b"%d" % map_id + PAYLOAD for map_id in (1, 2, 3)]


def test_what_others_put_into_the_tier_stays_and_stops_no_sweep(mount: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "data", tier=ObjectStore(f"file://{mount}", "w"))
    list(store.recover())
    write(store, 0)
    assert store.evict_cold(0) == 1
    odd = ["3.0/readme", "3.0/1.x", "three/1.0", f"3.0/{10**18 * 99}.0"]
    strange = [*(f"app/{name}" for name in odd), ".hidden/3.0/1.0", "readme"]
    for name in strange:
        path = mount / "w" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    store.remove_shuffle(SPEC.id)
    assert store.evict_cold(0) == 0
    assert not (mount / "w" / "app" / "3.0" / "0.0").exists()
    assert all((mount / "w" / name).exists() for name in strange)


def test_an_object_that_cannot_be_deleted_keeps_no_other(
    mount: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = ObjectStore(f"file://{mount}", "w")
    store = Store(tmp_path / "data", tier=tier)
    list(store.recover())
    for map_id in range(3):
        write(store, map_id)
    assert store.evict_cold(0) == 3
    remove = tier.remove

    def refuse_one(shuffle: ShuffleId, output: MapAttempt) -> None:
        if output.map == 0:
            raise StorageFailed("object store: refused")
        remove(shuffle, output)

    store.remove_shuffle(SPEC.id)
    with monkeypatch.context() as patch:
        patch.setattr(tier, "remove", refuse_one)
        store.evict_cold(0)
    assert tier.objects() == [(SPEC.id, MapAttempt(0, 0))]
    store.evict_cold(0)
    assert tier.objects() == []


def test_the_mover_survives_what_nobody_thought_of(
    mount: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = Claims([tmp_path], DEADLINE)
    part = WorkerRuntime(ServerOptions(data_dir=str(tmp_path), tier=f"file://{mount}"), Instruments(), claims)
    rounds = threading.Semaphore(0)

    def fail(*_: object) -> int:
        rounds.release()
        raise RuntimeError("a defect")

    monkeypatch.setattr(part.store, "evict_cold", fail)
    part._tasks.evictions.period = 0.001
    part._tasks.evictions.start()
    assert all(rounds.acquire(timeout=DEADLINE) for _ in range(3))
    assert part._tasks.evictions.close(DEADLINE)
    part.close()
    claims.close()


def test_readers_and_the_mover_at_the_same_time(tier: ObjectStore, tmp_path: Path) -> None:
    store = Store(tmp_path, tier=tier)
    for map_id in range(4):
        write(store, map_id)
    end = threading.Event()

    def move() -> None:
        while not end.is_set():
            store.evict_cold(0)

    mover = threading.Thread(target=move, name="mover")
    mover.start()
    try:
        for number in range(40):
            assert read(store, number % 4) == b"%d" % (number % 4) + PAYLOAD
    finally:
        end.set()
        mover.join(DEADLINE)
    assert not mover.is_alive()


def test_a_wrong_uri_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidArgument, match="--tier") as refused:
        ObjectStore("nothing://key:hunter2@cold", "w")
    assert "hunter2" not in str(refused.value)


def suffixes(root: Path) -> list[str]:
    return [path.suffix for path in files_below(root)]


def test_a_server_moves_cold_shuffles_out_survives_a_kill_and_serves_them(s3: str, tmp_path: Path) -> None:
    arguments = ["--tier", s3, "--tier-after", "0"]
    with ServerProcess(tmp_path / "data", tmp_path / "log", arguments) as server:
        with RemoteShuffle({"server": server.control, "codec": "none", "retry": 120}) as plugin:
            with plugin.master("app") as master:
                handle = master.register_shuffle(8, 2)
                written = write_map(plugin, handle, 0) + write_map(plugin, handle, 1)
                deadline = time.monotonic() + DEADLINE
                while suffixes(server.data_dir).count(".out") and time.monotonic() < deadline:
                    time.sleep(0.1)
                assert suffixes(server.data_dir).count(".away") == 2
                server.kill()
                server.restart()
                assert read_all(plugin, handle) == sorted(written)
