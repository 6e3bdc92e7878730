"""Each fault does what it says, to the message it names and no other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, StreamBroken
from tests.shuffle_transport.channel import Message
from tests.shuffle_transport.faults import Delay, Drop, Duplicate, Fault, FaultyChannel, Flip, Reset, Truncate
from tests.shuffle_transport.loopback import loopback

LONG = 60.0  # a deadline that only a failing test meets
MESSAGES = [Message(b"zero", b"payload 0"), Message(b"one", b"payload 1"), Message(b"two"), Message(b"three", b"p3")]


def after(fault: Fault, number: int) -> list[Message]:
    """What arrives of MESSAGES when one of them meets `fault`."""
    a, b = loopback()
    faulty = FaultyChannel(a, {number: fault})
    for message in MESSAGES:
        faulty.send(message, LONG)
    faulty.half_close()
    assert faulty.met == [fault]
    came = []
    while (message_or_end := b.receive(0)) is not None:
        came.append(message_or_end)
    return came


def test_without_a_script_nothing_happens() -> None:
    a, b = loopback()
    faulty = FaultyChannel(a, {})
    faulty.send(MESSAGES[0], 0)
    b.send(MESSAGES[1], 0)
    assert b.receive(0) == MESSAGES[0]
    assert faulty.receive(0) == MESSAGES[1]
    assert faulty.met == []
    assert faulty.statistics() == a.statistics()


def test_a_dropped_message_is_missing() -> None:
    assert after(Drop(), 1) == [MESSAGES[0], MESSAGES[2], MESSAGES[3]]


def test_a_duplicated_message_comes_again() -> None:
    assert after(Duplicate(2), 1) == [MESSAGES[0], *[MESSAGES[1]] * 3, MESSAGES[2], MESSAGES[3]]


def test_a_truncated_payload_keeps_its_start_and_its_control() -> None:
    assert after(Truncate(3), 1) == [MESSAGES[0], Message(b"one", b"pay"), MESSAGES[2], MESSAGES[3]]


def test_a_truncated_control_message_is_empty() -> None:
    assert after(Truncate(3), 2) == [MESSAGES[0], MESSAGES[1], Message(), MESSAGES[3]]


def test_a_flip_inverts_one_bit() -> None:
    assert after(Flip(8), 1)[1] == Message(b"one", b"payload 0")
    assert after(Flip(3), 2)[2] == Message(b"uwo")
    a, _ = loopback()
    with pytest.raises(InvalidArgument, match="no bit"):
        FaultyChannel(a, {0: Flip()}).send(Message(), 0)


def test_a_delayed_message_comes_in_its_place() -> None:
    assert after(Delay(0.02), 1) == MESSAGES


def test_a_delay_longer_than_the_timeout_is_a_deadline() -> None:
    a, b = loopback()
    with pytest.raises(DeadlineExceeded, match="30 s"):
        FaultyChannel(a, {0: Delay(30)}).send(MESSAGES[0], 0.01)
    with pytest.raises(DeadlineExceeded):
        b.receive(0)


def test_a_cancel_ends_a_delay() -> None:
    a, _ = loopback()
    faulty = FaultyChannel(a, {0: Delay(1000)})
    with ThreadPoolExecutor(1) as threads:
        send = threads.submit(faulty.send, MESSAGES[0], 2000)
        pause = threading.Event()
        while not send.running():
            pause.wait(0.001)
        faulty.cancel("enough")
        with pytest.raises(StreamBroken, match="enough"):
            send.result(LONG)


def test_a_reset_breaks_both_ends_and_loses_what_is_under_way() -> None:
    a, b = loopback()
    faulty = FaultyChannel(a, {1: Reset()})
    faulty.send(MESSAGES[0], 0)
    with pytest.raises(StreamBroken, match="before message 1"):
        faulty.send(MESSAGES[1], 0)
    for end in (faulty, b):
        with pytest.raises(StreamBroken, match="before message 1"):
            end.receive(0)
