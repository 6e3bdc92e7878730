"""Channels between tasks that only dial out: this worker joins two streams and passes messages on, unchanged.

A task that wants to be reached *listens*: it keeps a stream open. A caller opens a channel here, under that task's
name; the task receives the call, and answers with a stream of its own. Then each end reads the other's messages. Credit
is between the two ends, so what is here is one message of each direction, and a consumer that stands still holds up its
producer as if there were nothing in between. Nothing is kept: when this worker is gone, both ends find that their
streams broke, and come back as they would to each other.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_bytes

import pyarrow.flight as fl

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, PermissionDenied, ShuffleError, StreamBroken
from shuffle_api.ids import name_of
from shuffle_server.worker.relay.channel_pair import CHANNEL_BYTES, ChannelPair, Pump, RelayContext
from shuffle_transport.channels.disconnect import disconnect_from_peer
from shuffle_transport.channels.server import exchange_command, refuse
from shuffle_transport.channels.stream import FlightStream, Stream
from shuffle_transport.channels.wire import SERVED_SCHEMA
from shuffle_transport.flight_auth import principal_of
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Principal
from shuffle_transport.shares import Owner

log = logging.getLogger(__name__)

NAME_BYTES = 16
BEAT_SECONDS = 1.0  # between two words to a task that listens; also how soon one that is gone is missed
TICK_SECONDS = 0.25  # how often who waits for an answer looks whether its caller is still there

Cancelled = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class ChannelRelayStatistics:
    """Relayed channels at one moment; `held_bytes` are in hand, `messages` and `bytes` were passed on."""

    tasks: int = 0
    channels: int = 0
    held_bytes: int = 0
    messages: int = 0
    bytes: int = 0


@dataclass(eq=False, slots=True)
class RelayTarget:
    """A task that can be called. `None` among the calls: another stream has taken its place."""

    app: str
    calls: queue.SimpleQueue[pb.RelayCall | None] = field(default_factory=queue.SimpleQueue)
    gone: bool = False


@dataclass(eq=False, slots=True)
class PendingCall:
    """Somebody waits for a task's answer."""

    listener: RelayTarget
    caller: Pump
    pair: ChannelPair
    answered: bool = False


