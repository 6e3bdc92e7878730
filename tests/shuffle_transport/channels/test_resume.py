"""Channels whose connection breaks: with `resume` each item arrives once and in order, without it the error says so."""

from __future__ import annotations

import threading
import time

import pytest

from shuffle_api.errors import ServerUnreachable, ShuffleError, StreamBroken
from shuffle_transport.channels import BlockChannel, ChannelOptions, Control, ExchangeClient, ExchangeEndpoint
from shuffle_transport.pool import BufferPool
from tests.shuffle_transport.channels.helpers import (
    ANY,
    MIB,
    TIMEOUT,
    CuttingProxy,
    connected,
    echo,
    number_of,
    numbered,
    receive_batch,
)

RESUME = ChannelOptions(resume=True, window=2 * MIB, resume_timeout=TIMEOUT)


def exchange_numbers(channel: BlockChannel, count: int, size: int) -> list[int | bytes]:
    """Send numbered batches and control messages among them; everything that comes back, to the end."""
    came: list[int | bytes] = []

    def send() -> None:
        for number in range(count):
            channel.send(*numbered(number, size if number % 4 else 64), TIMEOUT)
            if number % 10 == 0:
                channel.send_control(b"%d" % number, TIMEOUT)
        channel.half_close(TIMEOUT)

    sender = threading.Thread(target=send)
    sender.start()
    while (item := channel.receive(TIMEOUT)) is not None:
        if isinstance(item, Control):
            came.append(item.message)
        else:
            came.append(number_of(item))
            item.release()
    sender.join(TIMEOUT)
    assert not sender.is_alive()
    return came


def expected(count: int) -> list[int | bytes]:
    items: list[int | bytes] = []
    for number in range(count):
        items.append(number)
        if number % 10 == 0:
            items.append(b"%d" % number)
    return items


@pytest.mark.parametrize(
    "cut_after",
    [[0], [1], [500], [3_000], [70_000, 90_000, 200_000], [300_000] * 12, [2_500_000, 10, 10, 3_000_000]],
    ids=str,
)
def test_items_arrive_once_and_in_order_whatever_connection_breaks(cut_after: list[int]) -> None:
    with ExchangeEndpoint(ANY, echo, BufferPool(64 * MIB), timeout=TIMEOUT, options=RESUME) as endpoint:
        with CuttingProxy(endpoint.port, [max(400, n) for n in cut_after]) as proxy:
            with ExchangeClient(proxy.address, BufferPool(64 * MIB), timeout=TIMEOUT, options=RESUME) as client:
                with open_through(client) as channel:
                    assert exchange_numbers(channel, 200, 40_000) == expected(200)
                    assert channel.statistics().blocks_received == 200


