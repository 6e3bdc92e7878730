"""Scrub: whatever bit a disk flips and wherever it cuts a file, that is found, named, and never served."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bench.harness.server import ServerProcess
from shuffle_api.errors import BlockCorrupt, InvalidArgument, MapOutputLost, Overloaded
from shuffle_api.ids import MapAttempt, ShuffleId, name_of
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.cli import main
from shuffle_server.store.catalog import CatalogEntry
from shuffle_server.store.object_store import ObjectStore
from shuffle_server.store.opening import read_committed
from shuffle_server.store.output_file import OutputFile
from shuffle_server.store.scrub import Pace, check_all, check_one
from shuffle_server.store.store import Store
from shuffle_transport.flight_client import FlightClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import SPEC, batch, block, read_all, write_map
from tests.shuffle_server.secured import Secured

BLOCKS = [(0, b"zero" * 30), (1, b""), (2, bytes(100)), (2, b"two"), (7, os.urandom(64))]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    for map_id in range(3):
        commit(store, map_id)
    yield store
    store.close()


def commit(store: Store, map_id: int) -> None:
    store.add_shuffle(SPEC.id)
    writer = store.stage(SPEC, MapAttempt(map_id, 0), "none")
    turn = writer.new_fencing_token()
    writer.append(turn, batch([block(partition, payload) for partition, payload in BLOCKS]))
    assert store.publish(writer, turn) is not None


def findings(store: Store) -> dict[int, str]:
    return {checked.output.map: checked.wrong for checked in check_all(store, None, Pace(0)) if checked.wrong}


def flip(path: Path, bit: int) -> None:
    """Change a bit the way a disk does: size and times stay as they were."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def served(store: Store, map_id: int) -> list[tuple[int, bytes]]:
    """What a reader takes: blocks that match their checksum. Raises what it would be told."""
    file, fd = store.open_output(SPEC.id, MapAttempt(map_id, 0))
    with open(fd, "rb") as opened:
        found = []
        for row in file.index:
            payload = os.pread(opened.fileno(), int(row["length"]), int(row["offset"]))
            if block(0, payload).crc32c != row["crc32c"]:
                raise BlockCorrupt("a block")
            found.append((int(row["partition"]), payload))
        return found


def test_all_is_well_and_counted(store: Store) -> None:
    checked = list(check_all(store, None, Pace(0)))
    assert [(c.output.map, c.blocks, c.bytes, c.wrong) for c in checked] == [(m, 5, 287, "") for m in range(3)]
    assert list(check_all(store, "another", Pace(0))) == []
    assert check_one(store, SPEC.id, MapAttempt(0, 0)) == ""


