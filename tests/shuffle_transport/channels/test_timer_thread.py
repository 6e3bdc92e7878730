"""The timer thread aborts what is overdue, and nothing else."""

from __future__ import annotations

import gc
import queue
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from shuffle_transport.channels.timer_thread import TimerThread
from tests.processes import stopped
from tests.shuffle_transport.channels.helpers import TIMEOUT

SOON = 0.02
AMPLE = 2.0  # seconds in which this thread surely gets to its next line, however busy the machine is


@pytest.fixture
def timers() -> Iterator[TimerThread]:
    timers = TimerThread("test-keeper")
    yield timers
    timers.close()


def test_an_overdue_guard_aborts_once(timers: TimerThread) -> None:
    aborted = threading.Semaphore(0)
    timers.begin("key", time.monotonic() + SOON, aborted.release)
    assert aborted.acquire(timeout=TIMEOUT)
    later = threading.Event()
    timers.begin("other", time.monotonic() + SOON, later.set)
    assert later.wait(TIMEOUT)
    assert not aborted.acquire(blocking=False)


def test_nothing_is_aborted_before_its_deadline(timers: TimerThread) -> None:
    rung: queue.Queue[float] = queue.Queue()
    due = time.monotonic() + 5 * SOON
    timers.begin("key", due, lambda: rung.put(time.monotonic()))
    assert rung.get(timeout=TIMEOUT) >= due


def test_a_guard_that_ended_in_time_does_nothing(timers: TimerThread) -> None:
    aborted, later = threading.Event(), threading.Event()
    due = time.monotonic() + AMPLE
    with timers.guard(due, aborted.set):
        pass
    timers.begin("later", due + SOON, later.set)
    assert later.wait(TIMEOUT)
    assert not aborted.is_set()


def test_a_guard_that_was_begun_anew_counts_from_then(timers: TimerThread) -> None:
    first, second = threading.Event(), threading.Event()
    due = time.monotonic() + AMPLE
    timers.begin("key", due, first.set)
    timers.begin("key", due + SOON, second.set)
    assert second.wait(TIMEOUT)
    assert not first.is_set()


def test_a_guard_with_an_earlier_deadline_wakes_the_keeper(timers: TimerThread) -> None:
    soon, late = threading.Event(), threading.Event()
    timers.begin("late", time.monotonic() + 1000, late.set)
    time.sleep(SOON)  # it sleeps until then
    timers.begin("soon", time.monotonic() + SOON, soon.set)
    assert soon.wait(TIMEOUT)
    assert not late.is_set()


def test_checks_say_when_they_want_to_be_called_again(timers: TimerThread) -> None:
    called = threading.Semaphore(0)

    def check(now: float) -> float:
        called.release()
        return now + SOON

    timers.watch("key", check)
    for _ in range(3):
        assert called.acquire(timeout=TIMEOUT)
    timers.forget("key")


def test_hurry_calls_all_checks(timers: TimerThread) -> None:
    called = threading.Semaphore(0)

    def check(now: float) -> float:
        called.release()
        return now + 1000

    timers.watch("key", check)
    assert called.acquire(timeout=TIMEOUT)
    timers.hurry()
    assert called.acquire(timeout=TIMEOUT)


def test_a_check_is_called_when_it_wants_and_not_whenever_something_is_due(timers: TimerThread) -> None:
    calls = 0

    def check(now: float) -> float:
        nonlocal calls
        calls += 1
        return now + 1000

    timers.watch("key", check)
    for number in range(3):
        rung = threading.Event()
        timers.begin(number, time.monotonic() + SOON, rung.set)
        assert rung.wait(TIMEOUT)
    assert calls == 1


def test_hurry_counts_though_the_check_is_just_running(timers: TimerThread) -> None:
    called = threading.Semaphore(0)

    def check(now: float) -> float:
        called.release()
        if first:
            first.clear()
            timers.hurry()
        return now + 1000

    first = {"yes"}
    timers.watch("key", check)
    for _ in range(2):
        assert called.acquire(timeout=TIMEOUT)


def test_a_forgotten_check_is_not_called_again(timers: TimerThread) -> None:
    calls = 0

    def check(now: float) -> float:
        nonlocal calls
        calls += 1
        timers.forget("key")
        return now

    timers.watch("key", check)
    timers.watch("other", lambda now: now + 1000)
    timers.forget("other")
    rung = threading.Event()
    timers.begin("later", time.monotonic() + SOON, rung.set)
    assert rung.wait(TIMEOUT)
    timers.hurry()
    rung.clear()
    timers.begin("later", time.monotonic() + SOON, rung.set)
    assert rung.wait(TIMEOUT)
    assert calls == 1


def test_what_has_ended_is_not_kept(timers: TimerThread) -> None:
    class Key: ...

    keys = [Key() for _ in range(1000)]
    alive = [weakref.ref(key) for key in keys]
    timers.begin("it sleeps until then", time.monotonic() + 1000, lambda: None)
    while keys:
        key = keys.pop()
        timers.begin(key, time.monotonic() + 1000, lambda: None)
        timers.end(key)
        del key
    gc.collect()
    assert not any(ref() for ref in alive)
    assert len(timers._heap) < 100


def test_a_closed_keeper_has_no_thread() -> None:
    timers = TimerThread("closed-keeper")
    timers.begin("key", time.monotonic() + 1000, lambda: None)
    timers.close()
    timers.close()
    assert "closed-keeper" not in [thread.name for thread in threading.enumerate()]


SLEEPER = """
import sys, threading, time
from shuffle_transport.channels.timer_thread import TimerThread
keeper, aborted = TimerThread("test"), threading.Event()
with keeper.guard(time.monotonic() + 2.0, aborted.set):
    print("began", flush=True)
    sys.stdin.readline()
    time.sleep(0.3)
print(aborted.is_set(), flush=True)
keeper.begin("key", time.monotonic() + 0.1, aborted.set)
print(aborted.wait(30.0), flush=True)
keeper.close()
"""


def test_a_deadline_that_passed_while_the_process_was_stopped_has_a_moment_left() -> None:
    command = [sys.executable, "-c", SLEEPER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "began\n"
        with stopped(process.pid):
            time.sleep(4.0)
        said, _ = process.communicate("go on\n", timeout=60)
    assert said.splitlines() == ["False", "True"]
