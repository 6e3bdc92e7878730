"""The master: operations in one order, durable before they are acknowledged, snapshots while work goes on."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from shuffle_api.errors import (
    AppExpired,
    AttemptSuperseded,
    InvalidArgument,
    StorageFailed,
    UnknownApp,
    UnknownShuffle,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry import (
    AppRemoved,
    Event,
    MapOutputCommitted,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
    ShuffleRemoved,
    UnregisterApp,
    UnregisterShuffle,
)
from shuffle_api.registry.outputs import ShuffleOutputs
from shuffle_api.values import ShuffleSpec, Totals, WorkerInfo
from shuffle_server.master.liveness import AppLiveness
from shuffle_server.master.master import Check, Master, Outcome
from shuffle_server.master.recovery import recover
from shuffle_transport.frames import DamagedFile
from tests.shuffle_server.master.scene import BEGIN, OPERATIONS, SHUFFLE, commit, registry_after
from tests.shuffle_server.master.simulated import SimulatedDirectory
from tests.stepped_clock import SteppedClock

UNKNOWN = ShuffleSpec(ShuffleId("no", 1), 1, 1)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[Master]:
    master = Master(tmp_path / "master")
    yield master
    master.close()


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def test_a_master_that_is_not_closed_loses_nothing_it_has_acknowledged(tmp_path: Path) -> None:
    master = Master(tmp_path)
    for operation in OPERATIONS[:4]:
        master.apply(operation)
    again = Master(tmp_path)
    assert again.registry.map_output(SHUFFLE, 1).totals == Totals(1, 2, 3, 4, 2**32 - 1)
    assert again.epoch == master.epoch + 1
    master.close()
    again.close()


def test_operations_that_change_nothing_do_not_grow_the_log(tmp_path: Path) -> None:
    master = Master(tmp_path)
    for operation in OPERATIONS[:4]:
        master.apply(operation)
    before = size(tmp_path)
    for operation in OPERATIONS[:4]:
        master.apply(operation)
    for map_id in range(50):
        master.lose(SHUFFLE, MapAttempt(map_id, 77), "nobody has ever written it")
    master.apply(UnregisterShuffle(ShuffleId("app", 99)))
    master.apply(UnregisterApp("nobody"))
    master.heartbeat("app")
    assert size(tmp_path) == before
    master.lose(SHUFFLE, MapAttempt(1, 2), "really gone")
    assert size(tmp_path) > before
    master.close()


def test_each_operation_of_several_has_an_outcome_of_its_own_and_listeners_hear_of_each_event(master: Master) -> None:
    heard: list[Event] = []
    master.subscribe(heard.append)
    master.apply_all(BEGIN)
    outcomes = master.apply_all(
        [commit(0), commit(0, attempt=1), commit(1), UnregisterShuffle(ShuffleId("no", 1)), RegisterShuffle(UNKNOWN)]
    )
    committed = [MapOutputCommitted(SHUFFLE, commit(n).output) for n in (0, 1)]
    assert [type(each) for each in outcomes] == [tuple, AttemptSuperseded, tuple, tuple, UnknownApp]
    assert [outcomes[0], outcomes[2], outcomes[3]] == [(committed[0],), (committed[1],), ()]
    assert heard == committed


def test_what_cannot_be_recorded_is_refused_and_not_applied(master: Master) -> None:
    master.apply_all(BEGIN)
    with pytest.raises(InvalidArgument, match="18446744073709551616"):
        master.apply(commit(0, records=2**64))
    assert master.registry.map_outputs(SHUFFLE) == ([], None)


def test_many_threads_commit_and_all_of_it_is_there_after_a_power_cut() -> None:
    directory = SimulatedDirectory()
    master = Master(directory, sync=True, snapshot_every=100)
    master.apply_all(BEGIN)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: master.apply(commit(n)), range(1000)))
    after = recover(directory.after_power_cut()).registry
    assert [each.output.map for each in after.map_outputs(SHUFFLE)[0]] == list(range(1000))
    master.close()


def test_a_heartbeat_that_is_not_logged_keeps_an_application_alive_when_the_log_is_replayed() -> None:
    directory, clock = SimulatedDirectory(), SteppedClock()
    master = Master(directory, liveness=AppLiveness(60.0, clock))
    for app in ("silent", "lively"):
        master.apply(RegisterApp(app, "i", ""))
    for _ in range(12):
        clock.now += 6.0
        master.heartbeat("lively")
        master.expire()
    registry = recover(directory.after_process_crash()).registry
    assert [app.app for app in registry.apps()] == ["lively"]
    with pytest.raises(AppExpired):
        registry.app("silent")
    assert registry == master.registry
    master.close()


def test_an_expiry_tells_of_the_application_and_its_shuffles() -> None:
    heard: list[Event] = []
    clock = SteppedClock()
    master = Master(None, liveness=AppLiveness(60.0, clock))
    master.apply_all(BEGIN)
    master.subscribe(heard.append)
    for _ in range(5):
        clock.now += 15.0
        master.expire()
    assert heard == [ShuffleRemoved(SHUFFLE), AppRemoved("app", "expired")]
    with pytest.raises(AppExpired):
        master.registry.spec(SHUFFLE)


# ------------------------------------------------------------------------------------------ snapshots


def test_snapshots_come_by_themselves_and_the_log_before_them_goes(tmp_path: Path) -> None:
    master = Master(tmp_path, snapshot_every=50)
    master.apply_all(BEGIN)
    deadline = time.monotonic() + 120.0
    for n in itertools.count():
        assert time.monotonic() < deadline
        master.apply(commit(n % 20, attempt=n // 20))
        master.lose(SHUFFLE, MapAttempt(n % 20, n // 20), "x")
        names = sorted(path.name for path in tmp_path.iterdir())
        if sum(name.startswith("snapshot-") for name in names) == 2 and "log-0000000000000001" not in names:
            break
    expected = list(master.registry.operations())
    master.close()
    assert list(Master(tmp_path).registry.operations())[3:] == expected[3:]


def test_outputs_of_a_complete_shuffle_are_in_memory_once_after_a_snapshot(tmp_path: Path) -> None:
    """Of what has come to rest the registry that is ahead of the disk has no rows of its own."""
    shuffles = [ShuffleId("app", 100 + n) for n in range(8)]

    def size(master: Master) -> int:
        rows = {id(outputs.winners): outputs.winners for outputs in held(master)}
        return sum(sys.getsizeof(each._rows) for each in rows.values())

    def held(master: Master) -> Iterator[ShuffleOutputs]:
        for registry in (master._ahead, master._registry):
            yield from registry._shuffles.values()

    master = Master(tmp_path)
    master.apply_all(BEGIN)
    master.apply_all([RegisterShuffle(ShuffleSpec(each, 1, 1000)) for each in shuffles])
    for each in shuffles:
        master.apply_all([replace(commit(n), shuffle=each) for n in range(1000)])
    twice = size(master)
    master.materialize()
    once = size(master)
    assert once < 0.51 * twice
    master.lose(shuffles[0], MapAttempt(7, 0), "x")
    master.apply(replace(commit(7, attempt=1), shuffle=shuffles[0]))
    assert 1.1 * once < size(master) < 1.2 * once
    assert master._ahead == master._registry
    expected = list(master.registry.operations())
    master.close()
    assert list(Master(tmp_path).registry.operations()) == expected


def test_work_goes_on_while_a_snapshot_is_made() -> None:
    directory = SimulatedDirectory()
    master = Master(directory, sync=True)
    master.apply_all([*BEGIN, *map(commit, range(5000))])
    with ThreadPoolExecutor(2) as pool:
        making = pool.submit(master.materialize)
        n = 5000
        while not making.done() or n < 5100:
            master.apply(commit(n))
            n += 1
    info = making.result()
    assert info is not None
    assert 5000 <= info.operations < n + 3
    after = recover(directory.after_power_cut())
    assert after.registry == registry_after([*BEGIN, *map(commit, range(n))])
    assert after.snapshot == info.lsn
    master.close()


def test_a_snapshot_is_restored_into_an_empty_registry_and_durable(tmp_path: Path) -> None:
    source = Master(tmp_path / "one")
    source.apply_all([*OPERATIONS[:6], commit(7)])
    assert source.supports_snapshot
    info = source.snapshot(tmp_path / "copy")
    assert (info.lsn, info.epoch, info.operations) == (7, 1, 7)
    source.apply(commit(8))
    source.close()
    target = Master(tmp_path / "two")
    target.apply(RegisterWorker(WorkerInfo("other", "h", 5)))
    assert target.restore(tmp_path / "copy") == info
    target.close()
    for _ in range(2):
        again = Master(tmp_path / "two")
        outputs, _ = again.registry.map_outputs(SHUFFLE)
        assert [each.output.map for each in outputs] == [1, 7]
        assert [worker.id for worker in again.registry.workers()] == ["other", "w"]
        again.materialize()
        again.close()


def test_a_restore_is_all_or_nothing(tmp_path: Path) -> None:
    with closing(Master(None)) as source:
        source.apply_all([*BEGIN, *map(commit, range(100))])
        source.snapshot(tmp_path / "copy")
    for room in range(0, 12_000, 1000):
        directory = SimulatedDirectory()
        master = Master(directory, sync=True)
        directory.room = room
        try:
            master.restore(tmp_path / "copy")
        except StorageFailed:
            assert recover(directory.after_power_cut()).registry.apps() == []
        else:
            assert len(recover(directory.after_power_cut()).registry.map_outputs(SHUFFLE)[0]) == 100
        directory.room = 1 << 30
        master.close()


def test_a_registry_in_memory_does_all_but_last(tmp_path: Path) -> None:
    master = Master(None)
    master.apply_all([*BEGIN, commit(0)])
    assert master.registry.map_output(SHUFFLE, 0) == commit(0).output
    assert master.materialize() is None
    assert master.snapshot(tmp_path / "copy").operations == 4
    assert master.epoch == 1
    master.close()


def test_a_registry_in_use_is_not_restored_into(master: Master, tmp_path: Path) -> None:
    master.apply_all([*BEGIN, commit(0)])
    master.snapshot(tmp_path / "copy")
    with pytest.raises(InvalidArgument, match="the registry is in use"):
        master.restore(tmp_path / "copy")


def test_a_damaged_or_missing_snapshot_is_not_restored_from(master: Master, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="nowhere: No such file"):
        master.restore(tmp_path / "nowhere")
    with closing(Master(None)) as source:
        source.apply_all([*BEGIN, commit(0)])
        source.snapshot(tmp_path / "copy")
    data = bytearray((tmp_path / "copy").read_bytes())
    data[-60] ^= 1
    (tmp_path / "copy").write_bytes(data)
    with pytest.raises(DamagedFile, match=f"{tmp_path}/copy is damaged at offset"):
        master.restore(tmp_path / "copy")
    with pytest.raises(UnknownShuffle):
        master.registry.spec(SHUFFLE)


def test_a_heartbeat_between_the_decision_to_expire_and_its_application_keeps_the_application(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SteppedClock()
    master = Master(None, liveness=AppLiveness(60.0, clock))
    for app in ("late", "silent"):
        master.apply(RegisterApp(app, "i", ""))
    for _ in range(5):
        clock.now += 15.0
        with master.lock:
            master.idle("late")  # looks at the clock
    apply_all = master.apply_all

    def slow(operations: Sequence[Operation], check: Check | None = None) -> list[Outcome]:
        master.heartbeat("late")
        return apply_all(operations, check)

    monkeypatch.setattr(master, "apply_all", slow)
    master.expire()
    assert [app.app for app in master.registry.apps()] == ["late"]
    with pytest.raises(AppExpired):
        master.heartbeat("silent")


def test_a_restart_holds_silence_against_nobody_and_a_dead_application_still_expires(tmp_path: Path) -> None:
    clock = SteppedClock()
    master = Master(tmp_path, liveness=AppLiveness(60.0, clock))
    master.apply_all(BEGIN)
    master.close()
    clock.now += 1000.0
    again = Master(tmp_path, liveness=AppLiveness(60.0, clock))
    again.expire()
    assert [app.app for app in again.registry.apps()] == ["app"]
    for _ in range(5):
        clock.now += 15.0
        again.expire()
    assert again.registry.apps() == []
    again.close()


def test_an_expired_run_registers_again_and_so_do_its_shuffles(tmp_path: Path) -> None:
    clock = SteppedClock()
    master = Master(tmp_path, liveness=AppLiveness(60.0, clock))
    master.apply_all([*BEGIN, commit(0)])
    for _ in range(5):
        clock.now += 15.0
        master.expire()
    with pytest.raises(AppExpired):
        master.apply(BEGIN[1])
    master.apply_all(BEGIN)
    assert master.registry.map_outputs(SHUFFLE) == ([], None)
    master.apply(commit(0))
    master.close()
    again = Master(tmp_path)
    assert again.registry == master.registry
    assert [app.app for app in again.registry.apps()] == ["app"]
    again.close()
