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

from shuffle_api.errors import ShuttingDown
from shuffle_transport import messages
from shuffle_transport.codecs import get_codec
from shuffle_transport.connect import flight_connection, flight_options
from shuffle_transport.exchange.channel import BlockChannel
from shuffle_transport.exchange.keeper import Keeper
from shuffle_transport.exchange.options import DEFAULT_OPTIONS, ChannelOptions
from shuffle_transport.exchange.scribe import Scribe
from shuffle_transport.exchange.statistics import ExchangeStatistics
from shuffle_transport.exchange.stream import FlightStream, Stream, translated
from shuffle_transport.exchange.wire import EXCHANGE_SCHEMA
from shuffle_transport.granter import Granter
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import NO_CREDENTIALS, Credentials


class ExchangeClient:
    """A connection to the exchange endpoint at `address` (HOST:PORT). Thread-safe; a context manager.

    Connects with the first channel. Threads: one per channel, which reads, and two per client.

    :param pool: where the windows of what is received are reserved.
    :param timeout: seconds to connect, to wait for the first reservation, and to write grants.
    :param options: of channels that are opened without their own.
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
        self._client = flight_connection(address, credentials.tls)
        self._keeper = Keeper(f"exchange-keeper-{address}")
        self._scribe = Scribe(f"exchange-scribe-{address}")
        self._lock = threading.Lock()
        self._channels: dict[BlockChannel, threading.Thread] = {}
        self._opened = self._resumed = 0
        self._closing = threading.Event()

    def open(self, name: str, *, metadata: bytes = b"", options: ChannelOptions | None = None) -> BlockChannel:
        """A new channel. Does not wait for the peer's handler: if it refuses, the first send or receive says so.

        :param name: what the peer's handler knows it by.
        :param metadata: for the handler.
        :raises ServerUnreachable, DeadlineExceeded: no connection.
        :raises Overloaded: the pool has no room for the channel's first credit.
        :raises UnknownCodec: `options.codec`.
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
        )
        if self._closing.is_set():
            raise ShuttingDown(f"the exchange client of {self.address} is closed")
        granter = Granter(self._pool, self._timeout, maximum=chosen.window, announced=True)
        try:
            stream = self._stream(command, self._timeout)
        except BaseException:
            granter.close()
            raise
        channel = BlockChannel(
            name,
            self.address,
            metadata,
            granter=granter,
            codec=codec,
            keeper=self._keeper,
            timeout=self._timeout,
            resume=chosen.resume,
            silence=3 * chosen.keepalive,
            tell=self._scribe.tell,
        )
        reader = threading.Thread(
            target=self._read, args=(channel, stream, command), name=f"exchange-read-{name}", daemon=True
        )
        channel.on_close = partial(self._forget, channel)
        with self._lock:
            self._channels[channel] = reader
            self._opened += 1
        self._keeper.watch(channel, channel.check)
        self._scribe.watch(channel, chosen.keepalive)
        channel.attach(stream)
        reader.start()
        return channel

    def statistics(self) -> ExchangeStatistics:
        """The channels that are open now, summed."""
        with self._lock:
            channels, opened, resumed = list(self._channels), self._opened, self._resumed
        return ExchangeStatistics.of((channel.statistics() for channel in channels), opened, resumed)

    def close(self) -> None:
        """Close all channels, then the connection. Idempotent."""
        self._closing.set()
        with self._lock:
            channels = list(self._channels)
        for channel in channels:
            channel.close()
        self._scribe.close()
        self._keeper.close()
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stream(self, command: pb.ExchangeCommand, timeout: float) -> Stream:
        """A new stream, connected.

        :raises ServerUnreachable, DeadlineExceeded: what it says.
        """
        try:
            writer, reader = self._client.do_exchange(
                fl.FlightDescriptor.for_command(command.SerializeToString()), flight_options(self._credentials, None)
            )
            with self._keeper.guard(time.monotonic() + timeout, reader.cancel):
                writer.begin(EXCHANGE_SCHEMA)
        except (pa.ArrowException, OSError) as error:
            raise translated(error, self.address, self._credentials.tls) from error
        return FlightStream(self.address, reader, writer, reader.cancel, tls=self._credentials.tls)

    def _read(self, channel: BlockChannel, stream: Stream, command: pb.ExchangeCommand) -> None:
        """The channel's reading thread."""
        error = channel.run(stream)
        stream.close()
        if error is not None:
            channel.fail(error)

    def _forget(self, channel: BlockChannel) -> None:
        self._keeper.forget(channel)
        self._scribe.forget(channel)
        with self._lock:
            reader = self._channels.pop(channel, None)
        if reader is not None and reader is not threading.current_thread():
            reader.join()
