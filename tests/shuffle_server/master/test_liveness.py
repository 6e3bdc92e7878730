"""Who is silent: heartbeats, looks and pauses in any order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shuffle_api.clock import LOOK_SHARE, LOOKS_PER_TIMEOUT
from shuffle_server.master.liveness import AppLiveness
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.stepped_clock import SteppedClock

TIMEOUT = 60.0
LOOK, BEAT = TIMEOUT / LOOKS_PER_TIMEOUT, TIMEOUT / 4
STEPS = st.lists(st.tuples(st.floats(0.0, LOOK), st.sampled_from([0.0, 0.0, 0.0, -500.0, 61.0, 1e6])), max_size=60)
"""What a master does: it serves for a while, then it may stand still, or its clock is set. Then it looks."""


@given(STEPS)
def test_an_application_that_beats_while_it_is_served_lives_and_a_silent_one_expires(
    steps: list[tuple[float, float]],
) -> None:
    clock = SteppedClock()
    liveness = AppLiveness(TIMEOUT, clock)
    for app in ("lively", "dead"):
        liveness.heard(app)
    served = unheard = stood = before = 0.0
    for seconds, pause in steps:
        clock.now += seconds
        served, unheard = served + seconds, unheard + seconds
        if unheard + LOOK > BEAT:  # the next chance may be a look away
            liveness.heard("lively")
            unheard, before = 0.0, stood
        clock.now += pause
        stood += min(max(0.0, pause), LOOK_SHARE * TIMEOUT)
        silent = liveness.silent(["lively", "dead"])
        if unheard + stood - before <= TIMEOUT:  # else it stood still four times without a chance for a heartbeat
            assert "lively" not in silent
        if served > TIMEOUT + 1e-6:
            assert "dead" in silent
        if served + stood <= TIMEOUT:
            assert "dead" not in silent


def test_one_that_was_never_heard_of_counts_as_heard_of_now() -> None:
    clock = SteppedClock()
    liveness = AppLiveness(TIMEOUT, clock)
    clock.now += 1000.0
    assert liveness.silent(["recovered"]) == []
    assert liveness.idle("recovered") == liveness.idle("stranger") == 0.0
    clock.now += LOOK
    assert liveness.idle("recovered") == LOOK


def test_applications_that_have_ended_are_forgotten() -> None:
    clock = SteppedClock()
    liveness = AppLiveness(TIMEOUT, clock)
    liveness.heard("app")
    clock.now += LOOK
    assert liveness.silent([]) == []
    assert liveness.idle("app") == 0.0


def test_a_driver_is_kept_until_its_application_has_ended() -> None:
    clock = SteppedClock()
    liveness = AppLiveness(TIMEOUT, clock)
    driver = pb.Driver(user="ann")
    for app in ("removed", "unseen", "lively"):
        liveness.heard(app, driver)
        liveness.heard(app)
    liveness.ended("removed")
    assert liveness.silent(["lively"]) == []
    assert [liveness.driver(app) for app in ("removed", "unseen", "lively")] == [None, None, driver]
