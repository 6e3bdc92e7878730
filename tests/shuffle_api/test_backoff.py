"""Pauses between attempts: how long they are, and when there are no more."""

from __future__ import annotations

from shuffle_api.backoff import Backoff


class Time:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def pauses(backoff: Backoff, time: Time, most: int = 100) -> list[float]:
    found: list[float] = []
    while len(found) < most and (pause := backoff.pause()) is not None:
        found.append(pause)
        time.now += pause
    return found


def test_pauses_double_up_to_the_longest_and_end_before_the_deadline() -> None:
    time = Time()
    backoff = Backoff(10.0, initial=0.5, maximum=4.0, clock=time, fraction=lambda: 1.0)
    assert pauses(backoff, time) == [0.5, 1.0, 2.0, 4.0]


def test_each_is_a_random_part_of_the_longest() -> None:
    time = Time()
    parts = iter([0.5, 0.0, 0.25])
    backoff = Backoff(10.0, initial=1.0, maximum=4.0, clock=time, fraction=lambda: next(parts))
    assert pauses(backoff, time, 3) == [0.5, 0.0, 1.0]


def test_progress_begins_anew() -> None:
    time = Time()
    backoff = Backoff(1.0, initial=0.5, clock=time, fraction=lambda: 1.0)
    assert pauses(backoff, time) == [0.5]
    backoff.progress()
    assert pauses(backoff, time) == [0.5]


def test_without_time_there_is_no_second_attempt() -> None:
    assert Backoff(0.0, fraction=lambda: 0.0).pause() is None
