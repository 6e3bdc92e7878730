"""A deadline that is set often: the timer thread learns of few, and misses none that passes."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from shuffle_transport.channels.timer_thread import Deadline, TimerThread
from tests.shuffle_transport.channels.helpers import TIMEOUT

SOON, NEVER, LONG_AGO = 0.02, 1000.0, -1.0


@pytest.fixture
def timers() -> Iterator[TimerThread]:
    timers = TimerThread("test-keeper")
    yield timers
    timers.close()


class Told(TimerThread):
    """A timer thread that comes when the test says so."""

    def __init__(self) -> None:
        super().__init__("told")
        self.guards: dict[object, tuple[float, Callable[[], None]]] = {}
        self.times = 0

    def begin(self, key: object, deadline: float, abort: Callable[[], None]) -> None:
        self.guards[key] = deadline, abort
        self.times += 1

    def end(self, key: object) -> None:
        self.guards.pop(key, None)

    def come(self) -> None:
        """At the time of the only guard."""
        ((_, look),) = self.guards.values()
        self.guards.clear()
        look()


def test_what_lasts_too_long_is_told_once_with_its_deadline(timers: TimerThread) -> None:
    passed: list[float] = []
    told = threading.Semaphore(0)

    def late(until: float) -> None:
        passed.append(until)
        told.release()

    deadline = Deadline(timers, late)
    until = time.monotonic() + SOON
    deadline.begin(until)
    assert told.acquire(timeout=TIMEOUT)
    assert not told.acquire(timeout=3 * SOON)
    assert passed == [until]


def test_what_ended_in_time_is_not_told_and_the_next_is(timers: TimerThread) -> None:
    passed: list[float] = []
    told = threading.Event()

    def late(until: float) -> None:
        passed.append(until)
        told.set()

    deadline = Deadline(timers, late)
    deadline.begin(time.monotonic() + SOON)
    deadline.end()
    assert not told.wait(3 * SOON)
    second = time.monotonic() + SOON
    deadline.begin(second)
    assert told.wait(TIMEOUT)
    assert passed == [second]


def test_an_earlier_deadline_than_the_keeper_knows_of_is_met(timers: TimerThread) -> None:
    told = threading.Event()
    deadline = Deadline(timers, lambda until: told.set())
    deadline.begin(time.monotonic() + NEVER)
    deadline.end()
    deadline.begin(time.monotonic() + SOON)
    assert told.wait(TIMEOUT)


def test_the_keeper_is_told_of_the_first_of_many_only() -> None:
    timers = Told()
    deadline = Deadline(timers, lambda until: None)
    for _ in range(1000):
        deadline.begin(time.monotonic() + NEVER)
        deadline.end()
    assert timers.times == 1


def test_a_keeper_that_comes_while_something_else_lasts_comes_again_at_its_deadline() -> None:
    timers = Told()
    passed: list[float] = []
    deadline = Deadline(timers, passed.append)
    deadline.begin(time.monotonic())
    deadline.end()
    until = time.monotonic() + NEVER
    deadline.begin(until)
    timers.come()
    assert [at for at, _ in timers.guards.values()] == [until]
    assert passed == []


def test_what_begins_while_the_keeper_looks_is_not_missed() -> None:
    timers = Told()
    deadline = Deadline(timers, lambda until: None)
    until = time.monotonic() + NEVER

    deadline.begin(LONG_AGO)
    deadline.end()
    telling = deadline._telling

    class Interrupted:
        """Something begins when the timer thread is about to say that it looks no more."""

        def __enter__(self) -> None:
            if not timers.guards and deadline.until == math.inf:
                deadline.until = until  # as `begin` does, whose comparison finds that the timer thread is to come
            telling.acquire()

        def __exit__(self, *error: object) -> None:
            telling.release()

    deadline._telling = Interrupted()  # type: ignore[assignment]
    timers.come()
    assert [at for at, _ in timers.guards.values()] == [until]


def test_a_closed_deadline_is_unknown_to_the_keeper_until_something_begins_again() -> None:
    timers = Told()
    deadline = Deadline(timers, lambda until: None)
    deadline.begin(time.monotonic() + NEVER)
    deadline.close()
    assert timers.guards == {}
    until = time.monotonic() + 2 * NEVER
    deadline.begin(until)
    assert [at for at, _ in timers.guards.values()] == [until]
