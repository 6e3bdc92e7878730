"""How channels end: in order, cancelled, refused, at a deadline; and the error at each side."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from shuffle_api.errors import (
    BlockCorrupt,
    DeadlineExceeded,
    InternalError,
    InvalidArgument,
    MapOutputLost,
    Overloaded,
    StreamBroken,
)
from shuffle_transport.channels import BlockChannel, ChannelOptions, Control
from shuffle_transport.channels.wire import MAX_MESSAGE
from shuffle_transport.checksum import BLOCK_ROW
from tests.shuffle_transport.channels.helpers import (
    TIMEOUT,
    batch,
    connected,
    echo,
    eventually,
    hold,
    number_of,
    numbered,
    receive_batch,
)


def test_a_cancel_ends_both_ends_with_its_reason() -> None:
    errors: list[StreamBroken] = []

    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        try:
            channel.receive(TIMEOUT)
        except StreamBroken as error:
            errors.append(error)
            raise

    with connected(handler) as (client, _), client.open("doomed") as channel:
        channel.cancel("the task was killed")
        with pytest.raises(StreamBroken, match=r"'doomed' with 127.*the task was killed"):
            channel.receive(TIMEOUT)
        with pytest.raises(StreamBroken, match="the task was killed"):
            channel.send(*numbered(0, 8), TIMEOUT)
        eventually(lambda: errors)
    assert "the task was killed" in str(errors[0])
    assert "'doomed'" in str(errors[0])


def test_a_cancel_ends_a_wait_for_credit() -> None:
    with connected(hold) as (client, _), client.open("hold") as channel:
        with pytest.raises(DeadlineExceeded):
            while True:
                channel.send(*numbered(0, 200_000), TIMEOUT, credit_timeout=0.1)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(channel.send, *numbered(0, 200_000), TIMEOUT)
            eventually(lambda: channel.statistics().backlog > 0)
            channel.cancel("enough")
            with pytest.raises(StreamBroken, match="enough"):
                waiting.result(TIMEOUT)


def test_a_handlers_typed_error_arrives_as_that_error() -> None:
    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        raise MapOutputLost("disk 3 is gone", remedy="run it again", worker="w3")

    with connected(handler) as (client, _), client.open("lost") as channel:
        with pytest.raises(MapOutputLost, match=r"'lost'.*disk 3 is gone") as caught:
            channel.receive(TIMEOUT)
        assert (caught.value.remedy, caught.value.worker) == ("run it again", "w3")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_handlers_bug_arrives_as_an_internal_error() -> None:
    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        raise ZeroDivisionError("secret detail")

    with connected(handler) as (client, _), client.open("bug") as channel:
        with pytest.raises(InternalError, match="the handler failed") as caught:
            channel.receive(TIMEOUT)
        assert "secret" not in str(caught.value)
        for thread in threading.enumerate():  # its exception belongs to this test, not to the next
            if thread.name == "exchange-bug":
                thread.join(TIMEOUT)


def test_a_handler_that_returns_while_data_comes_is_told_to_the_sender() -> None:
    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        channel.half_close(TIMEOUT)

    with connected(handler) as (client, _), client.open("deaf") as channel:
        assert channel.receive(TIMEOUT) is None
        with pytest.raises(StreamBroken, match="nobody receives any more"):
            for _ in range(1000):
                channel.send(*numbered(0, 100_000), TIMEOUT)


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("taken", [0, 1])
@pytest.mark.parametrize("size", [20_000, 100_000, 3_000_000])
def test_a_handler_that_returns_while_the_sender_waits_is_told_to_it(size: int, taken: int, resume: bool) -> None:
    # A sender may wait without announcing it (20,000 bytes), or with more than its window holds (3,000,000).
    returns = threading.Event()

    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        for _ in range(taken):
            channel.receive(TIMEOUT)
        returns.wait(TIMEOUT)

    def send_on(channel: BlockChannel) -> None:
        while True:
            channel.send(*numbered(0, size), TIMEOUT)

    never = ChannelOptions(resume=resume, keepalive=0)  # the answer to a ping would bring the grant as well
    with connected(handler, options=never) as (client, _), client.open("deaf") as channel:
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send_on, channel)
            eventually(lambda: channel.statistics().backlog > 0)
            returns.set()
            with pytest.raises(StreamBroken, match="nobody receives any more"):
                sending.result(TIMEOUT)


def test_sending_after_the_end_is_refused() -> None:
    with connected(echo) as (client, _), client.open("echo") as channel:
        channel.half_close(TIMEOUT)
        with pytest.raises(InvalidArgument, match="after half_close"):
            channel.send(*numbered(0, 8), TIMEOUT)
        with pytest.raises(InvalidArgument, match="after half_close"):
            channel.send_control(b"", TIMEOUT)
        with pytest.raises(InvalidArgument, match="after half_close"):
            channel.half_close(TIMEOUT)


def test_half_closed_ends_still_receive() -> None:
    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        assert channel.receive(TIMEOUT) is None
        for number in range(100):
            channel.send(*numbered(number, 50_000), TIMEOUT)

    with connected(handler) as (client, _), client.open("after the end") as channel:
        channel.half_close(TIMEOUT)
        for number in range(100):
            item = receive_batch(channel)
            assert number_of(item) == number
            item.release()
        assert channel.receive(TIMEOUT) is None


@pytest.mark.parametrize("timeout", [0.0, 0.05])
def test_a_receive_without_news_ends_at_its_deadline_and_the_channel_goes_on(timeout: float) -> None:
    with connected(echo) as (client, _), client.open("echo") as channel:
        with pytest.raises(DeadlineExceeded, match="nothing came within"):
            channel.receive(timeout)
        channel.send(*numbered(1, 8), TIMEOUT)
        assert number_of(receive_batch(channel)) == 1


def test_a_consumer_that_reads_for_itself_leaves_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    # It is in the middle of a read then, which only a message of the other end can end: the answer to a ping.
    monkeypatch.setattr("shuffle_transport.channels.session.LEAD_FROM", 0.0)
    monkeypatch.setattr("shuffle_transport.channels.session.ANSWER_WITHIN", TIMEOUT)  # however busy the other end is
    with connected(echo) as (client, _), client.open("echo") as channel:
        for number in range(3):
            channel.send(*numbered(number, 8), TIMEOUT)
            receive_batch(channel).release()
            with pytest.raises(DeadlineExceeded, match="nothing came within"):
                channel.receive(0.2)


def test_who_finds_another_reading_does_not_take_its_deadline_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shuffle_transport.channels.session.LEAD_FROM", 0.0)
    monkeypatch.setattr("shuffle_transport.channels.session.ANSWER_WITHIN", TIMEOUT)  # however busy the other end is
    never = ChannelOptions(keepalive=0)  # whose answers would end the read as well
    with (
        connected(echo) as (client, _),
        client.open("echo", options=never) as channel,
        ThreadPoolExecutor(1) as pool,
    ):
        channel.send(*numbered(0, 8), TIMEOUT)
        receive_batch(channel).release()
        reads = pool.submit(channel.receive, 1.0)
        while not reads.done():
            with pytest.raises(DeadlineExceeded):
                channel.receive(0.05)  # comes and goes while the other reads
            assert not reads.done() or reads.exception() is not None
        with pytest.raises(DeadlineExceeded, match="within 1 s"):
            reads.result()


@pytest.mark.parametrize(
    ("rows", "payload", "problem"),
    [
        (np.zeros(0, BLOCK_ROW), b"", "shape"),
        (np.zeros((1, 1), BLOCK_ROW), b"", "shape"),
        (np.zeros(1, np.int64), b"", "dtype"),
        (batch(b"abc")[0], b"abcd", "4 payload bytes"),
        (batch(b"abc", b"d")[0], b"abc", "3 payload bytes"),
    ],
)
def test_a_malformed_batch_is_refused_before_it_is_sent(rows: np.ndarray, payload: bytes, problem: str) -> None:
    with connected(echo) as (client, _), client.open("echo") as channel:
        with pytest.raises(InvalidArgument, match=problem):
            channel.send(rows, payload, TIMEOUT)
        channel.send(*numbered(1, 8), TIMEOUT)
        assert number_of(receive_batch(channel)) == 1


def test_a_control_message_has_a_largest_size() -> None:
    with connected(echo) as (client, _), client.open("echo") as channel:
        with pytest.raises(InvalidArgument, match=str(MAX_MESSAGE + 1)):
            channel.send_control(bytes(MAX_MESSAGE + 1), TIMEOUT)
        channel.send_control(bytes(MAX_MESSAGE), TIMEOUT)
        assert channel.receive(TIMEOUT) == Control(bytes(MAX_MESSAGE))


def test_unread_control_messages_are_limited() -> None:
    wait = threading.Event()

    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        wait.wait(TIMEOUT)

    with connected(handler) as (client, _), client.open("flood") as channel:
        deadline = time.monotonic() + TIMEOUT
        # Not a number of messages: a sender that never receives reads now and then, and gets the refusal when it does.
        with pytest.raises(Overloaded, match="control messages"):
            while time.monotonic() < deadline:
                channel.send_control(bytes(MAX_MESSAGE), TIMEOUT)
        wait.set()


def test_a_damaged_block_is_found_when_it_is_used() -> None:
    rows, payload = batch(b"a" * 50_000, b"b" * 50_000)
    rows["crc32c"][1] ^= 1
    with connected(echo) as (client, _), client.open("echo") as channel:
        channel.send(rows, payload, TIMEOUT)
        blocks = receive_batch(channel).raw()
        assert bytes(next(blocks)) == b"a" * 50_000
        with pytest.raises(BlockCorrupt, match="does not match its checksum"):
            next(blocks)
