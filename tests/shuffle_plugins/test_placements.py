"""One answer of the master for all outputs of some seconds, and what is known of workers: values, no processes."""

from __future__ import annotations

import pytest

from shuffle_plugins.remote.workers import Placements, WorkerTable
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.stepped_clock import SteppedClock


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def placements(clock: SteppedClock) -> Placements:
    return Placements(clock)


def answer(*ids: str, in_turn: int, good_for_ms: int = 5000) -> pb.PlaceReply:
    return pb.PlaceReply(workers=[pb.Worker(id=id) for id in ids], in_turn=in_turn, good_for_ms=good_for_ms)


def test_outputs_go_to_the_good_candidates_in_turn_while_the_answer_holds(
    placements: Placements, clock: SteppedClock
) -> None:
    assert placements.choose() is None
    placements.answered(answer("a", "b", "c", in_turn=2))
    chosen = [placements.choose() for _ in range(6)]
    assert sorted(filter(None, chosen)) == ["a"] * 3 + ["b"] * 3
    clock.now += 6
    assert placements.choose() is None


def test_an_answer_that_does_not_hold_is_for_one_output(placements: Placements) -> None:
    placements.answered(answer("a", in_turn=1, good_for_ms=0))
    assert placements.choose() is None


def test_a_server_that_says_nothing_of_turns_means_the_first(placements: Placements) -> None:
    placements.answered(answer("a", "b", in_turn=0))
    assert [placements.choose() for _ in range(3)] == ["a"] * 3


def test_when_all_candidates_have_failed_the_master_is_asked_anew_without_them(
    placements: Placements, clock: SteppedClock
) -> None:
    placements.answered(answer("a", "b", "c", in_turn=2))
    placements.failed("b")
    assert [placements.choose() for _ in range(2)] == ["a"] * 2
    assert placements.choose(["a"]) == "c"
    assert placements.choose(["c"]) is None
    assert placements.to_avoid(["x"]) == ["x", "b", "a", "c"]
    placements.answered(answer("d", in_turn=1))
    assert placements.choose() == "d"
    clock.now += 6
    assert placements.to_avoid([]) == []


def changes(
    version: int, *workers: str, gone: tuple[str, ...] = (), whole: bool = False, epoch: int = 1
) -> pb.HelloReply:
    listed = [pb.Worker(id=id, host="h", port=1, draining=id.startswith("d")) for id in workers]
    return pb.HelloReply(changes=pb.WorkerChanges(epoch=epoch, version=version, all=whole, workers=listed, gone=gone))


def test_a_table_follows_changes_and_begins_anew_with_a_whole_list() -> None:
    table = WorkerTable()
    table.learn(changes(5, "a", "d1", whole=True))
    assert table.draining() == {"d1"}
    assert (table.known().epoch, table.known().version) == (1, 5)
    table.learn(changes(7, "b", gone=("a",)))
    assert table.get("a") is None
    assert table.get("b") is not None
    table.learn(changes(6, "late"))
    assert table.get("late") is None
    table.learn(changes(1, "c", whole=True, epoch=2))
    assert table.get("b") is None
    assert table.get("c") is not None
    assert table.draining() == set()


def test_a_table_adds_the_workers_that_a_server_of_an_earlier_release_lists() -> None:
    table = WorkerTable()
    table.learn(pb.HelloReply(workers=[pb.Worker(id="a", host="h", port=1)]))
    assert table.get("a") is not None
    assert table.known() == pb.WorkersKnown()


def test_answers_one_after_the_other_do_not_begin_with_one_worker_each_time(placements: Placements) -> None:
    """So do those of tasks that begin at the same time and each ask the master."""
    chosen = []
    for _ in range(6):
        placements.answered(answer("a", "b", in_turn=2))
        chosen.append(placements.choose())
    assert sorted(filter(None, chosen)) == ["a"] * 3 + ["b"] * 3
