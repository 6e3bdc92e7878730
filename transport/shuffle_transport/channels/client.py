"""The client's end: one connection to one peer, any number of channels over it."""

from __future__ import annotations

import threading
import time
from functools import partial
from secrets import token_bytes
from types import TracebackType
from typing import Self

import pyarrow as pa
import pyarrow.flight as fl

from shuffle_api.errors import (
    InvalidArgument,
    PermissionDenied,
    ProtocolMismatch,
    ShuffleError,
    ShuttingDown,
    StreamBroken,
    Unauthenticated,
)
from shuffle_api.periodic import StreamThread
from shuffle_transport import messages
from shuffle_transport.channels.backpressure_compressor import BackpressureCompressor
from shuffle_transport.channels.channel import BlockChannel
from shuffle_transport.channels.options import DEFAULT_OPTIONS, ChannelOptions
from shuffle_transport.channels.session import ChannelThreads, Session
from shuffle_transport.channels.statistics import ExchangeStatistics
from shuffle_transport.channels.stream import FlightStream, Stream, translated
from shuffle_transport.channels.timer_thread import TimerThread
from shuffle_transport.channels.wire import EXCHANGE_SCHEMA
from shuffle_transport.channels.writer_thread import WriterThread
from shuffle_transport.codecs import get_codec
from shuffle_transport.connect import flight_connection, flight_options, use_grpc
from shuffle_transport.granter import Granter
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import NO_CREDENTIALS, Credentials

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds between attempts to connect again
_FINAL = (Unauthenticated, PermissionDenied, ProtocolMismatch)
"""How a call is refused that is refused again when it is repeated."""


