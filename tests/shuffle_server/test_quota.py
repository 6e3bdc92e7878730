"""Quotas of an application: what is counted, when it is given back, and what a refusal leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_api.errors import QuotaExceeded, UnknownShuffle
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry import ExpireApps, RegisterApp, RegisterShuffle, Registry, UnregisterApp, UnregisterShuffle
from shuffle_api.values import ShuffleSpec
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.master.quota import Quotas
from shuffle_server.options import ServerOptions
from shuffle_server.store.attempt_writer import AttemptWriter
from shuffle_server.store.options import StoreOptions
from shuffle_server.store.quota import AppQuota
from shuffle_server.store.store import Store
from tests.shuffle_server.helpers import SPEC, batch, block, read_all, write_map

DEFAULT = ServerOptions(data_dir="unused")
OTHER = replace(SPEC, id=ShuffleId("other", 3))


def stage(store: Store, map_id: int, size: int, attempt: int = 0) -> tuple[AttemptWriter, int]:
    store.add_shuffle(SPEC.id)
    attempt_writer = store.stage(SPEC, MapAttempt(map_id, attempt), "none")
    turn = attempt_writer.new_fencing_token()
    attempt_writer.append(turn, batch([block(0, bytes(size))]))
    return attempt_writer, turn


def test_what_is_taken_and_given_back() -> None:
    quota = AppQuota(10)
    quota.take("a", 10)
    quota.take("b", 1)
    with pytest.raises(QuotaExceeded, match="a holds 10 bytes at this worker, 1 more are above its quota of 10"):
        quota.take("a", 1)
    quota.give("a", 4)
    quota.take("a", 4)
    assert (quota.used("a"), quota.used("b"), quota.used("c")) == (10, 1, 0)
    unlimited = AppQuota(0)
    unlimited.take("a", 1 << 60)


def test_shuffles_are_counted_by_application_not_by_run() -> None:
    registry = Registry()
    for run in ("a~1", "a~2", "b~1"):
        registry.apply(RegisterApp(run, "i", ""))
        for number in range(3):
            registry.apply(RegisterShuffle(ShuffleSpec(ShuffleId(run, number, 1), 1, 1)))
    assert (registry.shuffles_of("a"), registry.shuffles_of("b"), registry.shuffles_of("c")) == (6, 3, 0)
    registry.apply(UnregisterApp("a~1"))
    registry.apply(UnregisterShuffle(ShuffleId("a~2", 0)))
    assert (registry.shuffles_of("a"), registry.has_current(ShuffleId("a~2", 0))) == (2, False)
    assert registry.has_current(ShuffleId("a~2", 1, 77))


def test_a_shuffle_of_too_many_blocks_is_refused_by_name_and_one_that_is_there_is_not() -> None:
    registry = Registry()
    registry.apply(RegisterApp("a", "i", ""))
    honest, sparse, absurd = ((10_000, 10_000), (100_000, 100_000), (2**31 - 1, 2**31 - 1))
    quotas = Quotas(0, 1, DEFAULT.shuffle_max_blocks)
    for partitions, maps in (honest, sparse):
        quotas.check(registry, RegisterShuffle(ShuffleSpec(ShuffleId("a", 0, 1), partitions, maps)))
    spec = ShuffleSpec(ShuffleId("a", 0, 1), *absurd)
    with pytest.raises(QuotaExceeded, match="4611686014132420609 blocks, a shuffle may have 10000000000.*max-blocks"):
        quotas.check(registry, RegisterShuffle(spec))
    Quotas(0, 1, 0).check(registry, RegisterShuffle(spec))
    registry.apply(RegisterShuffle(spec))
    quotas.check(registry, RegisterShuffle(spec))
    with pytest.raises(QuotaExceeded, match="has 1 shuffles, its quota is 1.*app-max-shuffles"):
        quotas.check(registry, RegisterShuffle(ShuffleSpec(ShuffleId("a", 1, 1), 1, 1)))


def test_runs_of_an_application_are_bounded() -> None:
    registry, quotas = Registry(), Quotas(runs=2)
    for run in ("a~1", "a~2"):
        quotas.check(registry, RegisterApp(run, "i", ""))
        registry.apply(RegisterApp(run, "i", ""))
    with pytest.raises(QuotaExceeded, match="application a has 2 runs, its quota is 2.*app-max-runs"):
        quotas.check(registry, RegisterApp("a~3", "i", ""))
    quotas.check(registry, RegisterApp("a~2", "i", ""))
    quotas.check(registry, RegisterApp("b~1", "i", ""))
    registry.apply(ExpireApps(("a~1",)))
    assert registry.runs_of("a") == 1
    quotas.check(registry, RegisterApp("a~3", "i", ""))
    registry.apply(UnregisterApp("a~2"))
    assert registry.runs_of("a") == 0


def test_every_way_in_which_an_output_ends_gives_its_bytes_back(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(app_max_bytes=100))
    aborted, _ = stage(store, 0, 100)
    with pytest.raises(QuotaExceeded):
        stage(store, 1, 1)
    store.drop_attempt(SPEC.id, aborted.output)

    first, turn = stage(store, 0, 50)
    second, late = stage(store, 0, 50, attempt=1)
    assert store.publish(first, turn) is not None
    assert store.publish(second, late) is None  # the loser's bytes are free again
    removed, turn = stage(store, 2, 50)
    assert store.publish(removed, turn) is not None
    with pytest.raises(QuotaExceeded):
        stage(store, 3, 1)
    store.remove_output(SPEC.id, removed.output)
    store.remove_output(SPEC.id, removed.output)
    stage(store, 3, 50, attempt=1)
    store.remove_shuffle(SPEC.id)
    attempt_writer, turn = stage(store, 0, 100)
    assert store.publish(attempt_writer, turn) is not None
    store.remove_app(SPEC.id.app)
    stage(store, 0, 100)
    store.close()


def test_a_shuffle_that_goes_while_its_output_is_published_leaves_no_debt(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(app_max_bytes=100))
    attempt_writer, turn = stage(store, 0, 100)
    attempt_writer.seal(turn, sync=False)
    store.remove_shuffle(SPEC.id)
    stage(store, 0, 100)
    with pytest.raises(UnknownShuffle):
        Store(tmp_path / "other").publish(*stage(store, 0, 0))
    store.close()


def test_recovery_counts_what_it_finds_and_other_applications_are_not_concerned(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(app_max_bytes=100))
    assert store.publish(*stage(store, 0, 90)) is not None
    again = Store(tmp_path, options=StoreOptions(app_max_bytes=100))
    list(again.recover())
    with pytest.raises(QuotaExceeded, match="app holds 90 bytes"):
        stage(again, 1, 11)
    again.add_shuffle(OTHER.id)
    other = again.stage(OTHER, MapAttempt(0, 0), "none")
    other.append(other.new_fencing_token(), batch([block(0, bytes(100))]))
    again.close()


def test_a_server_refuses_by_name_harms_nothing_and_goes_on(tmp_path: Path) -> None:
    arguments = ["--app-max-bytes", "1m", "--app-max-shuffles", "2"]
    with ServerProcess(tmp_path / "data", tmp_path / "log", arguments) as server:
        with RemoteShuffle({"server": server.control, "codec": "none"}) as plugin, plugin.master("app") as master:
            handle = master.register_shuffle(8, 2, shuffle=0)
            master.register_shuffle(8, 2, shuffle=1)
            master.register_shuffle(8, 2, shuffle=1)  # it is there already
            with pytest.raises(QuotaExceeded, match="has 2 shuffles, its quota is 2"):
                master.register_shuffle(8, 2, shuffle=2)
            kept = write_map(plugin, handle, 0)
            with (
                plugin.writer(handle, MapAttempt(1, 0)) as writer,
                pytest.raises(QuotaExceeded, match="quota of 1048576"),
            ):
                writer.write(0, bytes(2 << 20))
                writer.commit()
            assert read_all(plugin, handle, range(1)) == kept
            written = write_map(plugin, handle, 1, attempt=1)
            assert read_all(plugin, handle) == sorted(kept + written)
            with plugin.master("another") as another:
                another.register_shuffle(8, 2, shuffle=2)


def test_attempts_are_counted_by_application_until_they_end(tmp_path: Path) -> None:
    store = Store(tmp_path, options=StoreOptions(app_max_attempts=2))
    first, turn = stage(store, 0, 10)
    second, _ = stage(store, 1, 10)
    with pytest.raises(QuotaExceeded, match=r"writes 2 attempts at this worker.*quota is 2,.*--app-max-attempts"):
        stage(store, 2, 10)
    store.add_shuffle(OTHER.id)
    store.stage(OTHER, MapAttempt(0, 0), "none")
    assert store.statistics().largest_staged == 2
    assert store.publish(first, turn) is not None
    stage(store, 2, 10)
    second.discard()
    stage(store, 3, 10)
    store.remove_shuffle(SPEC.id)
    store.close()
    assert store.statistics().largest_staged == 0


def test_an_application_leaves_files_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda which: (40, 40))
    quota = AppQuota(0)
    counts = dict.fromkeys("abc", 0)
    for app in counts:
        with pytest.raises(QuotaExceeded, match="more can be opened by all"):
            while True:
                quota.open_attempt(app)
                counts[app] += 1
    assert counts == {"a": 15, "b": 8, "c": 4}
    quota.close_attempt("c~2")
    quota.open_attempt("c")
