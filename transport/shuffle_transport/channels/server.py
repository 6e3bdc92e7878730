"""The server's end: channels that clients open, each served by a handler in a thread of its own.

The thread of a Flight call reads the call's stream, from its first to its last message, and then returns. The handler
has another: so it can outlive a stream that breaks, and nothing stays unread while it is busy.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import pyarrow.flight as fl

from shuffle_api.errors import InternalError, InvalidArgument, ShuffleError, ShuttingDown, StreamBroken
from shuffle_api.periodic import StreamThread
from shuffle_transport import messages
from shuffle_transport.channels.backpressure_compressor import BackpressureCompressor
from shuffle_transport.channels.channel import BlockChannel
from shuffle_transport.channels.options import DEFAULT_OPTIONS, ChannelOptions
from shuffle_transport.channels.sender import error_control
from shuffle_transport.channels.session import LEAVE_WITHIN, ChannelThreads, Session
from shuffle_transport.channels.statistics import ExchangeStatistics
from shuffle_transport.channels.stream import FlightStream, Stream
from shuffle_transport.channels.timer_thread import TimerThread
from shuffle_transport.channels.wire import SERVED_SCHEMA
from shuffle_transport.channels.writer_thread import WriterThread
from shuffle_transport.codecs import get_codec
from shuffle_transport.connect import use_grpc
from shuffle_transport.flight_auth import principal_of
from shuffle_transport.freed_memory import keep_freed_memory
from shuffle_transport.granter import Granter
from shuffle_transport.grpc_polling import poll_directly
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Principal

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
        use_grpc()
        keep_freed_memory()
        poll_directly()
        self._handler, self._pool, self._timeout, self._options = handler, pool, timeout, options
        self._threads = ChannelThreads(
            TimerThread("exchange-timers"), WriterThread("exchange-writer"), BackpressureCompressor()
        )
        self._changed = threading.Condition()
        self._served: dict[Session, BlockChannel] = {}  # whose handlers run
        self._known: dict[Session, tuple[Principal, bytes]] = {}  # all, with who may resume them, and by what name
        self._opened = self._resumed = 0
        self._closed = False

    def accept_exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        """Serve one DoExchange call until its stream has ended. Errors of the request are sent on it."""
        stream = FlightStream(context.peer(), reader, writer, None)
        writer.begin(SERVED_SCHEMA)
        self.serve(stream, lambda: (exchange_command(stream.peer, descriptor), principal_of(context)))

    def serve(self, stream: Stream, request: Callable[[], tuple[pb.ExchangeCommand, Principal]]) -> None:
        """Serve one stream until it has ended, whoever opened it.

        :param request: what is asked and by whom; raises what is wrong with that, which is then said on the stream.
        """
        try:
            command, principal = request()
            session = self._resume(command, stream, principal) or self._open(command, stream, principal)
        except ShuffleError as error:
            log.warning("exchange with %s refused: %s", stream.peer, error)
            refuse(stream, error, self._threads.timers)
            return
        reason = session.run(away=self._options.resume_timeout if session.resume else math.inf)
        if reason is not None and not session.resume:
            session.fail(reason)
        self._settle(session)

    def statistics(self) -> ExchangeStatistics:
        """The channels whose handlers run now, summed."""
        with self._changed:
            channels, opened, resumed = list(self._served.values()), self._opened, self._resumed
        return ExchangeStatistics.of((channel.statistics() for channel in channels), opened, resumed)

    def close(self, reason: ShuffleError | None = None) -> None:
        """Refuse new channels, cancel the open ones, wait for their handlers. Idempotent.

        :param reason: the error that the other ends get; a ShuttingDown if none is given.
        """
        with self._changed:
            self._closed = True
            sessions = list(self._known)
        for session in sessions:
            session.abandon(copy(reason) if reason else ShuttingDown("the endpoint is shutting down"))
        with self._changed:
            self._changed.wait_for(lambda: not self._served, self._timeout)
        self._threads.close()

    def _open(self, command: pb.ExchangeCommand, stream: Stream, principal: Principal) -> Session:
        codec = get_codec(command.codec or "none")
        granter = Granter(self._pool, self._timeout, maximum=self._options.window, announced=True)
        session = Session(
            f"channel {command.channel!r} with {stream.peer}",
            granter,
            codec,
            self._threads,
            silence=3 * command.keepalive_ms / 1000,
            resume=bool(command.session),
        )
        channel = BlockChannel(command.channel, stream.peer, session, self._timeout, _nothing, principal)
        session.attach(stream, accepting=True)  # before the session is listed: others end the stream that they find
        with self._changed:
            if self._closed:
                session.close()
                raise ShuttingDown("the endpoint is shutting down")
            self._known[session] = principal, command.session
            self._served[session] = channel
            self._opened += 1
        self._threads.timers.watch(session, partial(self._check, session))
        name = f"exchange-{command.channel}"
        StreamThread(name, partial(self._serve, session, channel, command.metadata), session.abandon).start()
        return session

    def _resume(self, command: pb.ExchangeCommand, stream: Stream, principal: Principal) -> Session | None:
        """The session that the command names, on its new stream; None if the channel is to be opened."""
        wanted = principal, command.session
        with self._changed:
            found = [session for session, known in self._known.items() if command.session and known == wanted]
        if not found and not command.resumed:
            return None
        if not found or found[0].over:
            raise StreamBroken(
                "no such channel to resume: it has ended here, or was away for too long",
                remedy="open a new channel and send everything again",
            )
        session = found[0]
        with session.changing:
            session.evict(stream, self._timeout)
            session.attach(stream, resumed=True, accepting=True)
        with self._changed:
            self._resumed += 1
        return session

    def _serve(self, session: Session, channel: BlockChannel, metadata: bytes) -> None:
        """A channel's handler thread."""
        error: ShuffleError | None = InternalError("the handler failed", remedy="see the endpoint's log")
        try:
            self._handler(channel.name, metadata, channel)
            if not session.sender.ended:
                channel.half_close(self._timeout)
            error = None
        except ShuffleError as refusal:
            log.warning("the handler ended with: %s", refusal)
            error = refusal
        finally:
            if error is not None:
                session.abandon(error)
            session.close()
            with self._changed:
                del self._served[session]
                self._changed.notify_all()
            self._settle(session)

    def _check(self, session: Session, now: float) -> float:
        due = session.check(now)
        self._settle(session)
        return due

    def _settle(self, session: Session) -> None:
        """Forget a session that nothing more can come of."""
        with self._changed:
            if session in self._served or session.attached or not session.over:
                return
            self._known.pop(session, None)
        self._threads.timers.forget(session)


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


