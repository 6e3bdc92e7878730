"""Lanes, bounds and the time that counts: what is refused, whose turn it is, and when silence counts."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.harness.cluster import wait_until
from shuffle_api.errors import Overloaded, ShuffleError
from shuffle_api.periodic import StreamThread
from shuffle_server.bounds import Bound
from shuffle_server.master import call_pool
from shuffle_server.master.call_pool import CallPool, QueuedCall, Refusals
from shuffle_server.master.half_open import CROWD, PATIENCE_SECONDS, HalfOpen
from shuffle_server.master.liveness import AppLiveness
from shuffle_server.master.serving import ServedTime
from tests.stepped_clock import SteppedClock

SECONDS = 60.0


class Work:
    """Jobs that wait until `go` is set; `done` has those that ran, `refused` why others did not."""

    def __init__(self) -> None:
        self.go, self.done, self.refused = threading.Event(), list[str](), list[ShuffleError]()
        self.running = threading.Semaphore(0)

    def job(self, caller: str) -> QueuedCall:
        def run() -> None:
            self.running.release()
            assert self.go.wait(SECONDS)
            self.done.append(caller)

        return QueuedCall(caller, run, self.refused.append)


def test_callers_take_turns_and_none_has_all_the_threads() -> None:
    work, pool = Work(), CallPool("test", 4, 1000, Refusals("full"))
    for _ in range(100):
        pool.offer(work.job("flood"))
    for _ in range(3):
        assert work.running.acquire(timeout=SECONDS)
    pool.offer(work.job("other"))
    assert work.running.acquire(timeout=SECONDS)  # it has the fourth thread at once
    pool.offer(work.job("third"))
    work.go.set()
    wait_until(lambda: len(work.done) == 102, "all are done")
    assert work.done.index("third") < 20
    assert pool.waiting == 0
    pool.close()


def test_a_lane_refuses_what_is_too_much_and_a_caller_has_half_of_it() -> None:
    refused = list[int]()
    work, pool = Work(), CallPool("test", 1, 10, Refusals("10 jobs wait", refused=lambda: refused.append(1)))
    pool.offer(work.job("flood"))
    assert work.running.acquire(timeout=SECONDS)
    for _ in range(5):
        pool.offer(work.job("flood"))
    with pytest.raises(Overloaded, match="10 jobs wait"):
        pool.offer(work.job("flood"))
    for number in range(5):
        pool.offer(work.job(f"other {number}"))
    with pytest.raises(Overloaded, match="10 jobs wait"):
        pool.offer(work.job("late"))
    assert len(refused) == 2
    work.go.set()
    wait_until(lambda: len(work.done) == 11, "all are done")
    pool.close()


def test_jobs_without_a_turn_are_refused_once_none_has_ended_for_so_long() -> None:
    work, pool = Work(), CallPool("test", 1, 10, Refusals("full", stuck_seconds=0.05, stuck="the disk hangs"))
    for _ in range(3):
        pool.offer(work.job("app"))

    def swept() -> bool:
        pool.sweep()
        return len(work.refused) == 2

    wait_until(swept, "the two that wait are refused")
    assert all("the disk hangs" in str(error) for error in work.refused)
    work.go.set()
    wait_until(lambda: work.done == ["app"], "the one that had its turn is done")
    pool.close()


def test_a_job_that_could_have_its_turn_is_not_refused_while_its_thread_is_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = list[threading.Thread]()
    monkeypatch.setattr(StreamThread, "start", lambda thread: started.append(thread))  # none gets to run
    work, pool = Work(), CallPool("test", 2, 10, Refusals("full", stuck_seconds=0.0, stuck="the disk hangs"))
    pool.offer(work.job("app"))
    pool.sweep()
    assert (work.refused, pool.waiting, len(started)) == ([], 1, 1)
    monkeypatch.undo()
    started[0].start()
    work.go.set()
    wait_until(lambda: work.done == ["app"], "it is done")
    pool.close()


def test_a_job_that_ends_with_a_bug_is_refused_and_its_thread_goes_on() -> None:
    work, pool = Work(), CallPool("test", 1, 10, Refusals("full"))
    work.go.set()

    def bug() -> None:
        raise KeyError("unexpected")

    pool.offer(QueuedCall("app", bug, work.refused.append))
    pool.offer(work.job("app"))
    wait_until(lambda: work.done == ["app"], "the next job is done")
    assert "KeyError" in str(work.refused[0])
    pool.close()


def test_a_bound_counts_each_owner_and_all_of_them() -> None:
    bound: Bound[str] = Bound("things are open", 2, 3, remedy="raise --things")
    for owner in ("a", "a", "b"):
        bound.enter(owner, f"owner {owner}")
    with pytest.raises(Overloaded, match=r"owner a: 2 things are open, the limit is 2.*--things"):
        bound.enter("a", "owner a")
    with pytest.raises(Overloaded, match=r"3 things are open, the limit is 3"):
        bound.enter("c", "owner c")
    bound.leave("a")
    bound.enter("c", "owner c")
    assert bound.count == 3


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=60))
def test_of_those_that_wait_the_oldest_make_room(steps: list[tuple[str, bool]]) -> None:
    waiting, model = HalfOpen[int](10.0, each=1, most=12), list[tuple[int, str]]()
    for number, (owner, leaves) in enumerate(steps):
        if leaves and model:
            waiting.remove(model.pop(0)[0])
        of_owner = [each for each in model if each[1] == owner]
        out = of_owner[0] if len(of_owner) >= CROWD else model[0] if len(model) >= 12 else None
        assert waiting.add(number, owner, number / 100) == (out[0] if out else None)
        model = [each for each in model if each != out] + [(number, owner)]
        assert len(waiting) == len(model)
    now = 10.0 + 0.25
    assert list(waiting.overdue(now)) == [number for number, _ in model if number <= 25]
    model = [each for each in model if each[0] > 25]
    gone = set(waiting.crowding(now))
    left = [each for each in model if each[0] not in gone]
    youngest = {owner: number for number, owner in model}
    assert gone == {number for number, _ in model} - set(youngest.values())
    assert len({owner for _, owner in left}) == len(left) == len(waiting)


def test_those_that_have_just_come_are_left_though_they_are_many() -> None:
    waiting = HalfOpen[int](10.0, each=1, most=100)
    for number in range(5):
        assert waiting.add(number, "a", 1.0 + number) is None
    assert list(waiting.crowding(3.0 + PATIENCE_SECONDS)) == [0, 1, 2]
    assert list(waiting.crowding(100.0)) == [3]
    assert not list(waiting.crowding(100.0))


# ------------------------------------------------------------------ the time in which silence counts


def living(clock: SteppedClock) -> tuple[ServedTime, Callable[[], bool]]:
    """The endpoint's time, and whether an application with a heartbeat just now is silent, after 10 s without one."""
    served = ServedTime(clock)
    liveness = AppLiveness(10.0, served)
    served.note()
    liveness.heard("app")
    return served, lambda: bool(liveness.silent(["app"]))


