"""Channels between a real Flight server and its client, both in this process, over the loopback interface."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

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
from shuffle_transport.checksum import BLOCK_ROW, crc32c
from shuffle_transport.codecs import get_codec
from shuffle_transport.credits import INITIAL_CREDIT
from shuffle_transport.exchange import BlockChannel, ChannelOptions, Control
from shuffle_transport.exchange.session import LEAD_FROM
from shuffle_transport.exchange.wire import INLINE_BYTES, MAX_MESSAGE
from tests.shuffle_transport.exchange.helpers import (
    MIB,
    TIMEOUT,
    batch,
    connected,
    echo,
    number_of,
    numbered,
    receive_batch,
)


@pytest.mark.parametrize("size", [0, 1, INLINE_BYTES - 32, INLINE_BYTES, 100_000, 3 * MIB, 20 * MIB])
@pytest.mark.parametrize("timeout", [LEAD_FROM / 2, LEAD_FROM * 4])
def test_a_batch_of_any_size_goes_there_and_back(size: int, timeout: float) -> None:
    payload = np.random.default_rng(size).bytes(size)
    rows, _ = batch(payload)
    with connected(echo) as (client, _), client.open("echo") as channel:
        channel.send(rows, payload, timeout)
        answer = receive_batch(channel, timeout)
        assert answer.rows.tolist() == rows.tolist()
        assert bytes(answer.payload) == payload
        assert [bytes(block) for block in answer.raw()] == [payload]
        answer.release()
        channel.half_close(timeout)
        assert channel.receive(timeout) is None
        assert channel.receive(timeout) is None


def test_batches_of_many_blocks_keep_their_rows_and_boundaries() -> None:
    blocks = [bytes([i]) * (1000 * i) for i in range(60)]
    rows, payload = batch(*blocks)
    with connected(echo) as (client, _), client.open("echo") as channel:
        channel.send(rows, payload, TIMEOUT)
        answer = receive_batch(channel)
        assert [bytes(block) for block in answer.payloads()] == blocks
        assert [bytes(block) for block in answer.raw()] == blocks


def test_control_messages_keep_their_place_among_the_blocks() -> None:
    with connected(echo) as (client, _), client.open("echo") as channel:
        for i in range(50):
            channel.send(*numbered(i, 8 if i % 2 else 30_000), TIMEOUT)
            channel.send_control(f"after {i}".encode(), TIMEOUT)
        channel.half_close(TIMEOUT)
        for i in range(50):
            item = receive_batch(channel)
            assert number_of(item) == i
            item.release()
            assert channel.receive(TIMEOUT) == Control(f"after {i}".encode())
        assert channel.receive(TIMEOUT) is None


def test_the_handler_gets_name_and_metadata_and_its_return_is_the_end() -> None:
    seen = []

    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        seen.append((name, metadata, channel.name))
        channel.send(*numbered(7, 8), TIMEOUT)

    with connected(handler) as (client, _), client.open("a/b 1", metadata=b"\0meta") as channel:
        assert number_of(receive_batch(channel)) == 7
        assert channel.receive(TIMEOUT) is None
    assert seen == [("a/b 1", b"\0meta", "a/b 1")]


def test_received_payloads_are_views_of_what_arrived() -> None:
    # One buffer holds the whole message: the payload lies in it at the same distance from the table for both readers.
    with connected(echo) as (client, _), client.open("echo") as channel:
        rows, payload = batch(bytes(100_000), bytes(100_000))
        channel.send(rows, payload, TIMEOUT)
        answer = receive_batch(channel)
        first, second = answer.payloads()
        start = np.frombuffer(answer.payload, np.uint8).ctypes.data
        assert np.frombuffer(first, np.uint8).ctypes.data == start
        assert np.frombuffer(second, np.uint8).ctypes.data == start + 100_000


# -------------------------------------------------------------------------------------------- credit and memory


def test_unconsumed_data_holds_the_window_and_consuming_opens_it() -> None:
    received: list[int] = []
    go_on = threading.Event()

    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        assert go_on.wait(TIMEOUT)
        while (item := channel.receive(TIMEOUT)) is not None:
            received.append(number_of(item))
            channel.consumed(len(item.payload))  # type: ignore[union-attr]

    with connected(handler) as (client, endpoint), client.open("slow") as channel:
        sent = 0
        with pytest.raises(DeadlineExceeded, match="granted no credit"):
            for number in range(200):
                channel.send(*numbered(number, 100_000), 0.2)
                sent += 1
        held = endpoint.statistics().sums.held
        assert INITIAL_CREDIT - 110_000 < held <= endpoint.statistics().sums.granted
        assert channel.statistics().stall_seconds > 0
        go_on.set()
        for number in range(sent, 200):
            channel.send(*numbered(number, 100_000), TIMEOUT)
        channel.half_close(TIMEOUT)
        assert channel.receive(TIMEOUT) is None
    assert received == list(range(200))


def test_control_passes_without_credit() -> None:
    with connected(_hold) as (client, _), client.open("hold") as channel:
        with pytest.raises(DeadlineExceeded):
            while True:
                channel.send(*numbered(0, 200_000), 0.1)
        channel.send_control(b"still here", TIMEOUT)
        assert channel.receive(TIMEOUT) == Control(b"still here")


def _hold(name: str, metadata: bytes, channel: BlockChannel) -> None:
    """Takes batches in and never releases them; answers control messages."""
    while (item := channel.receive(TIMEOUT)) is not None:
        if isinstance(item, Control):
            channel.send_control(item.message, TIMEOUT)


def test_a_channel_without_credit_does_not_stop_the_others_on_its_connection() -> None:
    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        (_hold if name == "stopped" else echo)(name, metadata, channel)

    with connected(handler) as (client, endpoint):
        channels = [client.open("echo") for _ in range(8)]
        with client.open("stopped") as stopped:
            with pytest.raises(DeadlineExceeded):
                while True:
                    stopped.send(*numbered(0, 500_000), 0.1)
            for number in range(20):
                for channel in channels:
                    channel.send(*numbered(number, 400_000), TIMEOUT)
                for channel in channels:
                    item = receive_batch(channel)
                    assert number_of(item) == number
                    item.release()
            assert endpoint.statistics().channels == 9
        for channel in channels:
            channel.half_close(TIMEOUT)
            assert channel.receive(TIMEOUT) is None
            channel.close()


def test_what_a_stopped_consumer_is_owed_is_bounded_by_its_window_not_by_the_producer() -> None:
    options = ChannelOptions(window=2 * MIB)
    with connected(_hold, server_options=options) as (client, endpoint), client.open("hold") as channel:
        with pytest.raises(DeadlineExceeded):
            for _ in range(1000):
                channel.send(*numbered(0, 300_000), 0.2)
        assert endpoint.statistics().sums.held <= 2 * MIB


def test_credit_given_back_twice_is_refused() -> None:
    with connected(echo) as (client, _), client.open("echo") as channel:
        channel.send(*numbered(0, 100), TIMEOUT)
        item = receive_batch(channel)
        item.release()
        with pytest.raises(InvalidArgument, match="0 are held"):
            item.release()
        with pytest.raises(InvalidArgument, match="consumed"):
            channel.consumed(-1)


def test_a_pool_without_room_refuses_the_channel_by_name() -> None:
    with connected(echo, budget=INITIAL_CREDIT, timeout=0.3) as (client, _):
        with client.open("first"):
            with pytest.raises(Overloaded):
                client.open("second")


def test_an_endpoint_without_room_says_so() -> None:
    with connected(echo, timeout=0.3) as (client, endpoint):
        pool = endpoint.exchange._pool
        with pool.reserve(pool.budget, 1), client.open("late") as channel:
            with pytest.raises(Overloaded):
                channel.receive(TIMEOUT)


def test_bytes_received_are_reserved_and_given_back_at_the_end() -> None:
    with connected(echo) as (client, endpoint):
        pools = client._pool, endpoint.exchange._pool
        with client.open("echo") as channel:
            channel.send(*numbered(0, 5 * MIB), TIMEOUT)
            item = receive_batch(channel)
            assert pools[0].statistics().used >= 5 * MIB
            item.release()
            channel.half_close(TIMEOUT)
            assert channel.receive(TIMEOUT) is None
        _eventually(lambda: endpoint.statistics().channels == 0)
        assert [pool.statistics().used for pool in pools] == [0, 0]


def _eventually(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# ----------------------------------------------------------------------------------------------- ends and errors


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
        _eventually(lambda: errors)
    assert "the task was killed" in str(errors[0])
    assert "'doomed'" in str(errors[0])


def test_a_cancel_ends_a_wait_for_credit() -> None:
    with connected(_hold) as (client, _), client.open("hold") as channel:
        with pytest.raises(DeadlineExceeded):
            while True:
                channel.send(*numbered(0, 200_000), 0.1)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(channel.send, *numbered(0, 200_000), TIMEOUT)
            _eventually(lambda: channel.statistics().backlog > 0)
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


def test_a_handler_that_returns_while_data_comes_is_told_to_the_sender() -> None:
    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        channel.half_close(TIMEOUT)

    with connected(handler) as (client, _), client.open("deaf") as channel:
        assert channel.receive(TIMEOUT) is None
        with pytest.raises(StreamBroken, match="nobody receives any more"):
            for _ in range(1000):
                channel.send(*numbered(0, 100_000), TIMEOUT)


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
    monkeypatch.setattr("shuffle_transport.exchange.session.LEAD_FROM", 0.0)
    with connected(echo) as (client, _), client.open("echo") as channel:
        for number in range(3):
            channel.send(*numbered(number, 8), TIMEOUT)
            receive_batch(channel).release()
            with pytest.raises(DeadlineExceeded, match="nothing came within"):
                channel.receive(0.2)


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
        with pytest.raises(Overloaded, match="control messages"):
            for _ in range(1000):
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


# ------------------------------------------------------------------------------------------ codecs, threads, counts


@pytest.mark.parametrize("codec", ["lz4", "zstd", "zstd:3"])
def test_blocks_are_compressed_only_while_they_would_wait_for_credit(codec: str) -> None:
    go_on = threading.Event()
    blocks = [bytes([i]) * 50_000 for i in range(8)]
    received: list[bytes] = []

    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        assert go_on.wait(TIMEOUT)
        while (item := channel.receive(TIMEOUT)) is not None:
            assert not isinstance(item, Control)
            received.extend(bytes(block) for block in item.raw())
            item.release()

    with connected(handler, options=ChannelOptions(codec=codec)) as (client, _), client.open("c") as channel:
        channel.send(*batch(*blocks), TIMEOUT)
        channel.send(*batch(*blocks), TIMEOUT)
        unhindered = channel.statistics()
        assert unhindered.bytes_sent == unhindered.raw_bytes_sent == 16 * 50_000
        channel.send(*batch(*blocks), TIMEOUT)  # more than the first credit: compressed it fits
        hindered = channel.statistics()
        assert hindered.raw_bytes_sent == 24 * 50_000
        assert hindered.bytes_sent < 17 * 50_000
        go_on.set()
        channel.half_close(TIMEOUT)
        assert channel.receive(TIMEOUT) is None
    assert received == 3 * blocks


def test_blocks_that_were_compressed_by_the_sender_arrive_as_they_are() -> None:
    raw = b"shuffle " * 10_000
    stored = get_codec("lz4").compress(raw)
    assert stored is not None
    rows, payload = batch(stored)
    rows["raw_length"] = len(raw)
    with connected(echo, options=ChannelOptions(codec="lz4")) as (client, _), client.open("c") as channel:
        channel.send(rows, payload, TIMEOUT)
        answer = receive_batch(channel)
        assert answer.rows["crc32c"][0] == crc32c(stored)
        assert [bytes(block) for block in answer.raw()] == [raw]
        assert channel.statistics().raw_bytes_received == len(raw)


def test_many_threads_send_on_one_channel_and_many_receive_from_it() -> None:
    sent = [list(range(start, start + 100)) for start in (0, 1000, 2000, 3000)]
    received: list[list[int]] = [[] for _ in range(3)]
    with connected(echo) as (client, _), client.open("echo") as channel:

        def send(numbers: list[int]) -> None:
            for number in numbers:
                channel.send(*numbered(number, 20_000 if number % 3 else 100), TIMEOUT)

        def receive(into: list[int]) -> None:
            while (item := channel.receive(TIMEOUT)) is not None:
                into.append(number_of(item))
                channel.consumed(len(item.payload))  # type: ignore[union-attr]

        with ThreadPoolExecutor(8) as pool:
            consumers = [pool.submit(receive, into) for into in received]
            for sending in [pool.submit(send, numbers) for numbers in sent]:
                sending.result(TIMEOUT)
            channel.half_close(TIMEOUT)
            for consumer in consumers:
                consumer.result(TIMEOUT)
    assert sorted(number for part in received for number in part) == sorted(number for part in sent for number in part)
    for part in received:
        for start in (0, 1000, 2000, 3000):
            own = [number for number in part if start <= number < start + 1000]
            assert own == sorted(own)


def test_statistics_count_both_directions() -> None:
    with connected(echo) as (client, endpoint), client.open("echo") as channel:
        channel.send(*batch(b"a" * 10_000, b"b" * 20_000), TIMEOUT)
        channel.send_control(b"c", TIMEOUT)
        item = receive_batch(channel)
        assert channel.receive(TIMEOUT) == Control(b"c")
        here = channel.statistics()
        assert (here.blocks_sent, here.bytes_sent, here.raw_bytes_sent, here.messages_sent) == (2, 30_000, 30_000, 2)
        assert (here.blocks_received, here.bytes_received, here.messages_received) == (2, 30_000, 2)
        assert here.credit_granted >= INITIAL_CREDIT
        assert here.credit_available < here.credit_granted
        assert 30_000 <= here.held < 40_000
        assert here.queue_age_seconds == 0
        assert here.messages_unacknowledged == 0
        item.release()
        assert channel.statistics().held == 0
        there = endpoint.statistics()
        assert (there.channels, there.opened, there.resumed) == (1, 1, 0)
        assert there.sums.blocks_received == 2
        assert client.statistics() == replace(client.statistics(), channels=1, opened=1, resumed=0)


def test_the_age_of_the_queue_is_that_of_its_oldest_item() -> None:
    with connected(echo) as (client, _), client.open("echo") as channel:
        channel.send(*numbered(0, 8), TIMEOUT)
        _eventually(lambda: channel.statistics().queue_age_seconds > 0)
        receive_batch(channel).release()
        assert channel.statistics().queue_age_seconds == 0