def open_through(client: ExchangeClient) -> BlockChannel:
    """Opening is not resumed: who opens tries again."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        try:
            return client.open("numbers")
        except (ServerUnreachable, StreamBroken):
            assert time.monotonic() < deadline


def test_random_cuts_in_both_directions_lose_and_repeat_nothing() -> None:
    with ExchangeEndpoint(ANY, echo, BufferPool(64 * MIB), timeout=TIMEOUT, options=RESUME) as endpoint:
        with CuttingProxy(endpoint.port) as proxy:
            with ExchangeClient(proxy.address, BufferPool(64 * MIB), timeout=TIMEOUT, options=RESUME) as client:
                done = threading.Event()

                with open_through(client) as channel:

                    def cut() -> None:
                        """Again and again, each time when some blocks have come since the last one."""
                        cut_at = 0
                        while not done.wait(0.005):
                            came = channel.statistics().blocks_received
                            if came >= cut_at + 30:
                                cut_at = came
                                proxy.cut()

                    cutter = threading.Thread(target=cut)
                    cutter.start()
                    try:
                        assert exchange_numbers(channel, 600, 60_000) == expected(600)
                    finally:
                        done.set()
                        cutter.join()
                assert proxy.connections > 1
                assert endpoint.statistics().resumed > 0
                assert client.statistics().resumed > 0


def test_what_is_kept_is_bounded_by_the_window_and_freed_by_acknowledgement() -> None:
    with connected(echo, options=RESUME, server_options=RESUME) as (client, _), client.open("numbers") as channel:
        for number in range(200):
            channel.send(*numbered(number, 50_000), TIMEOUT)
            assert channel.statistics().messages_unacknowledged * 50_000 <= RESUME.window + 100_000
            receive_batch(channel).release()
        channel.half_close(TIMEOUT)
        assert channel.receive(TIMEOUT) is None
        deadline = time.monotonic() + TIMEOUT
        while channel.statistics().messages_unacknowledged:
            assert time.monotonic() < deadline
            time.sleep(0.005)


def test_sending_goes_on_while_the_connection_is_away() -> None:
    with ExchangeEndpoint(ANY, echo, BufferPool(64 * MIB), timeout=TIMEOUT, options=RESUME) as endpoint:
        proxy = CuttingProxy(endpoint.port)
        with ExchangeClient(proxy.address, BufferPool(64 * MIB), timeout=TIMEOUT, options=RESUME) as client:
            with proxy, client.open("numbers") as channel:
                channel.send(*numbered(0, 100), TIMEOUT)
                receive_batch(channel).release()
                proxy.cut()
                for number in range(1, 6):
                    channel.send(*numbered(number, 100_000), TIMEOUT)
                for number in range(1, 6):
                    item = receive_batch(channel)
                    assert number_of(item) == number
                    item.release()


def test_without_resume_a_broken_connection_is_an_error_at_both_ends() -> None:
    errors: list[ShuffleError] = []

    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        try:
            while (item := channel.receive(TIMEOUT)) is not None:
                channel.send(item.rows, item.payload, TIMEOUT)  # type: ignore[union-attr]
        except ShuffleError as error:
            errors.append(error)
            raise

    with ExchangeEndpoint(ANY, handler, BufferPool(64 * MIB), timeout=TIMEOUT) as endpoint:
        with CuttingProxy(endpoint.port) as proxy:
            with ExchangeClient(proxy.address, BufferPool(64 * MIB), timeout=TIMEOUT) as client:
                with client.open("fragile") as channel:
                    channel.send(*numbered(0, 100), TIMEOUT)
                    receive_batch(channel).release()
                    proxy.cut()
                    with pytest.raises((StreamBroken, ServerUnreachable), match="'fragile'"):
                        channel.receive(TIMEOUT)
                    with pytest.raises((StreamBroken, ServerUnreachable), match="'fragile'"):
                        channel.send(*numbered(1, 100), TIMEOUT)
                deadline = time.monotonic() + TIMEOUT
                while not errors:
                    assert time.monotonic() < deadline
                    time.sleep(0.005)
    assert isinstance(errors[0], StreamBroken)


def test_a_peer_that_does_not_come_back_ends_the_channel_after_its_time() -> None:
    options = ChannelOptions(resume=True, resume_timeout=0.3)
    handled = threading.Event()

    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        try:
            echo(name, metadata, channel)
        finally:
            handled.set()

    with ExchangeEndpoint(ANY, handler, BufferPool(64 * MIB), timeout=TIMEOUT, options=options) as endpoint:
        proxy = CuttingProxy(endpoint.port)
        with ExchangeClient(proxy.address, BufferPool(64 * MIB), timeout=TIMEOUT, options=options) as client:
            with client.open("numbers") as channel:
                channel.send(*numbered(0, 100), TIMEOUT)
                receive_batch(channel).release()
                with proxy:
                    pass  # it is gone now, and nobody listens at its address
                with pytest.raises((StreamBroken, ServerUnreachable)):
                    channel.receive(TIMEOUT)
        assert handled.wait(TIMEOUT)


def test_a_channel_that_the_endpoint_does_not_know_is_not_resumed() -> None:
    options = ChannelOptions(resume=True, resume_timeout=TIMEOUT)
    first = ExchangeEndpoint(ANY, echo, BufferPool(64 * MIB), timeout=TIMEOUT, options=options)
    second = ExchangeEndpoint(ANY, echo, BufferPool(64 * MIB), timeout=TIMEOUT, options=options)
    with first, second:
        with CuttingProxy(first.port) as proxy:
            with ExchangeClient(proxy.address, BufferPool(64 * MIB), timeout=TIMEOUT, options=options) as client:
                with client.open("numbers") as channel:
                    channel.send(*numbered(0, 100), TIMEOUT)
                    receive_batch(channel).release()
                    proxy._port = second.port
                    proxy.cut()
                    with pytest.raises(StreamBroken, match="no such channel to resume"):
                        channel.receive(TIMEOUT)


def test_an_address_where_nobody_listens_is_unreachable() -> None:
    with ExchangeClient("127.0.0.1:1", BufferPool(64 * MIB), timeout=TIMEOUT) as client:
        with pytest.raises(ServerUnreachable, match="127.0.0.1:1"):
            client.open("nobody")
        assert client.statistics().channels == 0
