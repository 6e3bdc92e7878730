"""The in-memory channel keeps the contract of Channel."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, StreamBroken
from tests.shuffle_transport.channel import Message
from tests.shuffle_transport.loopback import loopback

LONG = 60.0  # a deadline that only a failing test meets
FOREVER = 3600.0  # of a wait that must be ended by somebody: at its deadline it would look again, and pass


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread to get somewhere; the test's own timeout is the deadline."""
    pause = threading.Event()
    while not condition():
        pause.wait(0.001)


def test_messages_arrive_in_order_both_ways() -> None:
    a, b = loopback()
    for i in range(3):
        a.send(Message(b"there", bytes(i)), 0)
        b.send(Message(b"back", bytes(i)), 0)
    assert [b.receive(0) for _ in range(3)] == [Message(b"there", bytes(i)) for i in range(3)]
    assert [a.receive(0) for _ in range(3)] == [Message(b"back", bytes(i)) for i in range(3)]


def test_payload_is_not_copied() -> None:
    a, b = loopback()
    payload = bytearray(b"abc")
    a.send(Message(payload=payload), 0)
    message = b.receive(0)
    assert message is not None
    assert message.payload is payload


def test_a_half_closed_end_is_read_to_its_end_and_can_still_receive() -> None:
    a, b = loopback()
    a.send(Message(b"last"), 0)
    a.half_close()
    a.half_close()
    assert b.receive(0) == Message(b"last")
    assert b.receive(0) is None
    assert b.receive(0) is None
    b.send(Message(b"answer"), 0)
    assert a.receive(0) == Message(b"answer")
    with pytest.raises(InvalidArgument, match="after half_close"):
        a.send(Message(), 0)


def test_nothing_to_receive_in_time_is_an_error() -> None:
    with pytest.raises(DeadlineExceeded, match="push of map 3"):
        loopback("push of map 3")[0].receive(0.01)


def test_a_full_channel_makes_the_sender_wait() -> None:
    a, b = loopback(capacity=2)
    a.send(Message(b"1"), 0)
    a.send(Message(b"2"), 0)
    with pytest.raises(DeadlineExceeded, match="2 waiting messages"):
        a.send(Message(b"lost"), 0.01)
    with ThreadPoolExecutor(1) as threads:
        third = threads.submit(a.send, Message(b"3"), FOREVER)
        assert b.receive(LONG) == Message(b"1")
        third.result(LONG)
    assert [b.receive(0) for _ in range(2)] == [Message(b"2"), Message(b"3")]
    assert a.statistics().stall_seconds > 0


def test_the_two_directions_do_not_share_their_room() -> None:
    a, b = loopback(capacity=1)
    a.send(Message(b"1"), 0)
    b.send(Message(b"2"), 0)
    assert (a.receive(0), b.receive(0)) == (Message(b"2"), Message(b"1"))


@pytest.mark.parametrize("canceller", [0, 1])
def test_a_cancel_ends_all_waits_of_both_ends_with_its_reason(canceller: int) -> None:
    ends = loopback(capacity=1)
    a, b = ends
    a.send(Message(), 0)
    with ThreadPoolExecutor(2) as threads:
        receive, send = threads.submit(a.receive, FOREVER), threads.submit(a.send, Message(), FOREVER)
        until(lambda: receive.running() and send.running())
        ends[canceller].cancel("the disk is full")
        ends[1 - canceller].cancel("later")
        for future in (receive, send):
            with pytest.raises(StreamBroken, match="the disk is full"):
                future.result(LONG)
    with pytest.raises(StreamBroken, match="the disk is full"):
        b.receive(0)  # what was under way is lost
    assert a.statistics().queued_messages == 0


def test_sending_wakes_the_other_end() -> None:
    a, b = loopback()
    with ThreadPoolExecutor(1) as threads:
        receive = threads.submit(b.receive, FOREVER)
        until(receive.running)
        a.send(Message(b"1"), 0)
        assert receive.result(LONG) == Message(b"1")


def test_half_closing_wakes_the_other_end() -> None:
    a, b = loopback()
    with ThreadPoolExecutor(1) as threads:
        receive = threads.submit(b.receive, FOREVER)
        until(receive.running)
        a.half_close()
        assert receive.result(LONG) is None


def test_statistics_count_messages_and_payload() -> None:
    a, b = loopback()
    a.send(Message(b"control only"), 0)
    a.send(Message(payload=bytes(100)), 0)
    a.send(Message(payload=bytes(10)), 0)
    b.receive(0)
    b.receive(0)
    sender, receiver = a.statistics(), b.statistics()
    assert (sender.sent_messages, sender.sent_bytes) == (3, 110)
    assert (sender.queued_messages, sender.queued_bytes) == (1, 10)
    assert sender.oldest_queued_seconds > 0
    assert (receiver.received_messages, receiver.received_bytes, receiver.queued_messages) == (2, 100, 0)
    assert receiver.oldest_queued_seconds == 0


def test_a_channel_without_room_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="0 messages"):
        loopback(capacity=0)
