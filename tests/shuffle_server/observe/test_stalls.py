"""Which messages had to wait for credit, told by their sizes alone."""

from __future__ import annotations

from shuffle_server.observe.traffic import CreditStalls, Traffic


def stalls(traffic: Traffic) -> int:
    totals = traffic.totals()
    assert totals.credit_stall_seconds >= 0
    return totals.credit_stalls


def test_a_message_that_fits_into_what_was_left_did_not_wait() -> None:
    traffic = Traffic()
    stream = CreditStalls(traffic)
    stream.arrived(40, credit=100)
    stream.granted()
    stream.arrived(60, credit=100)
    assert stalls(traffic) == 0


def test_a_message_larger_than_what_was_left_waited_for_the_grant() -> None:
    traffic = Traffic()
    stream = CreditStalls(traffic)
    stream.arrived(40, credit=100)
    stream.granted()
    stream.arrived(61, credit=100)
    assert stalls(traffic) == 1


def test_the_first_message_and_a_sender_that_ends_did_not_wait() -> None:
    traffic = Traffic()
    stream = CreditStalls(traffic)
    stream.arrived(100, credit=100)
    stream.granted()
    assert stalls(traffic) == 0


def test_a_message_above_its_credit_without_a_grant_is_no_stall() -> None:
    """One block larger than the window goes out alone: nobody waited for a grant that did not come."""
    traffic = Traffic()
    stream = CreditStalls(traffic)
    stream.arrived(0, credit=100)
    stream.arrived(500, credit=100)
    assert stalls(traffic) == 0