def refuse(stream: Stream, error: ShuffleError, timers: TimerThread) -> None:
    """Say `error` on a stream that is not served, and let the other end end it."""
    refusal, deadline = error_control(error), time.monotonic() + LEAVE_WITHIN
    with timers.guard(deadline, stream.abort):
        try:
            stream.write((None, refusal.SerializeToString()))
        except ShuffleError as broken:
            log.debug("refusing %s: %s", stream.peer, broken)
            return
    read_to_end(stream, timers, deadline)


def read_to_end(stream: Stream, timers: TimerThread, deadline: float) -> None:
    """Let the other end end a stream on which an error was the last message; at `deadline` (time.monotonic()) it is
    aborted.

    A call that ends while its client writes may lose what the client has not read yet: the error.
    """
    with timers.guard(deadline, stream.abort):
        try:
            while stream.read() is not None:
                pass
        except ShuffleError as broken:
            log.debug("%s after its refusal: %s", stream.peer, broken)


def exchange_command(peer: str, descriptor: fl.FlightDescriptor) -> pb.ExchangeCommand:
    """What a call that opens a channel asks. Raises InvalidArgument or ProtocolMismatch."""
    if descriptor.descriptor_type != fl.DescriptorType.CMD:
        raise InvalidArgument("an exchange whose descriptor is a path", remedy="send an ExchangeCommand")
    command = messages.parse(pb.ExchangeCommand, descriptor.command)
    messages.check_protocol(command.protocol, peer)
    return command


def _nothing() -> None:
    """A server's channel is closed when its handler returns."""
