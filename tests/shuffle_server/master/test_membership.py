"""Who is a worker, and where the next map output goes: with a clock of its own, without processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial

import pytest

from shuffle_api.errors import InvalidArgument, MapOutputLost, ShuffleError, StaleEpoch
from shuffle_api.registry import CommitMapOutput, LoseMapOutput, RegisterApp, RegisterShuffle, RegisterWorker
from shuffle_api.registry.operations import Operation
from shuffle_api.values import ShuffleSpec, WorkerInfo
from shuffle_server.master.master import Check, Master, Outcome
from shuffle_server.master.membership import Membership
from shuffle_server.master.placement import Wish
from shuffle_server.master.worker_checks import check_held_elsewhere, check_present
from shuffle_server.master.worker_record import FULL_BYTES
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.master.scene import SHUFFLE, commit
from tests.stepped_clock import SteppedClock

ROOM = FULL_BYTES * 4


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def master() -> Iterator[Master]:
    with closing(Master(None)) as master:
        master.apply_all([RegisterApp("app", "i", ""), RegisterShuffle(ShuffleSpec(SHUFFLE, 4, 2))])
        yield master


@pytest.fixture
def membership(master: Master, clock: SteppedClock) -> Membership:
    return Membership(master, 60.0, clock=clock)


def worker(id: str, host: str = "h", incarnation: int = 1, free: int = ROOM) -> WorkerInfo:
    return WorkerInfo(id, host, 1, free, incarnation)


def order(membership: Membership, host: str = "", avoid: tuple[str, ...] = ()) -> list[str]:
    return [each.info.id for each in membership.place(Wish(host, avoid=frozenset(avoid))).candidates]


def test_a_silent_worker_is_given_up_with_what_lies_there(
    master: Master, membership: Membership, clock: SteppedClock
) -> None:
    for id in ("w", "v"):
        assert not membership.join(worker(id))
    master.apply(commit(0))
    for _ in range(4):
        clock.now += 15
        membership.heartbeat("v", 1, ROOM, pb.WorkerStatus())
        assert membership.expire() == []
    clock.now += 15
    assert membership.expire() == ["w"]
    with pytest.raises(MapOutputLost, match="silent for 75 s"):
        master.registry.map_output(SHUFFLE, 0)
    with pytest.raises(StaleEpoch):
        membership.heartbeat("w", 1, ROOM, pb.WorkerStatus())
    assert not membership.join(worker("w"))
    assert sorted(order(membership)) == ["v", "w"]


def test_the_later_life_of_a_worker_fences_the_earlier_one(master: Master, membership: Membership) -> None:
    membership.join(worker("w", incarnation=1))
    assert membership.join(worker("w", incarnation=2))
    with pytest.raises(StaleEpoch):
        membership.heartbeat("w", 1, ROOM, pb.WorkerStatus())
    with pytest.raises(StaleEpoch, match="two processes"):
        membership.join(worker("w", incarnation=1))
    check_present(master, "w", 2)
    for id, incarnation in (("w", 1), ("stranger", 2)):
        with pytest.raises(StaleEpoch):
            check_present(master, id, incarnation)


def test_a_master_that_was_away_holds_it_against_nobody(
    master: Master, membership: Membership, clock: SteppedClock
) -> None:
    membership.join(worker("w"))
    clock.now += 1000
    again = Membership(master, 60.0, clock=clock)
    assert again.expire() == []
    assert again.join(worker("w", incarnation=2))


def test_a_master_that_stood_still_gives_up_who_stays_silent_and_nobody_else(
    membership: Membership, clock: SteppedClock
) -> None:
    for id in ("w", "v"):
        membership.join(worker(id))
    for _ in range(4):  # a worker that is really gone is given up even if every look is late
        clock.now += 1000  # stopped, then run again: the heartbeats of these seconds are yet to be read
        assert membership.expire() == []
        membership.heartbeat("v", 1, ROOM, pb.WorkerStatus())
    clock.now += 1
    assert membership.expire() == ["w"]


def test_a_worker_whose_heartbeats_are_refused_is_the_last_choice_and_is_not_given_up(
    membership: Membership, clock: SteppedClock
) -> None:
    for id in ("w", "v"):
        membership.join(worker(id))
    for _ in range(20):
        clock.now += 15
        membership.heartbeat("v", 1, ROOM, pb.WorkerStatus())
        membership.alive("w", 1)
        membership.alive("nobody", 1)
        assert membership.expire() == []
    assert order(membership) == ["v", "w"]
    assert membership.seen_recently() == {"v"}  # no copy is deleted for what may be only there
    for _ in range(5):
        clock.now += 15
        membership.heartbeat("v", 1, ROOM, pb.WorkerStatus())
        membership.alive("w", 0)  # an earlier life of it
        lost = membership.expire()
    assert lost == ["w"]


def test_a_worker_that_is_heard_of_while_others_are_given_up_is_kept(
    master: Master, membership: Membership, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id in ("w", "v"):
        membership.join(worker(id))
    for _ in range(4):
        clock.now += 15
        membership.expire()
    clock.now += 15
    apply = master.apply

    def slow(operation: Operation) -> None:
        apply(operation)
        membership.heartbeat("w", 1, ROOM, pb.WorkerStatus())

    monkeypatch.setattr(master, "apply", slow)
    assert membership.expire() == ["v"]
    assert [member.info.id for member in membership.records()] == ["w"]


def test_outputs_go_to_the_maps_own_host_else_to_who_is_least_busy_and_has_most_room(membership: Membership) -> None:
    membership.join(worker("a", host="x", free=ROOM))
    membership.join(worker("b", host="y", free=ROOM + 1))
    membership.join(worker("c", host="y", free=ROOM + 2))
    assert order(membership, host="x")[0] == "a"
    assert order(membership, host="elsewhere") == ["c", "b", "a"]  # a has been given one, and now all have one more
    assert order(membership, host="elsewhere") == ["c", "b", "a"]
    membership.heartbeat("a", 1, ROOM, pb.WorkerStatus(open_pushes=3))
    membership.heartbeat("b", 1, ROOM, pb.WorkerStatus(open_pulls=2))
    assert order(membership) == ["c", "b", "a"]
    assert order(membership, avoid=("c",))[-1] == "c"


def test_full_silent_and_draining_workers_are_the_last_choice_or_none(
    membership: Membership, clock: SteppedClock
) -> None:
    membership.join(worker("full", host="x", free=FULL_BYTES - 1))
    membership.join(worker("late", host="x"))
    membership.join(worker("going", host="x"))
    membership.drain("going")
    for _ in range(2):
        clock.now += 15
        membership.expire()
    membership.join(worker("good", host="y"))
    membership.heartbeat("full", 1, FULL_BYTES - 1, pb.WorkerStatus())
    assert order(membership, host="x") == ["good", "full", "late"]
    membership.heartbeat("late", 1, ROOM, pb.WorkerStatus())
    assert order(membership, host="x")[0] == "late"
    membership.join(worker("going", host="x", incarnation=2))  # another life, which was not told to leave
    assert "going" in order(membership)


def test_a_drained_worker_may_leave_when_nothing_lies_there_only(master: Master, membership: Membership) -> None:
    for id in ("w", "v"):
        membership.join(worker(id))
    master.apply(commit(0))
    membership.drain("w")
    assert membership.heartbeat("w", 1, ROOM, pb.WorkerStatus()).draining
    assert not membership.heartbeat("v", 1, ROOM, pb.WorkerStatus()).draining
    with pytest.raises(InvalidArgument, match="1 map outputs lie only at worker w"):
        membership.leave_empty("w", 1)
    assert membership.record("w").draining
    output = commit(0).output
    master.apply(CommitMapOutput(SHUFFLE, output.at("v")))
    with pytest.raises(StaleEpoch):
        membership.leave_empty("w", 2)
    membership.leave_empty("w", 1)
    assert master.registry.map_output(SHUFFLE, 0) == output.at("v")
    assert membership.has_left("w")
    with pytest.raises(InvalidArgument, match="no worker 'w'"):
        membership.drain("w")
    membership.join(worker("w", incarnation=2))
    assert not membership.has_left("w")


def test_a_worker_does_not_leave_what_it_holds_to_one_that_may_be_dead(
    master: Master, membership: Membership, clock: SteppedClock
) -> None:
    for id in ("w", "v"):
        membership.join(worker(id))
    output = commit(0).output
    master.apply_all([CommitMapOutput(SHUFFLE, output.at(id)) for id in ("w", "v")])
    clock.now += 10.0  # v was killed for good, and is not given up before 60 s
    membership.heartbeat("w", 1, ROOM, pb.WorkerStatus())
    assert membership.seen_recently() == {"w"}
    with pytest.raises(InvalidArgument, match="1 map outputs lie only at worker w, or at workers that are silent"):
        membership.leave_empty("w", 1)
    assert master.registry.map_output(SHUFFLE, 0).workers == ("w", "v")
    membership.heartbeat("v", 1, ROOM, pb.WorkerStatus())
    membership.leave_empty("w", 1)
    assert master.registry.map_output(SHUFFLE, 0).workers == ("v",)


@pytest.mark.parametrize("sure", [set(), {"x"}, {"v"}])
def test_an_output_is_released_only_where_one_that_is_heard_of_holds_it(master: Master, sure: set[str]) -> None:
    output = commit(0).output
    for id in ("w", "v"):
        master.apply(RegisterWorker(worker(id)))
        master.apply(CommitMapOutput(SHUFFLE, output.at(id)))
    release = LoseMapOutput(SHUFFLE, output.output, "released", "w")
    (outcome,) = master.apply_all([release], partial(check_held_elsewhere, sure))
    assert isinstance(outcome, InvalidArgument) == ("v" not in sure)
    assert master.registry.map_output(SHUFFLE, 0).workers == (("v",) if "v" in sure else ("w", "v"))


def test_who_drains_is_remembered_by_the_worker_where_the_master_forgot(membership: Membership) -> None:
    membership.join(worker("w"), draining=True)
    assert order(membership) == []
    assert membership.heartbeat("w", 1, ROOM, pb.WorkerStatus()).draining


def test_the_worker_in_the_masters_process_is_not_drained(membership: Membership) -> None:
    membership.join(worker("w"), local=True)
    with pytest.raises(InvalidArgument, match="in the master's process"):
        membership.drain("w")


def test_a_worker_counts_as_heard_of_by_every_second_that_passed_the_master_itself_stopped_or_not(
    membership: Membership, clock: SteppedClock
) -> None:
    membership.join(worker("w"))
    assert membership.seen_recently() == {"w"}
    clock.now += 1000  # the master was stopped: the state of the worker is unknown
    assert membership.seen_recently() == set()
    assert membership.expire() == []


class Steps:
    """How many outputs a master gives up at a time."""

    def __init__(self, master: Master, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        real = master.apply_all

        def apply_all(operations: Sequence[Operation], check: Check | None = None) -> list[Outcome]:
            outcomes = real(operations, check)
            self.sizes.append(sum(len(each) for each in outcomes if not isinstance(each, ShuffleError)))
            return outcomes

        monkeypatch.setattr(master, "apply_all", apply_all)
        monkeypatch.setattr("shuffle_server.master.membership.LOST_AT_ONCE", 10)


def test_a_worker_with_many_outputs_is_given_up_in_steps(
    master: Master, membership: Membership, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for id in ("w", "v"):
        membership.join(worker(id))
    for map in range(64):
        master.apply(commit(map))
    master.apply(CommitMapOutput(SHUFFLE, commit(0).output.at("v")))
    steps = Steps(master, monkeypatch)
    membership.leave("w", "silent")
    assert max(steps.sizes) == 10
    assert len(master.registry.losses(SHUFFLE)) == 63
    assert master.registry.map_output(SHUFFLE, 0).workers == ("v",)
    assert "63 map outputs lost, 1 with a copy elsewhere" in caplog.text


def test_a_drained_worker_with_many_outputs_leaves_in_steps_and_not_with_the_last_copy(
    master: Master, membership: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    for id in ("w", "v"):
        membership.join(worker(id))
    for map in range(32):
        master.apply(commit(map))
        if map:
            master.apply(CommitMapOutput(SHUFFLE, commit(map).output.at("v")))
    steps = Steps(master, monkeypatch)
    with pytest.raises(InvalidArgument, match="lies only at|lie only at"):
        membership.leave_empty("w", 1)
    assert not master.registry.losses(SHUFFLE)
    master.apply(CommitMapOutput(SHUFFLE, commit(0).output.at("v")))
    membership.leave_empty("w", 1)
    assert max(steps.sizes) == 10
    assert [output.workers for output in master.registry.map_outputs(SHUFFLE)[0]] == [("v",)] * 32
