"""Instruments: what is fed in comes out, and a watched pull is the same pull."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Generator

import pytest

from shuffle_api.errors import StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry.events import AppRemoved, LostOutput, ShuffleRemoved
from shuffle_api.values import MapOutput, Totals
from shuffle_server.observe.instruments import Instruments

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="nowhere")


def value(instruments: Instruments, name: str, **labels: str) -> float:
    found = instruments.registry.get_sample_value(f"flight_shuffle_{name}", labels)
    assert found is not None
    return found


def test_pushes_are_open_inside_and_counted_by_their_outcome() -> None:
    instruments = Instruments()
    with instruments.push() as push:
        assert instruments.traffic.totals().open_pushes == 1
        push.completed()
    with instruments.push() as push:
        push.refused()
    with pytest.raises(ConnectionError), instruments.push():
        raise ConnectionError
    assert instruments.traffic.totals().open_pushes == 0
    assert [value(instruments, "push_seconds_count", outcome=o) for o in ("completed", "refused", "broken")] == [1] * 3


def test_refusals_are_counted_by_endpoint_and_code_and_shown_before_the_first() -> None:
    instruments = Instruments()
    instruments.refused("data", StorageFull("full"))
    assert value(instruments, "refusals_total", endpoint="data", code="STORAGE_FULL") == 1
    assert value(instruments, "refusals_total", endpoint="control", code="STORAGE_FULL") == 0


def test_events_of_the_master_are_counted() -> None:
    instruments = Instruments()
    shuffle = ShuffleId("a", 1)
    instruments.happened(LostOutput(shuffle, MapOutput(MapAttempt(0, 0), "w", Totals()), "deleted"))
    instruments.happened(AppRemoved("a", "expired"))
    instruments.happened(ShuffleRemoved(shuffle))
    assert value(instruments, "map_outputs_lost_total") == 1
    assert value(instruments, "apps_removed_total", reason="expired") == 1
    assert value(instruments, "apps_removed_total", reason="unregistered") == 0


def test_a_watched_pull_yields_the_same_in_the_context_it_was_asked_in() -> None:
    instruments = Instruments()
    seen: list[str] = []

    def messages() -> Generator[int, None, None]:
        for number in range(3):
            seen.append(PLACE.get())
            yield number

    PLACE.set("here")
    pull = instruments.pull(messages(), time.monotonic())
    got: list[int] = []
    thread = threading.Thread(target=lambda: got.extend(pull))  # Flight draws from a thread of its own
    thread.start()
    thread.join(60)
    assert (got, seen) == ([0, 1, 2], ["here"] * 3)
    assert value(instruments, "pull_first_byte_seconds_count") == 1
    assert instruments.traffic.totals().open_pulls == 0


def test_a_pull_that_is_left_closes_what_it_reads_from() -> None:
    instruments = Instruments()
    closed: list[bool] = []

    def messages() -> Generator[int, None, None]:
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    pull = instruments.pull(messages(), time.monotonic())
    assert next(pull) == 1
    assert instruments.traffic.totals().open_pulls == 1
    del pull
    assert closed == [True]
    assert instruments.traffic.totals().open_pulls == 0


def test_counts_of_many_threads_add_up() -> None:
    instruments = Instruments()

    def work() -> None:
        for _ in range(1000):
            instruments.traffic.pushed(2, 30, discarded=1)
            instruments.traffic.pulled(3, 40)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    totals = instruments.traffic.totals()
    assert (totals.pushed_messages, totals.pushed_blocks, totals.pushed_bytes) == (4000, 8000, 120_000)
    assert (totals.discarded_bytes, totals.pulled_messages) == (4000, 4000)
    assert (totals.pulled_blocks, totals.pulled_bytes) == (12_000, 160_000)
