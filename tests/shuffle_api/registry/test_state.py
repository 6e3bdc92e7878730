"""The registry, operation by operation: what each brings about, what it refuses, and that refusing changes nothing."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from shuffle_api.errors import (
    AppExists,
    AppExpired,
    AttemptSuperseded,
    InvalidArgument,
    MapOutputLost,
    MapOutputNotWritten,
    ShuffleError,
    ShuffleExists,
    StaleEpoch,
    UnknownApp,
    UnknownShuffle,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry import (
    AppRemoved,
    CommitMapOutput,
    ExpireApps,
    LoseMapOutput,
    LoseWorker,
    LostOutput,
    MapOutputCommitted,
    Operation,
    RegisterApp,
    RegisterShuffle,
    RegisterWorker,
    Registry,
    ShuffleRemoved,
    UnregisterApp,
    UnregisterShuffle,
    WorkerLost,
)
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo

ID = ShuffleId("app", 1)
SPEC = ShuffleSpec(ID, partitions=2, maps=3)
W1, W2 = WorkerInfo("w1", "host1", 1), WorkerInfo("w2", "host2", 2)
REGISTER = RegisterApp("app", "run-1", "An app")


def output(map: int, attempt: int = 0, worker: str = "w1") -> MapOutput:
    return MapOutput(MapAttempt(map, attempt), worker, Totals(blocks=1, records=map))


@pytest.fixture
def registry() -> Registry:
    """Two workers, one application, one shuffle, map 0 committed at w1."""
    registry = Registry()
    for operation in (
        RegisterWorker(W1),
        RegisterWorker(W2),
        REGISTER,
        RegisterShuffle(SPEC),
        CommitMapOutput(ID, output(0)),
    ):
        registry.apply(operation)
    return registry


def refused(registry: Registry, operation: Operation, error: type[ShuffleError]) -> ShuffleError:
    """Apply an operation that must be refused and must leave the registry unchanged."""
    before = copy.deepcopy(registry)
    with pytest.raises(error) as raised:
        registry.apply(operation)
    assert registry == before
    return raised.value


def test_first_commit_is_announced_and_its_repetition_is_not(registry: Registry) -> None:
    commit = CommitMapOutput(ID, output(1))
    assert registry.apply(commit) == (MapOutputCommitted(ID, output(1)),)
    assert registry.apply(commit) == ()
    assert registry.map_output(ID, 1) == output(1)


def test_commit_of_a_superseded_attempt_names_the_winner(registry: Registry) -> None:
    error = refused(registry, CommitMapOutput(ID, output(0, 1, "w2")), AttemptSuperseded)
    assert (error.output, error.worker) == (MapAttempt(0, 0), "w1")


def test_commit_at_a_worker_that_is_not_registered_is_refused(registry: Registry) -> None:
    refused(registry, CommitMapOutput(ID, output(1, worker="w9")), StaleEpoch)


def test_commit_into_an_unknown_shuffle_is_refused(registry: Registry) -> None:
    refused(registry, CommitMapOutput(ShuffleId("app", 2), output(0)), UnknownShuffle)
    refused(registry, LoseMapOutput(ShuffleId("app", 2), MapAttempt(0, 0), "x"), UnknownShuffle)


def test_map_numbers_may_be_sparse(registry: Registry) -> None:
    registry.apply(CommitMapOutput(ID, output(10**12)))
    assert registry.map_outputs(ID) == ([output(0), output(10**12)], None)


def test_expired_never_written_and_lost_are_three_errors(registry: Registry) -> None:
    registry.apply(LoseMapOutput(ID, MapAttempt(0, 0), "disk broke"))
    with pytest.raises(MapOutputLost, match="disk broke"):
        registry.map_output(ID, 0)
    with pytest.raises(MapOutputNotWritten):
        registry.map_output(ID, 1)
    registry.apply(ExpireApps(("app",)))
    for map in (0, 1):
        with pytest.raises(AppExpired):
            registry.map_output(ID, map)


def test_lost_output_is_announced_once_and_listed(registry: Registry) -> None:
    lost = LostOutput(ID, output(0), "disk broke")
    assert registry.apply(LoseMapOutput(ID, MapAttempt(0, 0), "disk broke")) == (lost,)
    assert registry.apply(LoseMapOutput(ID, MapAttempt(0, 0), "disk broke")) == ()
    assert registry.lost(ID) == [lost]
    assert registry.lost(ID, first=1) == []
    assert registry.map_outputs(ID) == ([], None)
    refused(registry, CommitMapOutput(ID, output(0)), MapOutputLost)


def test_losing_a_worker_loses_what_it_holds_and_nothing_else(registry: Registry) -> None:
    registry.apply(CommitMapOutput(ID, output(1, worker="w2")))
    registry.apply(CommitMapOutput(ID, output(2)))
    lost = (LostOutput(ID, output(0), "power cut"), LostOutput(ID, output(2), "power cut"))
    assert registry.apply(LoseWorker("w1", "power cut")) == (WorkerLost(W1, "power cut"), *lost)
    assert registry.map_outputs(ID) == ([output(1, worker="w2")], None)
    assert registry.workers() == [W2]
    assert registry.apply(LoseWorker("w1", "power cut")) == ()


def test_worker_that_registers_again_is_updated_and_keeps_its_outputs(registry: Registry) -> None:
    moved = WorkerInfo("w1", "elsewhere", 9, free_bytes=5)
    assert registry.apply(RegisterWorker(moved)) == ()
    assert registry.worker("w1") == moved
    assert registry.map_output(ID, 0).worker == "w1"


def test_unknown_worker_is_refused_with_some_of_those_known(registry: Registry) -> None:
    with pytest.raises(InvalidArgument, match="'w9'.*known: w1, w2$"):
        registry.worker("w9")
    for number in range(1000):
        registry.apply(RegisterWorker(WorkerInfo(f"v{number}", "host", 1)))
    with pytest.raises(InvalidArgument) as raised:
        registry.worker("w9")
    assert len(raised.value.remedy) < 200


def test_unregistered_shuffle_is_announced_once_and_unknown_after(registry: Registry) -> None:
    assert registry.apply(UnregisterShuffle(ID)) == (ShuffleRemoved(ID),)
    assert registry.apply(UnregisterShuffle(ID)) == ()
    with pytest.raises(UnknownShuffle):
        registry.spec(ID)
    assert registry.shuffles() == []


def test_registering_a_shuffle_again_is_a_no_op_and_with_other_properties_refused(registry: Registry) -> None:
    assert registry.apply(RegisterShuffle(SPEC)) == ()
    assert registry.map_output(ID, 0) == output(0)
    refused(registry, RegisterShuffle(ShuffleSpec(ID, 5, 3)), ShuffleExists)


def test_number_has_one_generation_at_a_time_and_the_first_registration_counts(registry: Registry) -> None:
    first, second = (replace(SPEC, id=ShuffleId("app", 7, generation)) for generation in (11, 12))
    registry.apply(RegisterShuffle(first))
    registry.apply(RegisterShuffle(second))  # the same call again, for which another one was drawn
    assert registry.spec(ShuffleId("app", 7)) == registry.spec(first.id) == first
    assert (registry.is_registered(first.id), registry.is_registered(second.id)) == (True, False)
    error = refused(registry, CommitMapOutput(second.id, output(0)), UnknownShuffle)
    assert "generation 12 of the shuffle is over, 11 is registered" in error.message


def test_generation_that_is_over_is_refused_and_ends_no_other(registry: Registry) -> None:
    first, second = (replace(SPEC, id=ShuffleId("app", 7, generation)) for generation in (11, 12))
    registry.apply(RegisterShuffle(first))
    registry.apply(CommitMapOutput(first.id, output(0)))
    assert registry.apply(UnregisterShuffle(first.id)) == (ShuffleRemoved(first.id),)
    registry.apply(RegisterShuffle(second))
    refused(registry, CommitMapOutput(first.id, output(0)), UnknownShuffle)
    refused(registry, LoseMapOutput(first.id, MapAttempt(0, 0), "x"), UnknownShuffle)
    assert registry.apply(UnregisterShuffle(first.id)) == ()
    assert registry.map_outputs(ShuffleId("app", 7)) == ([], None)
    assert registry.apply(UnregisterShuffle(ShuffleId("app", 7))) == (ShuffleRemoved(second.id),)
    restored = Registry()
    for operation in registry.operations():
        restored.apply(operation)
    assert restored == registry


def test_shuffle_of_an_unknown_application_is_refused(registry: Registry) -> None:
    refused(registry, RegisterShuffle(ShuffleSpec(ShuffleId("other", 1), 1, 1)), UnknownApp)
    with pytest.raises(UnknownShuffle):
        registry.spec(ShuffleId("other", 1))


def test_end_of_an_application_removes_its_shuffles_first(registry: Registry) -> None:
    registry.apply(RegisterApp("other", "run-1", ""))
    registry.apply(RegisterShuffle(ShuffleSpec(ShuffleId("other", 1), 1, 1)))
    assert registry.apply(UnregisterApp("app")) == (ShuffleRemoved(ID), AppRemoved("app", "unregistered"))
    assert registry.apply(UnregisterApp("app")) == ()
    assert [spec.id.app for spec in registry.shuffles()] == ["other"]
    assert registry.shuffles("app") == []
    with pytest.raises(UnknownApp):
        registry.app("app")


def test_expiry_removes_silent_applications_with_their_shuffles(registry: Registry) -> None:
    registry.apply(RegisterApp("other", "run-1", ""))
    assert registry.apply(ExpireApps(("app",))) == (ShuffleRemoved(ID), AppRemoved("app", "expired"))
    assert registry.apply(ExpireApps(("app",))) == ()
    assert [record.app for record in registry.apps()] == ["other"]


def test_what_an_expired_application_sends_late_is_refused_as_expired(registry: Registry) -> None:
    registry.apply(ExpireApps(("app",)))
    for late in (
        RegisterShuffle(SPEC),
        CommitMapOutput(ID, output(1)),
        LoseMapOutput(ID, MapAttempt(0, 0), "x"),
    ):
        refused(registry, late, AppExpired)
    assert registry.apply(UnregisterShuffle(ID)) == ()
    assert registry.apply(UnregisterApp("app")) == ()


def test_another_run_with_a_live_id_is_refused(registry: Registry) -> None:
    refused(registry, RegisterApp("app", "run-2", ""), AppExists)
    assert registry.app("app").instance == "run-1"


def test_next_run_of_an_expired_id_sees_nothing_of_the_first(registry: Registry) -> None:
    registry.apply(ExpireApps(("app",)))
    registry.apply(RegisterApp("app", "run-2", ""))
    with pytest.raises(UnknownShuffle):
        registry.map_output(ID, 0)


def test_pages_say_where_the_next_begins(registry: Registry) -> None:
    for map in (2, 1):
        registry.apply(CommitMapOutput(ID, output(map)))
    assert registry.map_outputs(ID, limit=2) == ([output(0), output(1)], 2)
    assert registry.map_outputs(ID, first=2, limit=2) == ([output(2)], None)
    assert registry.map_outputs(ID, first=0, end=2, limit=2) == ([output(0), output(1)], None)


def test_registries_are_compared_by_content_and_not_hashable(registry: Registry) -> None:
    assert Registry() == Registry()
    assert registry != Registry()
    assert registry != "registry"
    with pytest.raises(TypeError):
        hash(registry)
