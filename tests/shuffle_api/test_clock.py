"""The clock of decisions about who is still there."""

from __future__ import annotations

import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.clock import ServingClock, Silence, boot_seconds

JUMPS = st.lists(st.floats(-1e6, 1e6), max_size=30)


class Source:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def readings(cap: float, jumps: list[float]) -> list[float]:
    source = Source()
    clock = ServingClock(cap, source)
    found = [clock()]
    for jump in jumps:
        source.now += jump
        found.append(clock())
    return found


def test_it_runs_as_its_source_while_it_is_looked_at() -> None:
    assert readings(5.0, [1.0, 5.0, 0.0, 2.0]) == [1000.0, 1001.0, 1006.0, 1006.0, 1008.0]


def test_a_span_without_a_look_counts_for_the_cap() -> None:
    assert readings(5.0, [600.0, 1.0]) == [1000.0, 1005.0, 1006.0]


def test_a_source_that_is_set_back_counts_for_nothing() -> None:
    assert readings(5.0, [-600.0, 1.0]) == [1000.0, 1000.0, 1001.0]


@given(st.floats(0.01, 100.0), JUMPS)
def test_it_never_goes_back_and_never_leaps(cap: float, jumps: list[float]) -> None:
    steps = [later - earlier for earlier, later in pairwise(readings(cap, jumps))]
    assert all(0.0 <= step <= cap * (1 + 1e-6) for step in steps)


def test_seconds_since_the_start_do_not_stand_still() -> None:
    before = boot_seconds()
    time.sleep(0.002)
    assert boot_seconds() > before


def test_silence_counts_between_looks_at_a_sign_that_stays_the_same() -> None:
    source = Source()
    silence = Silence(5.0, source)
    assert silence.look("a") == 0.0
    source.now += 3.0
    assert silence.look("a") == 3.0
    source.now += 600.0
    assert silence.look("a") == 8.0
    source.now -= 600.0
    assert silence.look("a") == 8.0
    source.now += 3.0
    assert silence.look("b") == 0.0
