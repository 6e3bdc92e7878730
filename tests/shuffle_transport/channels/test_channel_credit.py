"""What a stopped consumer costs: its producer a wait, the others nothing, memory no more than its window."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow.flight as fl
import pytest

from shuffle_api.errors import (
    DeadlineExceeded,
    InvalidArgument,
    Overloaded,
)
from shuffle_transport.channels import BlockChannel, ChannelOptions, Control, ReceivedBatch, leader_follower
from shuffle_transport.channels.session import LEAD_FROM
from shuffle_transport.channels.stream import FlightStream, Message
from shuffle_transport.channels.wire import MESSAGE_COST
from shuffle_transport.credits import INITIAL_CREDIT
from tests.shuffle_transport.channels.helpers import (
    MIB,
    TIMEOUT,
    connected,
    echo,
    eventually,
    hold,
    number_of,
    numbered,
    receive_batch,
)


def batches(channel: BlockChannel) -> Iterator[ReceivedBatch]:
    """To the end."""
    while (item := channel.receive(TIMEOUT)) is not None:
        assert isinstance(item, ReceivedBatch)
        yield item


def drop(name: str, metadata: bytes, channel: BlockChannel) -> None:
    for item in batches(channel):
        item.release()


def test_unconsumed_dataholds_the_window_and_consuming_opens_it() -> None:
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
                channel.send(*numbered(number, 100_000), TIMEOUT, credit_timeout=0.2)
                sent += 1
        batch = 100_100 + MESSAGE_COST
        eventually(lambda: endpoint.statistics().sums.held > INITIAL_CREDIT - batch)  # what is on the way arrives
        assert endpoint.statistics().sums.held <= endpoint.statistics().sums.granted
        assert channel.statistics().stall_seconds > 0
        go_on.set()
        for number in range(sent, 200):
            channel.send(*numbered(number, 100_000), TIMEOUT)
        channel.half_close(TIMEOUT)
        assert channel.receive(TIMEOUT) is None
    assert received == list(range(200))


def note_readers(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the threads that read a stream from now on."""
    readers: set[str] = set()
    read = FlightStream.read

    def noted(stream: FlightStream) -> Message | None:
        readers.add(threading.current_thread().name)
        return read(stream)

    monkeypatch.setattr(FlightStream, "read", noted)
    return readers


def test_who_waits_for_credit_reads_its_grants_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_follower, "STAND_BY", TIMEOUT)

    with connected(drop) as (client, _), client.open("drop") as channel:
        channel.send(*numbered(0, MIB), TIMEOUT)  # the own thread reads at first, until a grant comes
        eventually(lambda: channel.statistics().credit_granted > MIB)
        readers = note_readers(monkeypatch)
        for number in range(100):
            channel.send(*numbered(number, MIB), TIMEOUT)
        assert channel.statistics().stall_seconds > 0
        channel.half_close(TIMEOUT)
        assert channel.receive(TIMEOUT) is None
    assert threading.current_thread().name in readers


def test_who_reads_ahead_goes_on_when_something_else_comes_than_the_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_follower, "STAND_BY", TIMEOUT)
    monkeypatch.setattr(leader_follower, "LINGER", TIMEOUT)
    low, read = threading.Event(), FlightStream.read

    def late(stream: FlightStream) -> Message | None:
        message = read(stream)
        if isinstance(stream._writer, fl.FlightStreamWriter):  # the client's
            assert low.wait(TIMEOUT)
        return message

    monkeypatch.setattr(FlightStream, "read", late)

    with connected(drop) as (client, _), client.open("drop", options=ChannelOptions(codec="lz4")) as channel:
        gate = channel._sender.gate
        while not gate.low:
            channel.send(*numbered(0, 50_000), TIMEOUT)
        low.set()  # what has been read is what the server says first
        eventually(lambda: not gate.low)


@pytest.mark.parametrize(("codec", "credit_timeout"), [("none", 1.0), ("lz4", None)])
def test_grants_are_read_ahead_for_who_cannot_read_them_itself_or_would_compress(
    codec: str, credit_timeout: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_follower, "STAND_BY", TIMEOUT)
    monkeypatch.setattr(leader_follower, "LINGER", TIMEOUT)

    with connected(drop) as (client, _), client.open("drop", options=ChannelOptions(codec=codec)) as channel:
        gate = channel._sender.gate
        for number in range(100):
            channel.send(*numbered(number, 50_000), TIMEOUT, credit_timeout=credit_timeout)
            eventually(lambda: not gate.low)  # nobody waits for credit, and yet the grant is read
        assert gate.statistics().granted > 3 * MIB
        assert gate.statistics().waits == 0
        channel.half_close(TIMEOUT)
        assert channel.receive(TIMEOUT) is None


def test_who_waits_for_credit_and_cannot_read_is_read_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_follower, "STAND_BY", TIMEOUT)
    monkeypatch.setattr(leader_follower, "LINGER", TIMEOUT)

    with connected(drop) as (client, _), client.open("drop") as channel:
        channel.send(*numbered(0, 400_000), TIMEOUT)  # more than half of the credit is left: no reason to read ahead
        state = channel._session._readers
        assert state is not None
        eventually(lambda: not state._lead.locked())  # the own thread stands by
        assert not channel._sender.gate.low
        readers = note_readers(monkeypatch)
        channel.send(*numbered(1, 900_000), TIMEOUT, credit_timeout=LEAD_FROM - 1)
        assert channel._sender.gate.statistics().waits == 1
        assert threading.current_thread().name not in readers
        channel.half_close(TIMEOUT)
        assert channel.receive(TIMEOUT) is None


