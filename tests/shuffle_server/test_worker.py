"""The worker's commits and losses: recorded outputs are held, outputs that cannot be served make room."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from shuffle_api.errors import (
    AttemptSuperseded,
    DeadlineExceeded,
    MapOutputLost,
    Overloaded,
    ServerUnreachable,
    ShuffleError,
    StorageFailed,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo
from shuffle_server.observe.instruments import Instruments
from shuffle_server.store import attempt_writer as staged_module
from shuffle_server.store.attempt_writer import AttemptWriter
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from shuffle_server.worker import replication
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.helpers import SPEC, batch, block
from tests.shuffle_server.test_fetch_handler import pull, write

FIRST, SECOND, THIRD = MapAttempt(0, 0), MapAttempt(0, 1), MapAttempt(0, 2)


class Registry:
    """A coordinator that does what a test says."""

    def __init__(self) -> None:
        self.failure: ShuffleError | None = None
        self.lost: list[MapAttempt] = []
        self.won: MapOutput | None = None

    def spec(self, shuffle: ShuffleId) -> ShuffleSpec:
        return SPEC

    def holder(self, worker: str) -> WorkerInfo | None:
        return WorkerInfo(worker, "i", 1)

    def opening(self, shuffle: ShuffleId, map_id: int) -> tuple[ShuffleSpec, MapOutput | None]:
        return SPEC, self.won

    def winner(self, shuffle: ShuffleId, map_id: int) -> MapOutput | None:
        return self.won

    def outputs(self, shuffle: ShuffleId) -> list[MapOutput]:
        return [self.won] if self.won else []

    def shuffles(self) -> list[ShuffleId]:
        return [SPEC.id]

    def commit(self, shuffle: ShuffleId, output: MapOutput) -> MapOutput:
        if self.failure is not None:
            raise self.failure
        self.won = self.won or output
        return self.won

    def lose(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        self.lost.append(output)
        if self.won is not None and self.won.output == output:
            self.won = None


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    store.add_shuffle(SPEC.id)
    return store


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def worker(store: Store, registry: Registry) -> Worker:
    return Worker(WorkerInfo("w", "localhost", 1), store, registry, BufferPool(1 << 20), Instruments())


def writer(store: Store, output: MapAttempt) -> tuple[AttemptWriter, int]:
    written = store.stage(SPEC, output, "none")
    turn = written.new_fencing_token()
    written.append(turn, batch([block(0, b"payload")]))
    return written, turn


def committed_file(store: Store) -> Path:
    held = store.catalog.find(SPEC.id, 0)
    assert held is not None
    return held.home.paths.committed(SPEC.id, held.output)


def test_the_failed_commit_of_an_attempt_costs_it_alone_and_not_another_that_was_first(
    store: Store, registry: Registry, worker: Worker
) -> None:
    store.publish(*writer(store, FIRST))  # its own commit is under way, and will be acknowledged
    registry.failure = DeadlineExceeded("the master does not answer")
    with pytest.raises(DeadlineExceeded):
        worker.commit(*writer(store, SECOND))
    assert registry.lost == []
    assert store.catalog.holds(SPEC.id, FIRST)
    store.remove_output(SPEC.id, FIRST)
    registry.failure = StorageFailed("the journal's disk is full")
    with pytest.raises(StorageFailed):
        worker.commit(*writer(store, SECOND))
    assert registry.lost == [SECOND]
    assert not store.catalog.holds(SPEC.id, SECOND)


@pytest.mark.parametrize("unknown", [DeadlineExceeded("no answer"), ServerUnreachable("h:1", "it is gone")])
def test_what_may_have_been_recorded_is_kept_and_the_next_commit_of_its_map_finds_out(
    store: Store, registry: Registry, worker: Worker, unknown: ShuffleError
) -> None:
    registry.failure = unknown
    with pytest.raises(type(unknown)):
        worker.commit(*writer(store, FIRST))
    assert store.catalog.holds(SPEC.id, FIRST)
    assert registry.lost == []
    registry.failure = None
    assert worker.commit(*writer(store, SECOND)).output == FIRST


def test_a_held_attempt_that_the_registry_has_as_lost_makes_room_for_the_next(
    store: Store, registry: Registry, worker: Worker
) -> None:
    store.publish(*writer(store, FIRST))
    registry.failure = MapOutputLost("attempt 0 was lost before")
    with pytest.raises(MapOutputLost):
        worker.commit(*writer(store, SECOND))
    registry.failure = None
    assert worker.commit(*writer(store, THIRD)).output == THIRD


@pytest.mark.parametrize("harm", ["missing", "torn"])
@pytest.mark.parametrize("found_by", ["reader", "writer"])
def test_an_output_whose_file_is_gone_or_torn_makes_room_for_the_next_attempt(
    store: Store, registry: Registry, worker: Worker, harm: str, found_by: str
) -> None:
    worker.commit(*writer(store, FIRST))
    path = committed_file(store)
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-5])
    if found_by == "reader":
        ticket = pb.GetTicket(
            shuffle=messages.key_of(SPEC.id), maps=[messages.attempt_of(FIRST)], end_partition=SPEC.partitions
        )
        assert sum(data.num_rows for data, _ in worker.get(ticket)[1]) == 0
    else:
        registry.won = None  # the master has been told of it
        with pytest.raises(MapOutputLost):
            worker.commit(*writer(store, SECOND))
    assert registry.lost == [FIRST]
    assert worker.commit(*writer(store, THIRD)).output == THIRD


def test_a_pull_that_gets_no_turn_at_the_disk_costs_no_output(
    store: Store, registry: Registry, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.commit(*writer(store, FIRST))
    ticket = pb.GetTicket(
        shuffle=messages.key_of(SPEC.id), maps=[messages.attempt_of(FIRST)], end_partition=SPEC.partitions
    )
    assert sum(data.num_rows for data, _ in worker.get(ticket)[1]) > 0
    held = store.catalog.find(SPEC.id, 0)
    assert held is not None

    def busy() -> NoReturn:
        raise Overloaded("64 calls to the file system are under way")

    with monkeypatch.context() as patched:
        patched.setattr(held.home.calls, "request", busy)
        with pytest.raises(Overloaded):
            list(worker.get(ticket)[1])
    assert registry.lost == []
    assert sum(data.num_rows for data, _ in worker.get(ticket)[1]) > 0


def test_what_is_removed_is_forgotten_and_nothing_else(store: Store) -> None:
    first, second, other = ShuffleId("app", 0), ShuffleId("app", 1), ShuffleId("other", 0)
    for shuffle in (first, second, other):
        store.add_shuffle(shuffle)
        write(store, 0, [(0, b"x")], replace(SPEC, id=shuffle))
        pull(store, [OutputRange(MapAttempt(0, 0), 0, 1)], replace(SPEC, id=shuffle))

    def kept() -> list[set[ShuffleId]]:
        return [set(store._used), set(store._indexes._maps), {shuffle for shuffle, _ in store._indexes._files}]

    assert kept() == [{first, second, other}] * 3
    store.remove_shuffle(first)
    assert kept() == [{second, other}] * 3
    store.remove_app("app")
    assert kept() == [{other}] * 3
    assert store._indexes.bytes == sum(file.index.nbytes for file in store._indexes._files.values()) > 0


def test_a_commit_that_is_recorded_while_its_output_is_dropped_is_not_acknowledged(
    store: Store, registry: Registry, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = registry.commit

    def drop_and_record(shuffle: ShuffleId, output: MapOutput) -> MapOutput:
        store.remove_shuffle(shuffle)  # the worker had been given up
        return record(shuffle, output)

    monkeypatch.setattr(registry, "commit", drop_and_record)
    with pytest.raises(MapOutputLost, match="was dropped"):
        worker.commit(*writer(store, FIRST))
    assert registry.lost == [FIRST]


def test_a_copy_that_is_held_but_not_recorded_is_recorded_when_it_comes_again(
    store: Store, registry: Registry, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish(*writer(store, FIRST))  # its loss was told after it had come back
    recorded = []

    def record(shuffle: ShuffleId, output: MapOutput) -> MapOutput:
        recorded.append(output)
        return output

    monkeypatch.setattr(registry, "commit", record)
    registry.won = MapOutput(FIRST, "elsewhere", store.describe(SPEC.id, 0).totals)
    assert worker.commit(*writer(store, FIRST), copy=True).worker == "w"
    assert [(each.output, each.worker) for each in recorded] == [(FIRST, "w")]
    assert store.catalog.holds(SPEC.id, FIRST)


class Copies:
    """Workers that say they took a copy, of which the registry never hears."""

    def __init__(self) -> None:
        self.to: list[str] = []

    def copy(self, shuffle: ShuffleId, output: MapAttempt, to: WorkerInfo) -> Totals:
        self.to.append(to.id)
        return Totals()

    def ask(self, worker: WorkerInfo, shuffle: ShuffleId, output: MapAttempt) -> None:
        raise AssertionError("who holds an output copies it")


def test_a_copy_that_the_registry_never_hears_of_is_not_made_for_ever(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "LOOK_SECONDS", 0.001)
    copies, own, other = Copies(), WorkerInfo("w", "h", 1), WorkerInfo("v", "i", 1)
    registry.won = MapOutput(FIRST, "w", Totals())
    made = replication.Replication(lambda: own, registry, lambda *_: [own, other], copies)
    assert made.ensure(replace(SPEC, replicas=2), registry.won)
    assert copies.to == ["v"] * replication.MOST_COPIES


def test_an_output_that_is_lost_while_no_worker_takes_a_copy_is_not_called_committed(registry: Registry) -> None:
    """A worker that does not answer is waited for; meanwhile another attempt of the map may win."""
    own, other, two = WorkerInfo("w", "h", 1), WorkerInfo("v", "i", 1), replace(SPEC, replicas=2)
    registry.won = won = MapOutput(FIRST, "w", Totals())

    class Stuck(Copies):
        def copy(self, shuffle: ShuffleId, output: MapAttempt, to: WorkerInfo) -> Totals:
            registry.won = MapOutput(SECOND, "v", Totals())
            raise DeadlineExceeded("no answer")

    made = replication.Replication(lambda: own, registry, lambda *_: [own, other], Stuck())
    assert not made.ensure(two, won)


class AsksBack(Copies):
    """A worker that takes the one that asks it for the holder, and asks it in turn."""

    def __init__(self, asked: Callable[[], object]) -> None:
        super().__init__()
        self._asked, self.refusals = asked, list[str]()

    def ask(self, worker: WorkerInfo, shuffle: ShuffleId, output: MapAttempt) -> None:
        try:
            self._asked()
        except Overloaded as error:
            self.refusals.append(error.message)
            raise


def test_two_workers_that_have_each_other_for_the_holder_do_not_wait_for_one_another(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replication, "OTHERS_SECONDS", 0.2)
    monkeypatch.setattr(replication, "LOOK_SECONDS", 0.01)
    own, other, two = WorkerInfo("w", "h", 1), WorkerInfo("v", "i", 1), replace(SPEC, replicas=2)
    registry.won = won = MapOutput(FIRST, "v", Totals())
    copies = AsksBack(lambda: made.ensure(two, won, was_asked=True))
    made = replication.Replication(lambda: own, registry, lambda *_: [other], copies)
    assert made.ensure(two, won)  # as far as there can be copies now
    assert set(copies.refusals) == {f"a copy of {FIRST} is being made"}
    with pytest.raises(Overloaded, match="is not held here"):
        made.ensure(two, won, was_asked=True)


def test_a_copy_of_what_is_held_already_is_answered_without_copying_it_on(store: Store, registry: Registry) -> None:
    """Two workers that wait for each other's copies would not come to an end."""
    own, copies = WorkerInfo("w", "h", 1), Copies()
    two = replace(SPEC, replicas=2)
    registry.opening = lambda shuffle, map_id: (two, registry.won)  # type: ignore[method-assign]
    made = replication.Replication(lambda: own, registry, lambda *_: [WorkerInfo("v", "i", 1)], copies)
    worker = Worker(own, store, registry, BufferPool(1 << 20), Instruments(), made)
    registry.won = MapOutput(FIRST, "w", Totals())
    command = pb.PutCommand(
        protocol=messages.PROTOCOL,
        shuffle=messages.key_of(SPEC.id),
        output=messages.attempt_of(FIRST),
        partitions=SPEC.partitions,
        codec="none",
        copy=True,
    )
    assert worker.open_attempt(command) == registry.won
    assert copies.to == []


def test_a_copy_does_not_take_the_place_of_the_sender_that_pushes_the_same_attempt(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut off from the worker that committed its push, and needs an answer from this one."""
    written, turn = writer(store, FIRST)
    with pytest.raises(Overloaded, match="is pushing it here"):
        written.new_fencing_token(copy=True)
    written.append(turn, batch([block(1, b"more")]))
    monkeypatch.setattr(staged_module, "SENDER_SECONDS", 0.0)
    copying = written.new_fencing_token(copy=True)  # the sender is gone
    with pytest.raises(AttemptSuperseded):
        written.append(turn, batch([block(1, b"late")]))
    written.append(copying, batch([block(2, b"copied")]))
    assert written.new_fencing_token(copy=True) == copying + 1
    sender = written.new_fencing_token()
    with pytest.raises(AttemptSuperseded):
        written.append(copying + 1, batch([block(2, b"copied")]))
    written.append(sender, batch([block(3, b"sent")]))
    assert written.totals.blocks == 4
