"""The scribe does errands in order, each once, and pings in time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from shuffle_transport.exchange.scribe import Scribe
from tests.shuffle_transport.exchange.helpers import TIMEOUT


@pytest.fixture
def scribe() -> Iterator[Scribe]:
    scribe = Scribe("test-scribe")
    yield scribe
    scribe.close()


def test_errands_are_done_in_order_and_once_however_often_they_were_given(scribe: Scribe) -> None:
    done: list[str] = []
    busy, go_on, last = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        busy.set()
        go_on.wait(TIMEOUT)

    def second() -> None:
        done.append("second")

    def third() -> None:
        done.append("third")

    scribe.soon(first)
    assert busy.wait(TIMEOUT)
    for errand in (second, third, second, third):
        scribe.soon(errand)
    scribe.soon(last.set)
    go_on.set()
    assert last.wait(TIMEOUT)
    assert done == ["second", "third"]
    scribe.soon(second)
    scribe.close()
    assert done == ["second", "third", "second"]


def test_pings_come_every_half_of_the_time_until_they_are_forgotten(scribe: Scribe) -> None:
    pinged = threading.Semaphore(0)
    seen: list[float] = []

    def ping(silence: float) -> None:
        seen.append(silence)
        pinged.release()

    scribe.keep_alive("key", ping, 0.02)
    for _ in range(3):
        assert pinged.acquire(timeout=TIMEOUT)
    scribe.forget("key")
    assert set(seen) == {0.01}


def test_a_sooner_ping_does_not_wait_for_a_later_one(scribe: Scribe) -> None:
    sooner, later = threading.Event(), threading.Event()
    scribe.keep_alive("later", lambda _: later.set(), 1000)
    scribe.keep_alive("sooner", lambda _: sooner.set(), 0.02)
    assert sooner.wait(TIMEOUT)


def test_a_closed_scribe_has_no_thread() -> None:
    scribe = Scribe("closed-scribe")
    scribe.soon(lambda: None)
    scribe.close()
    scribe.close()
    assert "closed-scribe" not in [thread.name for thread in threading.enumerate()]