def test_several_threads_that_wait_for_credit_all_get_it() -> None:
    taken: list[int] = []

    def take(name: str, metadata: bytes, channel: BlockChannel) -> None:
        for item in batches(channel):
            taken.append(number_of(item))
            item.release()

    with connected(take) as (client, _), client.open("take") as channel, ThreadPoolExecutor(4) as pool:

        def send(first: int) -> None:
            for number in range(first, 400, 4):
                channel.send(*numbered(number, 300_000 + 100_000 * first), TIMEOUT)

        for sending in [pool.submit(send, first) for first in range(4)]:
            sending.result(TIMEOUT)
        channel.half_close(TIMEOUT)
        assert channel.receive(TIMEOUT) is None
    assert sorted(taken) == list(range(400))
    for first in range(4):
        assert [number for number in taken if number % 4 == first] == list(range(first, 400, 4))


def test_who_waits_for_credit_takes_in_what_comes_meanwhile() -> None:
    """Both ends send more than their windows, each with one thread that sends and one that receives."""

    def both(channel: BlockChannel) -> list[int]:
        def send() -> None:
            for number in range(60):
                channel.send(*numbered(number, MIB), TIMEOUT)
            channel.half_close(TIMEOUT)

        taken = []
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send)
            for item in batches(channel):
                taken.append(number_of(item))
                item.release()
            sending.result(TIMEOUT)
        return taken

    there: list[int] = []
    with connected(lambda name, metadata, channel: there.extend(both(channel))) as (client, _):
        with client.open("both") as channel:
            assert both(channel) == list(range(60))
    assert there == list(range(60))


def test_control_passes_without_credit() -> None:
    with connected(hold) as (client, _), client.open("hold") as channel:
        with pytest.raises(DeadlineExceeded):
            while True:
                channel.send(*numbered(0, 200_000), TIMEOUT, credit_timeout=0.1)
        channel.send_control(b"still here", TIMEOUT)
        assert channel.receive(TIMEOUT) == Control(b"still here")


def test_a_channel_without_credit_does_not_stop_the_others_on_its_connection() -> None:
    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        (hold if name == "stopped" else echo)(name, metadata, channel)

    with connected(handler) as (client, endpoint):
        channels = [client.open("echo") for _ in range(8)]
        with client.open("stopped") as stopped:
            with pytest.raises(DeadlineExceeded):
                while True:
                    stopped.send(*numbered(0, 500_000), TIMEOUT, credit_timeout=0.1)
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
    with connected(hold, server_options=options) as (client, endpoint), client.open("hold") as channel:
        with pytest.raises(DeadlineExceeded):
            for _ in range(1000):
                channel.send(*numbered(0, 300_000), TIMEOUT, credit_timeout=0.2)
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
    with connected(echo, budget=INITIAL_CREDIT, timeout=3.0) as (client, _):
        with client.open("first"):
            with pytest.raises(Overloaded):
                client.open("second")


def test_an_endpoint_without_room_says_so() -> None:
    with connected(echo, timeout=3.0) as (client, endpoint):
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
        eventually(lambda: endpoint.statistics().channels == 0)
        eventually(lambda: [pool.statistics().used for pool in pools] == [0, 0])


def test_wait_for_credit_may_end_before_the_deadline_of_the_transport() -> None:
    with connected(hold) as (client, _), client.open("hold") as channel:
        rows, payload = numbered(0, MIB // 2)
        with pytest.raises(DeadlineExceeded):
            for _ in range(100):
                channel.send(rows, payload, TIMEOUT, credit_timeout=0.05)
        assert not channel.ready  # it goes on


def test_limited_window_grants_less() -> None:
    taken: list[int] = []

    def slow(name: str, metadata: bytes, channel: BlockChannel) -> None:
        channel.limit_window(INITIAL_CREDIT)
        while (item := channel.receive(TIMEOUT)) is not None:
            assert isinstance(item, ReceivedBatch)
            taken.append(channel.statistics().granted_available)
            item.release()

    with connected(slow) as (client, _), client.open("slow") as channel:
        rows, payload = numbered(0, MIB // 4)
        for _ in range(200):
            channel.send(rows, payload, TIMEOUT)
        channel.half_close(TIMEOUT)
        assert channel.receive(TIMEOUT) is None
    assert len(taken) == 200
    assert max(taken) <= INITIAL_CREDIT


def test_channels_that_are_always_busy_let_new_ones_in() -> None:
    stop = threading.Event()

    def send(channel: BlockChannel) -> int:
        sent = 0
        while not stop.is_set():
            channel.send(*numbered(sent, 300_000), TIMEOUT)
            sent += 1
        channel.half_close(TIMEOUT)
        assert channel.receive(TIMEOUT) is None
        return sent

    # Two windows of sixteen such batches are more than the server has.
    with connected(drop, budget=8 * MIB) as (client, endpoint), ThreadPoolExecutor(8) as threads:
        busy = [threads.submit(send, client.open(f"busy {i}")) for i in range(2)]
        try:
            eventually(lambda: endpoint.exchange._pool.pressed)
            for i in range(4):
                busy.append(threads.submit(send, client.open(f"new {i}")))
            eventually(
                lambda: endpoint.statistics().channels == 6 and endpoint.statistics().sums.blocks_received > 1000
            )
        finally:
            stop.set()
        assert all(channel.result(TIMEOUT) for channel in busy)
