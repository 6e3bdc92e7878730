"""The server's end: channels that clients open, each served by a handler in a thread of its own.

The thread of a Flight call reads the call's stream, from its first to its last message, and then returns. The handler
has another: so it can outlive a stream that breaks, and nothing stays unread while it is busy.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow.flight as fl

from shuffle_api.errors import InternalError, InvalidArgument, ShuffleError, ShuttingDown
from shuffle_transport import messages
from shuffle_transport.codecs import get_codec
from shuffle_transport.exchange.channel import BlockChannel
from shuffle_transport.exchange.connection import cut
from shuffle_transport.exchange.keeper import Keeper
from shuffle_transport.exchange.options import DEFAULT_OPTIONS, ChannelOptions
from shuffle_transport.exchange.statistics import ExchangeStatistics
from shuffle_transport.exchange.stream import FlightStream
from shuffle_transport.exchange.wire import EXCHANGE_SCHEMA
from shuffle_transport.granter import Granter
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

Handler = Callable[[str, bytes, BlockChannel], None]
"""Serves one channel: (name, metadata, channel). When it returns, the channel's end is sent, if it was not; when it
raises, the other end gets that error if it is a ShuffleError, and an InternalError otherwise."""


class ExchangeService:
    """Accepts channels for any Flight server, whose `do_exchange` calls `accept_exchange`. `close` it before shutdown.

    :param pool: where the windows of what is received are reserved.
    :param timeout: seconds to wait for the first reservation, and to write grants.
    :param options: `window` and `resume_timeout`; the rest is the client's choice.
    """

    def __init__(
        self, handler: Handler, pool: BufferPool, *, timeout: float = 30.0, options: ChannelOptions = DEFAULT_OPTIONS
    ) -> None:
        self._handler, self._pool, self._timeout, self._options = handler, pool, timeout, options
        self._keeper = Keeper("exchange-keeper")
        self._changed = threading.Condition()
        self._channels: dict[BlockChannel, None] = {}  # whose handlers run
        self._opened = self._resumed = 0
        self._closed = False

    def accept_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        """Serve one DoExchange call until its stream has ended. What is wrong with the request is said on it."""
        peer = context.peer()
        stream = FlightStream(peer, reader, writer, partial(cut, peer))
        writer.begin(EXCHANGE_SCHEMA)
        try:
            channel = self._accept(peer, descriptor)
        except ShuffleError as error:
            log.warning("exchange refused: %s", error)
            refusal = pb.ExchangeControl(error=messages.error_message(error))
            stream.write((None, refusal.SerializeToString()))
            while stream.read() is not None:  # the client may be in the middle of a write: let it come to the refusal
                pass
            return
        channel.attach(stream)
        threading.Thread(target=self._serve, args=(channel,), name=f"exchange-{channel.name}", daemon=True).start()
        reason = channel.run(stream)
        if reason is not None:
            channel.fail(reason)
        self._keeper.forget(channel)

    def statistics(self) -> ExchangeStatistics:
        """The channels that are open now, summed."""
        with self._changed:
            channels, opened, resumed = list(self._channels), self._opened, self._resumed
        return ExchangeStatistics.of((channel.statistics() for channel in channels), opened, resumed)

    def close(self) -> None:
        """Refuse new channels, cancel the open ones, wait for their handlers. Idempotent."""
        with self._changed:
            self._closed = True
            channels = list(self._channels)
        for channel in channels:
            channel.abandon(ShuttingDown("the endpoint is shutting down"))
        with self._changed:
            self._changed.wait_for(lambda: not self._channels, self._timeout)
        self._keeper.close()

    def _accept(self, peer: str, descriptor: fl.FlightDescriptor) -> BlockChannel:
        if descriptor.descriptor_type != fl.DescriptorType.CMD:
            raise InvalidArgument("an exchange whose descriptor is a path", remedy="send an ExchangeCommand")
        command = messages.parse(pb.ExchangeCommand, descriptor.command)
        messages.check_protocol(command.protocol, peer)
        codec = get_codec(command.codec or "none")
        granter = Granter(self._pool, self._timeout, maximum=self._options.window, announced=True)
        channel = BlockChannel(
            command.channel,
            peer,
            command.metadata,
            granter=granter,
            codec=codec,
            keeper=self._keeper,
            timeout=self._timeout,
            resume=bool(command.session),
            silence=3 * command.keepalive_ms / 1000,
            tell=BlockChannel.tell,
        )
        with self._changed:
            if self._closed:
                granter.close()
                raise ShuttingDown("the endpoint is shutting down")
            self._channels[channel] = None
            self._opened += 1
        self._keeper.watch(channel, channel.check)
        return channel

    def _serve(self, channel: BlockChannel) -> None:
        """A channel's handler thread."""
        error: ShuffleError | None = InternalError("the handler failed", remedy="see the endpoint's log")
        try:
            self._handler(channel.name, channel.metadata, channel)
            error = None
        except ShuffleError as refusal:
            log.warning("%s: the handler ended with %s", channel.where, refusal)
            error = refusal
        finally:
            channel.retire(error)
            with self._changed:
                del self._channels[channel]
                self._changed.notify_all()


class ExchangeEndpoint(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """A Flight server that serves channels and nothing else. A context manager: leaving it shuts down.

    :param location: `grpc+tcp://HOST:PORT`; port 0 takes a free one, see `port`.
    :param handler: see `Handler`.
    :param options: see `ExchangeService`.
    :param server: arguments of `pyarrow.flight.FlightServerBase`, for TLS and middleware.
    """

    def __init__(
        self,
        location: str,
        handler: Handler,
        pool: BufferPool,
        *,
        timeout: float = 30.0,
        options: ChannelOptions = DEFAULT_OPTIONS,
        **server: Any,
    ) -> None:
        self.exchange = ExchangeService(handler, pool, timeout=timeout, options=options)
        super().__init__(location, **server)

    def do_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        self.exchange.accept_exchange(context, descriptor, reader, writer)

    def statistics(self) -> ExchangeStatistics:
        """The channels that are open now, summed."""
        return self.exchange.statistics()

    def shutdown(self) -> None:
        """Cancel all channels, then stop serving."""
        self.exchange.close()
        super().shutdown()

    def __exit__(self, *error: object) -> None:
        self.exchange.close()
        super().__exit__(*error)