def test_silence_counts_while_signs_of_life_are_received() -> None:
    clock = SteppedClock()
    served, silent = living(clock)
    for _ in range(11):
        assert not silent()
        clock.now += 1.0
        served.note()
    assert silent()


@pytest.mark.parametrize("misses", [False, True])
def test_silence_does_not_count_while_the_endpoint_stands_still_or_refuses_signs_of_life(misses: bool) -> None:
    clock = SteppedClock()
    served, silent = living(clock)
    for _ in range(100):
        clock.now += 1.0
        if misses:
            served.miss()
            served.note()
        assert not silent()
    clock.now += 1.0
    served.note()  # it goes on; requests that came meanwhile are still unread
    assert not silent()


def test_a_machine_that_is_suspended_again_and_again_holds_it_against_nobody() -> None:
    clock = SteppedClock()
    served, silent = living(clock)
    for _ in range(9):
        clock.now += 3600.0
        served.note()
        assert not silent()


def test_every_second_counts_where_there_is_no_endpoint() -> None:
    clock = SteppedClock()
    served = ServedTime(clock)
    clock.now += 50.0
    assert served() == clock.now


def test_threads_that_have_nothing_to_do_end_but_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_pool, "IDLE_SECONDS", 0.05)
    work, pool = Work(), CallPool("idle-test", 8, 1000, Refusals("full"))
    for number in range(8):
        pool.offer(work.job(f"caller {number}"))
    for _ in range(8):
        assert work.running.acquire(timeout=SECONDS)
    work.go.set()

    def threads() -> int:
        return sum(thread.name == "control-idle-test" for thread in threading.enumerate())

    wait_until(lambda: threads() == 1, "one thread is left")
    for round in range(2, 50):
        for number in range(8):
            pool.offer(work.job(f"caller {number}"))
        wait_until(lambda done=8 * round: len(work.done) == done, "each job runs")  # type: ignore[misc]
    pool.close()
    wait_until(lambda: threads() == 0, "none is left")
