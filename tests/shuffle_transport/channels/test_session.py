"""One end of a channel between its streams: when it is given up, and what becomes of a stream that comes too late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from shuffle_api.errors import ShuffleError, ShuttingDown, StreamBroken
from shuffle_transport import messages
from shuffle_transport.channels import BlockChannel, ChannelOptions, ExchangeClient, ExchangeEndpoint
from shuffle_transport.channels.stream import Stream
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_transport.channels.helpers import ANY, MIB, TIMEOUT, CuttingProxy, connected, echo, numbered
from tests.shuffle_transport.channels.simulated import End, Unkept, connect, disconnect

RESUME = ChannelOptions(resume=True, resume_timeout=TIMEOUT)
LONG_AGO = -1.0


class Watchful(Unkept):
    """A timer thread that looks after a session at the worst moment: when a stream was let go."""

    def __init__(self) -> None:
        super().__init__("watchful")
        self.look: Callable[[], object] = lambda: None

    def end(self, key: object) -> None:
        self.look()


def ends() -> tuple[End, End]:
    pool = BufferPool(256 * MIB)
    return (
        End("near", pool, window=32 * MIB, resume=True, accepting=False),
        End("far", pool, window=32 * MIB, resume=True, accepting=True),
    )


def close(*both: End) -> None:
    for end in both:
        end.channel.cancel("the test is over")
        end.session.close()


def test_the_time_of_an_earlier_absence_does_not_count_in_a_later_one() -> None:
    near, far = ends()
    timers = Watchful()
    far.session.threads = replace(far.session.threads, timers=timers)
    connect(near, far)
    far.wire.broken = True
    far.session.run(away=LONG_AGO)
    connect(near, far)  # it came back, just in time
    timers.look = lambda: far.session.check(time.monotonic())
    far.wire.broken = True
    far.session.run(away=TIMEOUT)
    given_up = [far.session.over]
    far.session.check(time.monotonic() + 2 * TIMEOUT)
    given_up.append(far.session.over)
    assert given_up == [False, True]
    close(near, far)


def test_who_is_given_up_while_it_comes_back_is_told_so() -> None:
    near, far = ends()
    connect(near, far)
    disconnect(near, far)
    far.session.fail(StreamBroken("the other end did not come back in time"), unless_attached=True)
    with pytest.raises(StreamBroken, match="away for too long"):
        connect(near, far)
    assert not far.session.attached
    close(near, far)


def test_who_is_back_is_not_given_up() -> None:
    near, far = ends()
    connect(near, far)
    far.session.fail(StreamBroken("the other end did not come back in time"), unless_attached=True)
    assert not far.session.over
    close(near, far)


def test_a_channel_that_was_given_up_is_not_looked_at_again_and_again() -> None:
    near, far = ends()
    connect(near, far)
    far.wire.broken = True
    far.session.run(away=LONG_AGO)
    now = time.monotonic()
    assert far.session.check(now) > now
    assert far.session.over
    assert far.session.check(now) > now
    close(near, far)


def test_a_large_batch_has_the_time_it_takes_to_send_it_again() -> None:
    near, far = ends()
    connect(near, far)
    near.channel.send(*numbered(0, 16 * MIB), TIMEOUT)
    disconnect(near, far)
    connect(near, far)
    near.deliver()
    deadlines: list[float] = []
    near.session.sender._written_by.begin = deadlines.append  # type: ignore[assignment]
    now = time.monotonic()
    near.writes.run()
    assert max(deadlines) - now > 16  # a MiB a second is a transport that moves
    close(near, far)


def test_nothing_is_sent_again_on_a_stream_whose_other_end_has_not_said_what_it_holds() -> None:
    near, far = ends()
    connect(near, far)
    near.channel.send(*numbered(0, 100), TIMEOUT)
    disconnect(near, far)
    connect(near, far)
    near.deliver()  # the other end reports its position, and the stream changes before `near` acts on it
    disconnect(near, far)
    connect(near, far)
    near.writes.run()
    hello = len(far.wire.messages)
    near.deliver()
    near.writes.run()
    assert (hello, len(far.wire.messages) > 2) == (1, True)
    close(near, far)


def test_who_waits_for_credit_says_so_again_on_a_new_stream() -> None:
    near, far = ends()
    connect(near, far)
    near.channel.send(*numbered(0, 700_000), TIMEOUT)
    broken: list[ShuffleError] = []

    def send() -> None:
        try:
            near.channel.send(*numbered(1, 700_000), TIMEOUT)
        except ShuffleError as error:
            broken.append(error)

    waiting = threading.Thread(target=send)
    waiting.start()
    while not backlogs(far):
        time.sleep(0.001)
    disconnect(near, far)
    connect(near, far)
    near.deliver()
    near.writes.run()
    assert max(backlogs(far)) > 700_000
    close(near, far)
    waiting.join(TIMEOUT)
    assert broken


def backlogs(end: End) -> list[int]:
    """What was announced to this end and is on its way."""
    controls = [messages.parse(pb.ExchangeControl, control) for _, control in list(end.wire.messages) if control]
    return [control.backlog for control in controls if control.backlog]


def test_a_channel_that_is_closed_while_it_connects_again_is_closed() -> None:
    with ExchangeEndpoint(ANY, echo, BufferPool(64 * MIB), timeout=TIMEOUT, options=RESUME) as endpoint:
        with CuttingProxy(endpoint.port) as proxy:
            with ExchangeClient(proxy.address, BufferPool(64 * MIB), timeout=TIMEOUT, options=RESUME) as client:
                channel = client.open("numbers")
                channel.send_control(b"known", TIMEOUT)
                assert channel.receive(TIMEOUT) is not None
                closing = threading.Thread(target=channel.close)
                connect_again = client._stream

                def slowly(command: pb.ExchangeCommand, timeout: float) -> Stream:
                    stream = connect_again(command, timeout)
                    closing.start()
                    while not channel._session.over:
                        time.sleep(0.001)
                    return stream

                client._stream = slowly  # type: ignore[method-assign]
                proxy.cut()
                while not channel._session.over:
                    time.sleep(0.001)
                closing.join(TIMEOUT)
                assert not closing.is_alive()
                client._stream = connect_again  # type: ignore[method-assign]


def test_a_client_that_is_closed_opens_no_channel_behind_its_back() -> None:
    with connected(echo) as (client, _):
        connect_first = client._stream

        def late(command: pb.ExchangeCommand, timeout: float) -> Stream:
            stream = connect_first(command, timeout)
            client.close()
            return stream

        client._stream = late  # type: ignore[method-assign]
        with pytest.raises(ShuttingDown):
            client.open("late")
        assert client._pool.statistics().used == 0


def test_an_endpoint_that_shuts_down_tells_the_channel_that_just_came() -> None:
    errors: list[ShuffleError] = []

    def handler(name: str, metadata: bytes, channel: BlockChannel) -> None:
        try:
            channel.receive(TIMEOUT)
        except ShuffleError as error:
            errors.append(error)
            raise

    quiet = ChannelOptions(keepalive=0)
    with connected(handler, options=quiet, server_options=quiet) as (client, endpoint):
        watch = endpoint.exchange._threads.timers.watch

        def shutting_down(key: object, check: Callable[[float], float]) -> None:
            watch(key, check)
            next(iter(endpoint.exchange._known)).abandon(ShuttingDown("the endpoint is shutting down"))

        endpoint.exchange._threads.timers.watch = shutting_down  # type: ignore[method-assign]
        with client.open("late") as channel:
            with pytest.raises(ShuttingDown):
                channel.receive(TIMEOUT)
    assert isinstance(errors[0], ShuttingDown)


def test_a_client_cannot_keep_the_keeper_busy_by_its_keepalive() -> None:
    near, far = ends()
    connect(near, far)
    far.session._silence.seconds = 0.003
    now = time.monotonic()
    assert far.session.check(now) >= now + 0.05
    close(near, far)