class ExchangeClient:
    """A connection to the exchange endpoint at `address` (HOST:PORT). Thread-safe; a context manager.

    Connects with the first channel. Has a thread per channel, and two more.

    HOST:PORT/NAME is a task that is reached through the worker at HOST:PORT (`RelayListener.address`).

    :param pool: where the windows of what is received are reserved.
    :param timeout: seconds to connect, and to wait for a channel's first reservation.
    :param options: of channels that are opened without their own; `keepalive` also of the connection.
    :param credentials: who calls, and how TLS is spoken.
    """

    def __init__(
        self,
        address: str,
        pool: BufferPool,
        *,
        timeout: float = 30.0,
        options: ChannelOptions = DEFAULT_OPTIONS,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        self.address = address
        self._pool, self._timeout, self._options, self._credentials = pool, timeout, options, credentials
        self._server, self._task = relayed_task(address)
        self._client = flight_connection(self._server, credentials.tls, connection_options(options.keepalive))
        self._threads = ChannelThreads(
            TimerThread(f"exchange-timers-{address}"),
            WriterThread(f"exchange-writer-{address}"),
            BackpressureCompressor(),
        )
        self._lock = threading.Lock()
        self._channels: dict[BlockChannel, threading.Thread] = {}
        self._opened = self._resumed = 0
        self._closing = threading.Event()

    def open(self, name: str, *, metadata: bytes = b"", options: ChannelOptions | None = None) -> BlockChannel:
        """A new channel. Does not wait for the peer's handler: if it refuses, a send or receive says so.

        :param name: what the peer's handler knows it by.
        :param metadata: for the handler.
        :raises ServerUnreachable, DeadlineExceeded: no connection.
        :raises Overloaded: the pool has no room for the channel's first credit.
        :raises UnknownCodec: `options.codec`.
        :raises ShuttingDown: this client is closed.
        :raises InvalidArgument: this process was forked after gRPC had been used.
        """
        chosen = options or self._options
        codec = get_codec(chosen.codec)
        command = pb.ExchangeCommand(
            protocol=messages.PROTOCOL,
            channel=name,
            metadata=metadata,
            codec=codec.name,
            session=token_bytes(16) if chosen.resume else b"",
            keepalive_ms=round(chosen.keepalive * 1000),
            relay=self._route(chosen),
        )
        use_grpc()
        if self._closing.is_set():
            raise self._shutting_down()
        granter = Granter(self._pool, self._timeout, maximum=chosen.window, announced=True)
        try:
            stream = self._stream(command, self._timeout)
        except BaseException:
            granter.close()
            raise
        session = Session(
            f"channel {name!r} with {self.address}",
            granter,
            codec,
            self._threads,
            silence=3 * chosen.keepalive,
            resume=chosen.resume,
        )
        channel = BlockChannel(name, self.address, session, self._timeout, lambda: self._forget(channel, session))
        reader = StreamThread(
            f"exchange-read-{name}", partial(self._read, session, stream, command, chosen), session.fail
        )
        session.attach(stream)
        with self._lock:  # a channel that `close` does not find would outlive the threads that it needs to end
            closed = self._closing.is_set()
            if not closed:
                self._channels[channel] = reader
                self._opened += 1
                reader.start()
        if closed:
            stream.abort()
            stream.close()
            session.close()
            raise self._shutting_down()
        self._threads.timers.watch(session, session.check)
        if chosen.keepalive:
            self._threads.writer.keep_alive(session, session.ping, chosen.keepalive)
        return channel

    def statistics(self) -> ExchangeStatistics:
        """The channels that are open now, summed."""
        with self._lock:
            channels, opened, resumed = list(self._channels), self._opened, self._resumed
        return ExchangeStatistics.of((channel.statistics() for channel in channels), opened, resumed)

    def close(self) -> None:
        """Close all channels, then the connection. Idempotent."""
        with self._lock:
            self._closing.set()
            channels = list(self._channels)
        for channel in channels:
            channel.close()
        self._threads.close()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _shutting_down(self) -> ShuttingDown:
        return ShuttingDown(f"the exchange client of {self.address} is closed")

    def _route(self, chosen: ChannelOptions) -> pb.RelayRoute | None:
        if not self._task:
            return None
        own = self._credentials
        return pb.RelayRoute(to=self._task, wait_ms=round(chosen.relay_wait * 1000), token=own.token, app=own.app)

    def _stream(self, command: pb.ExchangeCommand, timeout: float) -> Stream:
        """A new stream, connected.

        :raises ServerUnreachable, DeadlineExceeded, StreamBroken: there is none.
        """
        try:
            writer, reader = self._client.do_exchange(
                fl.FlightDescriptor.for_command(command.SerializeToString()), flight_options(self._credentials, None)
            )
            with self._threads.timers.guard(time.monotonic() + timeout, reader.cancel):
                writer.begin(EXCHANGE_SCHEMA)
        except (pa.ArrowException, OSError) as error:
            raise translated(error, self.address, self._credentials.tls) from error
        return FlightStream(self.address, reader, writer, reader.cancel, tls=self._credentials.tls)

    def _read(self, session: Session, stream: Stream, command: pb.ExchangeCommand, options: ChannelOptions) -> None:
        """A channel's own thread: reads its stream, and the streams after that."""
        deadline = time.monotonic() + options.resume_timeout
        pauses = _FIRST_PAUSE
        while (reason := session.run()) is not None:
            stream.close()
            if session.heard:
                deadline, pauses = time.monotonic() + options.resume_timeout, _FIRST_PAUSE
            command.resumed = session.known
            mends = session.resume and not isinstance(reason, _FINAL)
            found = self._reconnect(session, command, deadline, pauses) if mends else None
            if found is None:
                session.fail(reason)
                return
            stream, pauses = found
        stream.close()

    def _reconnect(
        self, session: Session, command: pb.ExchangeCommand, deadline: float, pause: float
    ) -> tuple[Stream, float] | None:
        """Another stream for the session, and how long to pause should it break as well; None: no time is left."""
        while not session.over and (left := deadline - time.monotonic()) > 0:
            if self._closing.wait(min(pause, left)):
                return None
            pause = min(2 * pause, _LONGEST_PAUSE)
            try:
                stream = self._stream(command, min(left, self._timeout))
            except ShuffleError:
                continue
            try:
                session.attach(stream, resumed=True)
            except StreamBroken:  # the channel was closed meanwhile
                stream.abort()
                stream.close()
                return None
            with self._lock:
                self._resumed += 1
            return stream, pause
        return None

    def _forget(self, channel: BlockChannel, session: Session) -> None:
        with self._lock:
            reader = self._channels.pop(channel, None)
        if reader is not None:
            reader.join()
        self._threads.timers.forget(session)
        self._threads.writer.forget(session)


def relayed_task(address: str) -> tuple[str, bytes]:
    """Whom to connect to, and the name of the task that is behind it, if there is one.

    :raises InvalidArgument: the name is none.
    """
    server, slash, name = address.partition("/")
    try:
        task = bytes.fromhex(name)
    except ValueError:
        task = b""
    if slash and not task:
        raise InvalidArgument(f"no task has the address {address!r}", remedy="HOST:PORT/NAME, as its driver says it")
    return server, task


def connection_options(keepalive: float) -> list[tuple[str, int]]:
    """gRPC's options of a connection whose peer may fall silent for `keepalive` seconds (0: for ever).

    A channel says something that often, and the peer answers. If not even that comes, gRPC pings the peer's gRPC, and
    gives the connection up when no answer comes for as long again. Connections are not shared between clients.
    """
    own: list[tuple[str, int]] = [("grpc.use_local_subchannel_pool", 1)]
    if not keepalive:
        return own
    milliseconds = max(1, round(keepalive * 1000))
    return [*own, ("grpc.keepalive_time_ms", 2 * milliseconds), ("grpc.keepalive_timeout_ms", milliseconds)]
