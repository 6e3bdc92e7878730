"""A lease on two clocks: the leader falls silent before a standby takes over, whatever stands still meanwhile."""

from __future__ import annotations

import random

from shuffle_api.clock import ServingClock
from shuffle_server.master.postgres.session import (
    LEASE_SECONDS,
    LOOK_CAP_SECONDS,
    LOOK_SECONDS,
    RENEW_SECONDS,
    VALID_SECONDS,
    HeldLease,
    SeenLease,
)


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def looks(seen: SeenLease, time: Time, renewal: object, seconds: float, *, every: float = LOOK_SECONDS) -> bool:
    """What the last of the looks says that a standby takes for so long."""
    lapsed, end = False, time.now + seconds
    while time.now < end:
        time.now += every
        seen.ask()
        lapsed = seen.answer(renewal)
    return lapsed


def standby(time: Time) -> SeenLease:
    return SeenLease(ServingClock(LOOK_CAP_SECONDS, time))


def test_a_lease_is_valid_from_the_question_of_its_last_renewal_on() -> None:
    time = Time()
    held = HeldLease(time)
    valid = [held.valid]
    asked = held.now()
    time.now += 3.0  # the answer takes so long
    held.renewed(asked)
    valid.append(held.valid)
    time.now = asked + VALID_SECONDS
    valid.append(held.valid)
    held.renewed(asked - 1.0)  # an answer that was overtaken takes nothing away and adds nothing
    valid.append(held.valid)
    held.renewed(held.now())
    valid.append(held.valid)
    assert valid == [False, True, False, False, True]


def test_silence_for_the_whole_lease_and_no_less_makes_it_lapse() -> None:
    time = Time()
    seen = standby(time)
    assert not looks(seen, time, (1, 1), LEASE_SECONDS)
    assert looks(seen, time, (1, 1), 2 * LOOK_SECONDS)
    assert not looks(seen, time, (1, 2), LOOK_SECONDS)
    assert not looks(seen, time, (2, 0), LEASE_SECONDS)


def test_a_leader_of_a_release_without_leases_is_never_replaced_while_its_session_lives() -> None:
    time = Time()
    assert not looks(standby(time), time, None, 100 * LEASE_SECONDS)


def test_a_span_in_which_the_standby_stood_still_counts_for_one_look() -> None:
    time = Time()
    seen = standby(time)
    looks(seen, time, (1, 1), LOOK_SECONDS)
    time.now += 1000 * LEASE_SECONDS
    assert not looks(seen, time, (1, 1), LOOK_SECONDS)
    assert looks(seen, time, (1, 1), LEASE_SECONDS)


def test_a_database_that_stood_still_counts_for_one_look() -> None:
    time = Time()
    seen = standby(time)
    looks(seen, time, (1, 1), LOOK_SECONDS)
    for _ in range(3):
        seen.ask()
        time.now += 1000.0  # until it answers
        assert not seen.answer((1, 1))


def test_two_never_lead_at_once() -> None:
    """Random pauses of the leader, of the standby and of the database, and clocks that run apart by a twentieth."""
    for seed in range(200):
        rng = random.Random(seed)
        real, rate = Time(), rng.uniform(0.95, 1.05)
        fast = Time()
        held, seen = HeldLease(real), standby(fast)
        renewal = 0
        renew_at = look_at = real.now

        def wait(seconds: float, fast: Time = fast, real: Time = real, rate: float = rate) -> None:
            real.now += seconds
            fast.now += seconds * rate

        for _ in range(300):
            stuck = rng.random() < 0.1
            if renew_at <= look_at:
                wait(max(0.0, renew_at - real.now))
                asked = held.now()
                wait(rng.uniform(0, 12.0) if stuck else 0.01)
                renewal += 1
                renew_at = real.now + (rng.uniform(0, 40.0) if rng.random() < 0.05 else RENEW_SECONDS)
                wait(rng.uniform(0, 1.0) if stuck else 0.0)
                held.renewed(asked)
            else:
                wait(max(0.0, look_at - real.now))
                seen.ask()
                wait(rng.uniform(0, 12.0) if stuck else 0.01)
                lapsed = seen.answer((1, renewal))
                look_at = real.now + (rng.uniform(0, 40.0) if rng.random() < 0.02 else LOOK_SECONDS)
                assert not (lapsed and held.valid)
