"""The keeper aborts what is overdue, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from shuffle_transport.exchange.keeper import Keeper
from tests.shuffle_transport.exchange.helpers import TIMEOUT

SOON = 0.02
AMPLE = 2.0  # seconds in which this thread surely gets to its next line, however busy the machine is


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    keeper = Keeper("test-keeper")
    yield keeper
    keeper.close()


def test_an_overdue_guard_aborts_once(keeper: Keeper) -> None:
    aborted = threading.Semaphore(0)
    keeper.begin("key", time.monotonic() + SOON, aborted.release)
    assert aborted.acquire(timeout=TIMEOUT)
    later = threading.Event()
    keeper.begin("other", time.monotonic() + SOON, later.set)
    assert later.wait(TIMEOUT)
    assert not aborted.acquire(blocking=False)


def test_a_guard_that_ended_in_time_does_nothing(keeper: Keeper) -> None:
    aborted, later = threading.Event(), threading.Event()
    due = time.monotonic() + AMPLE
    with keeper.guard(due, aborted.set):
        pass
    keeper.begin("later", due + SOON, later.set)
    assert later.wait(TIMEOUT)
    assert not aborted.is_set()


def test_a_guard_that_was_begun_anew_counts_from_then(keeper: Keeper) -> None:
    first, second = threading.Event(), threading.Event()
    due = time.monotonic() + AMPLE
    keeper.begin("key", due, first.set)
    keeper.begin("key", due + SOON, second.set)
    assert second.wait(TIMEOUT)
    assert not first.is_set()


def test_a_guard_with_an_earlier_deadline_wakes_the_keeper(keeper: Keeper) -> None:
    soon, late = threading.Event(), threading.Event()
    keeper.begin("late", time.monotonic() + 1000, late.set)
    time.sleep(SOON)  # it sleeps until then
    keeper.begin("soon", time.monotonic() + SOON, soon.set)
    assert soon.wait(TIMEOUT)
    assert not late.is_set()


def test_checks_say_when_they_want_to_be_called_again(keeper: Keeper) -> None:
    called = threading.Semaphore(0)

    def check(now: float) -> float:
        called.release()
        return now + SOON

    keeper.watch("key", check)
    for _ in range(3):
        assert called.acquire(timeout=TIMEOUT)
    keeper.forget("key")


def test_hurry_calls_all_checks(keeper: Keeper) -> None:
    called = threading.Semaphore(0)

    def check(now: float) -> float:
        called.release()
        return now + 1000

    keeper.watch("key", check)
    assert called.acquire(timeout=TIMEOUT)
    keeper.hurry()
    assert called.acquire(timeout=TIMEOUT)


def test_a_closed_keeper_has_no_thread() -> None:
    keeper = Keeper("closed-keeper")
    keeper.begin("key", time.monotonic() + 1000, lambda: None)
    keeper.close()
    keeper.close()
    assert "closed-keeper" not in [thread.name for thread in threading.enumerate()]