@settings(
    deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(where=st.floats(0, 1, exclude_max=True))
def test_each_bit_of_a_file_that_flips_is_found_and_never_served(store: Store, tmp_path: Path, where: float) -> None:
    path = tmp_path / "apps/app/3.0/1.0.out"
    bit = int(where * path.stat().st_size * 8)
    flip(path, bit)
    try:
        found = findings(store)
        assert list(found) == [1]
        assert str(path) in found[1]
        with pytest.raises((MapOutputLost, BlockCorrupt)):
            again = Store(tmp_path)
            list(again.recover())
            served(again, 1)
    finally:
        for aside in tmp_path.rglob("1.0.torn"):
            aside.rename(path)
        flip(path, bit)
    assert findings(store) == {}


@pytest.mark.parametrize("kept", [0, 1, 31, 32, 200, 287, 288, -1])
def test_a_torn_tail_is_found_and_never_served(store: Store, tmp_path: Path, kept: int) -> None:
    path = tmp_path / "apps/app/3.0/1.0.out"
    os.truncate(path, kept if kept >= 0 else path.stat().st_size - 1)
    assert str(path) in findings(store)[1]
    with pytest.raises(MapOutputLost):
        served(store, 1)
    assert served(store, 2) == BLOCKS


def test_a_file_that_is_another_maps_is_found(store: Store, tmp_path: Path) -> None:
    root = tmp_path / "apps/app/3.0"
    (root / "1.0.out").write_bytes((root / "0.0.out").read_bytes())
    assert "holds" in findings(store)[1]
    (root / "2.0.out").unlink()
    assert "No such file" in findings(store)[2]


@pytest.mark.parametrize("moves", [1, 3, 1000])
def test_what_moves_to_the_object_store_while_it_is_verified_is_not_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    store = Store(tmp_path / "data", tier=ObjectStore(f"file://{tmp_path}/tier", "w"))
    list(store.recover())
    commit(store, 0)
    moved: list[int] = []

    def move_and_read(shuffle: ShuffleId, held: CatalogEntry) -> tuple[OutputFile, int]:
        if len(moved) < moves:
            moved.append(store.evict_cold(0))
        return read_committed(shuffle, held)

    monkeypatch.setattr("shuffle_server.store.scrub.read_committed", move_and_read)
    if moves < 1000:
        assert check_one(store, SPEC.id, MapAttempt(0, 0)) == ""
    else:
        with pytest.raises(Overloaded, match="moved to the object store"):
            check_one(store, SPEC.id, MapAttempt(0, 0))
    assert moved == [1] * len(moved)
    monkeypatch.undo()
    assert check_one(store, SPEC.id, MapAttempt(0, 0)) == ""
    store.remove_output(SPEC.id, MapAttempt(0, 0))
    assert check_one(store, SPEC.id, MapAttempt(0, 0)) == "it is not here"


def test_what_is_removed_while_it_is_looked_at_is_no_finding(store: Store) -> None:
    outputs = check_all(store, None, Pace(0))
    assert next(outputs).output.map == 0
    store.remove_shuffle(SPEC.id)
    assert list(outputs) == []
    assert check_one(store, SPEC.id, MapAttempt(0, 0)) == "it is not here"


def test_the_pace_is_kept_on_average() -> None:
    now = [100.0]
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    pace = Pace(1000, lambda: now[0], sleep)
    pace.spend(500)
    now[0] += 2.0  # slower than allowed: the bytes saved may be spent
    pace.spend(2000)
    pace.spend(500)
    assert waits == [0.5, 0.5]
    unlimited = Pace(0, lambda: now[0], sleep)
    unlimited.spend(1 << 60)
    assert len(waits) == 2


def test_the_command_names_what_it_found_gives_it_up_and_the_map_runs_again(
    server: ServerProcess, plugin: RemoteShuffle, capsys: pytest.CaptureFixture[str]
) -> None:
    with plugin.master("app") as master:
        handle = master.register_shuffle(8, 3)
        written = [write_map(plugin, handle, map_id) for map_id in range(3)]
        assert main(["scrub", server.control]) == 0
        assert "done: 3 map outputs" in capsys.readouterr().out
        [path] = server.data_dir.rglob("1.0.out")
        flip(path, 77)
        assert main(["scrub", server.control, "--json", "--app", "app", "--rate", "1g"]) == 1
        report = json.loads(capsys.readouterr().out)
        [worker] = report["workers"]
        assert (report["found"], worker["outputs"]) == (1, 3)
        [finding] = worker["findings"]
        assert (name_of(finding["app"]), finding["map"], finding["attempt"]) == ("app", 1, 0)
        assert str(path) in finding["reason"]
        with pytest.raises(MapOutputLost, match="map 1 attempt 0"):
            read_all(plugin, handle)
        again = write_map(plugin, handle, 1, attempt=1)
        assert read_all(plugin, handle) == sorted(written[0] + again + written[2])
        assert main(["scrub", server.control]) == 0
        flip(next(server.data_dir.rglob("2.0.out")), 1)
        assert main(["scrub", server.control]) == 1
        assert f"lost {handle.spec.id} map 2 attempt 0" in capsys.readouterr().out
        client = FlightClient(server.data, timeout=120)
        with pytest.raises(InvalidArgument, match="100 bytes per second"):
            list(client.scrub(pb.ScrubRequest(rate=100)))
        client.close()


def test_an_applications_token_scrubs_what_is_its_own(secured: Secured) -> None:
    for app, outputs in (("", 1), ("A", 1)):
        client = FlightClient(secured.server.data, timeout=120, credentials=secured.keys.for_app("A"))
        assert [p.outputs for p in client.scrub(pb.ScrubRequest(app=app)) if p.done] == [outputs]
        client.close()