class ChannelRelay:
    """The relayed channels of a worker. Thread-safe; `close` it.

    :param pool: where each channel reserves room for what passes.
    :param timeout: seconds for a task to answer a call, and for an end to take a message.
    :param overload_timeout: seconds to wait for room in the pool.
    :param refused: receives each refusal.
    """

    def __init__(
        self, pool: BufferPool, timeout: float, overload_timeout: float, refused: Callable[[ShuffleError], None]
    ) -> None:
        self._pool, self._timeout, self._overload_timeout = pool, timeout, overload_timeout
        self._refused = refused
        self._relay_context = RelayContext(timeout)
        self._changed = threading.Condition()
        self._listeners: dict[bytes, RelayTarget] = {}
        self._calls: dict[bytes, PendingCall] = {}
        self._peers: dict[object, str] = {}  # of all streams, by stream
        self._channels = 0

    def exchange(
        self,
        context: fl.ServerCallContext,
        descriptor: fl.FlightDescriptor,
        reader: fl.MetadataRecordBatchReader,
        writer: fl.MetadataRecordBatchWriter,
    ) -> None:
        """Serve one DoExchange call until its stream has ended. Errors of the request are sent on it."""
        stream = FlightStream(context.peer(), reader, writer, None)
        writer.begin(SERVED_SCHEMA)
        with self._changed:
            self._peers[stream] = stream.peer
        try:
            command = exchange_command(stream.peer, descriptor)
            self._run(stream, command, principal_of(context), context.is_cancelled)
        except ShuffleError as error:
            if self._relay_context.closing:  # no reason to give up: the client tries again
                raise fl.FlightUnavailableError("the worker is stopping") from None
            self._refused(error)
            refuse(stream, error, self._relay_context.timers)
        finally:
            with self._changed:
                del self._peers[stream]

    def statistics(self) -> ChannelRelayStatistics:
        relay_context = self._relay_context
        with self._changed:
            return ChannelRelayStatistics(
                len(self._listeners), self._channels, relay_context.in_hand, relay_context.messages, relay_context.bytes
            )

    def close(self) -> None:
        """End all streams as they would end if this process died: both ends come back when it does. Idempotent."""
        with self._changed:
            self._relay_context.closing = True
            self._changed.notify_all()
            peers = set(self._peers.values())
        for peer in peers:
            disconnect_from_peer(peer)
        self._relay_context.timers.close()

    def _run(self, stream: Stream, command: pb.ExchangeCommand, principal: Principal, cancelled: Cancelled) -> None:
        route = command.relay
        chosen = [name for name in (route.to, route.listen, route.answer) if name]
        if len(chosen) != 1 or len(chosen[0]) != NAME_BYTES:
            raise InvalidArgument(
                "a channel that is for no task",
                remedy="name one: a worker relays channels between tasks, and has none of its own",
            )
        if route.listen:
            principal.check(route.app)
            self._listen(stream, route, cancelled)
        elif route.to:
            self._call(stream, command, principal, cancelled)
        else:
            self._answer(stream, route, principal)

    # ------------------------------------------------------------------------------------- who is called

    def _listen(self, stream: Stream, route: pb.RelayRoute, cancelled: Cancelled) -> None:
        listener = RelayTarget(route.app)
        with self._changed:
            self._check_open()
            present = self._listeners.get(route.listen)
            if present is not None and present.app != route.app:
                raise PermissionDenied("another application has a task of this name", remedy="choose a random name")
            if present is not None:  # the same task, which has lost its stream before this worker noticed
                self._gone(present)
                present.calls.put(None)
            self._listeners[route.listen] = listener
            self._changed.notify_all()
        try:
            call: pb.RelayCall | None = pb.RelayCall(peer=stream.peer)
            while call is not None and not cancelled() and not self._relay_context.closing:
                with self._relay_context.timers.guard(time.monotonic() + self._timeout, stream.abort):
                    stream.write((None, pb.ExchangeControl(message=call.SerializeToString()).SerializeToString()))
                try:
                    call = listener.calls.get(timeout=BEAT_SECONDS)
                except queue.Empty:
                    call = pb.RelayCall(peer=stream.peer)
        except ShuffleError as broken:
            log.debug("the task at %s is gone: %s", stream.peer, broken)
        finally:
            with self._changed:
                self._gone(listener)
                if self._listeners.get(route.listen) is listener:
                    del self._listeners[route.listen]

    def _gone(self, listener: RelayTarget) -> None:
        listener.gone = True
        self._changed.notify_all()

    def _answer(self, stream: Stream, route: pb.RelayRoute, principal: Principal) -> None:
        with self._changed:
            call = self._calls.get(route.answer)
            if call is not None:
                principal.check(call.listener.app)
                del self._calls[route.answer]
        if call is None:
            raise StreamBroken("nobody waits for this answer any more")
        pump = Pump(stream, call.pair, self._relay_context)
        pump.other, call.caller.other = call.caller, pump
        with self._changed:
            call.answered = True
            self._changed.notify_all()
        pump.run()

    # ---------------------------------------------------------------------------------------- who calls

    def _call(self, stream: Stream, command: pb.ExchangeCommand, principal: Principal, cancelled: Cancelled) -> None:
        deadline = time.monotonic() + min(command.relay.wait_ms / 1000, self._timeout)
        owner = Owner(name_of(principal.app or command.relay.app))
        pair = ChannelPair(self._pool.reserve(CHANNEL_BYTES, self._overload_timeout, owner), self._relay_context)
        try:
            caller = Pump(stream, pair, self._relay_context)
            while not self._called(caller, pair, command, principal, cancelled, deadline):
                pass  # the task has lost its stream, and may be back before the deadline
        except BaseException:
            pair.over(2)
            raise
        with self._changed:
            self._channels += 1
        try:
            caller.run()
        finally:
            with self._changed:
                self._channels -= 1

    def _called(
        self,
        caller: Pump,
        pair: ChannelPair,
        command: pb.ExchangeCommand,
        principal: Principal,
        cancelled: Cancelled,
        deadline: float,
    ) -> bool:
        """Send the call to the task, and wait for its answer; False if it has left before `deadline`."""
        listener = self._find(command.relay.to, cancelled, deadline)
        principal.check(listener.app)
        name, call = token_bytes(NAME_BYTES), PendingCall(listener, caller, pair)
        with self._changed:
            self._calls[name] = call
        said = pb.RelayCall(call=name, command=command.SerializeToString(), peer=caller.peer)
        listener.calls.put(said)
        try:
            self._await_answer(name, call, cancelled)
        except StreamBroken:
            if listener.gone and time.monotonic() < deadline:
                return False
            raise
        return True

    def _find(self, name: bytes, cancelled: Cancelled, deadline: float) -> RelayTarget:
        with self._changed:
            while (found := self._listeners.get(name)) is None or found.gone:
                self._check_open()
                left = deadline - time.monotonic()
                if left <= 0 or cancelled():
                    raise StreamBroken(
                        f"no task is reached as {name.hex()} here", remedy="it has ended, or may come back"
                    )
                self._changed.wait(min(left, TICK_SECONDS))
        return found

    def _await_answer(self, name: bytes, call: PendingCall, cancelled: Cancelled) -> None:
        deadline = time.monotonic() + self._timeout
        with self._changed:
            while not call.answered:
                if name in self._calls:  # else the answer is on its way to `answered`
                    if self._relay_context.closing or call.listener.gone or cancelled():
                        del self._calls[name]
                        raise StreamBroken("the task that was called has left", remedy="it may come back")
                    if time.monotonic() > deadline:
                        del self._calls[name]
                        raise DeadlineExceeded(
                            f"the task that was called did not answer within {self._timeout:g} s",
                            remedy="see whether it is stuck",
                        )
                self._changed.wait(TICK_SECONDS)

    def _check_open(self) -> None:
        if self._relay_context.closing:
            raise StreamBroken("the worker is stopping")
