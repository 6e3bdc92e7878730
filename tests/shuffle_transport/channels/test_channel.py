"""Channels between a real Flight server and its client, both in this process, over the loopback interface."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from shuffle_transport.channels import BlockChannel, ChannelOptions, Control
from shuffle_transport.channels.session import LEAD_FROM
from shuffle_transport.channels.wire import INLINE_BYTES
from shuffle_transport.checksum import crc32c
from shuffle_transport.codecs import get_codec
from shuffle_transport.credits import INITIAL_CREDIT
from tests.shuffle_transport.channels.helpers import (
    MIB,
    TIMEOUT,
    batch,
    connected,
    echo,
    eventually,
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
        for i in range(30):  # no more than both windows hold: nothing is received before
            channel.send(*numbered(i, 8 if i % 2 else 30_000), TIMEOUT)
            channel.send_control(f"after {i}".encode(), TIMEOUT)
        channel.half_close(TIMEOUT)
        for i in range(30):
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
        eventually(lambda: channel.statistics().queue_age_seconds > 0)
        receive_batch(channel).release()
        assert channel.statistics().queue_age_seconds == 0
