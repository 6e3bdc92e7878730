"""The writer thread does writes in order, each once, and pings in time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from shuffle_transport.channels.writer_thread import WriterThread
from tests.shuffle_transport.channels.helpers import TIMEOUT


@pytest.fixture
def writer_thread() -> Iterator[WriterThread]:
    writer_thread = WriterThread("test-scribe")
    yield writer_thread
    writer_thread.close()


def test_errands_are_done_in_order_and_once_however_often_they_were_given(writer_thread: WriterThread) -> None:
    done: list[str] = []
    busy, go_on, last = threading.Event(), threading.Event(), threading.Event()

    def first() -> None:
        busy.set()
        go_on.wait(TIMEOUT)

    def second() -> None:
        done.append("second")

    def third() -> None:
        done.append("third")

    writer_thread.soon(first)
    assert busy.wait(TIMEOUT)
    for write in (second, third, second, third):
        writer_thread.soon(write)
    writer_thread.soon(last.set)
    go_on.set()
    assert last.wait(TIMEOUT)
    assert done == ["second", "third"]
    writer_thread.soon(second)
    writer_thread.close()
    assert done == ["second", "third", "second"]


def test_pings_come_every_half_of_the_time_until_they_are_forgotten(writer_thread: WriterThread) -> None:
    pinged = threading.Semaphore(0)
    seen: list[float] = []

    def ping(silence: float) -> None:
        seen.append(silence)
        pinged.release()

    writer_thread.keep_alive("key", ping, 0.02)
    for _ in range(3):
        assert pinged.acquire(timeout=TIMEOUT)
    writer_thread.forget("key")
    assert set(seen) == {0.01}


def test_a_sooner_ping_does_not_wait_for_a_later_one(writer_thread: WriterThread) -> None:
    sooner, later = threading.Event(), threading.Event()
    writer_thread.keep_alive("later", lambda _: later.set(), 1000)
    writer_thread.keep_alive("sooner", lambda _: sooner.set(), 0.02)
    assert sooner.wait(TIMEOUT)


def test_a_closed_scribe_has_no_thread() -> None:
    writer_thread = WriterThread("closed-scribe")
    writer_thread.soon(lambda: None)
    writer_thread.close()
    writer_thread.close()
    assert "closed-scribe" not in [thread.name for thread in threading.enumerate()]
