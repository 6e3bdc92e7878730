"""Being reached without listening on the network: channels come through a worker, to which both ends dial out.

The listener keeps a stream to the worker open, on which the worker says that somebody calls. Each call is answered with
a stream of its own, which the worker joins to the caller's (docs/protocol.md, Relayed channels). They carry
the messages of a client and a server: credit, numbers and deadlines are those of the two ends.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from secrets import token_bytes

import pyarrow as pa
import pyarrow.flight as fl

from shuffle_api.errors import DeadlineExceeded, ShuffleError, StreamBroken
from shuffle_api.ids import name_of
from shuffle_api.periodic import PeriodicTask, StreamThread
from shuffle_transport import messages
from shuffle_transport.channels.client import connection_options
from shuffle_transport.channels.server import ExchangeService
from shuffle_transport.channels.stream import FlightStream, translated
from shuffle_transport.channels.timer_thread import TimerThread
from shuffle_transport.channels.wire import EXCHANGE_SCHEMA
from shuffle_transport.connect import flight_connection, flight_options
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import SCHEME, Credentials, Keyring, Principal

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds between attempts to come back
_LEAVE_WITHIN = 2.0  # seconds for the worker to end the streams of channels that are over
_SILENCE = 5.0  # seconds without a word of the worker, which says something every second, at least


class RelayWorker:
    """The worker at `relay`, to which this process dials out: opens streams to it, and reads those on which calls come.

    :param timeout: seconds for it to answer.
    :param keepalive: seconds; one that is silent for 3 times that, or 5 seconds, is taken for dead.
    """

    def __init__(self, relay: str, credentials: Credentials, timeout: float, keepalive: float) -> None:
        self._relay, self._credentials, self._timeout = relay, credentials, timeout
        self._silence = max(_SILENCE, 3 * keepalive)
        self._client = flight_connection(relay, credentials.tls, connection_options(keepalive))
        self._timers = TimerThread("relay-listener-timers")
        self._seen_as = ""

    def open(self, route: pb.RelayRoute) -> FlightStream:
        """A stream of this kind. Raises ShuffleError."""
        command = pb.ExchangeCommand(protocol=messages.PROTOCOL, relay=route)
        tls = self._credentials.tls
        try:
            writer, reader = self._client.do_exchange(
                fl.FlightDescriptor.for_command(command.SerializeToString()), flight_options(self._credentials, None)
            )
            with self._timers.guard(time.monotonic() + self._timeout, reader.cancel):
                writer.begin(EXCHANGE_SCHEMA)
        except (pa.ArrowException, OSError) as error:
            raise translated(error, self._relay, tls) from error
        stream = FlightStream(self._relay, reader, writer, reader.cancel, tls=tls)
        stream.seen_as = self._seen_as
        return stream

    def next(self, stream: FlightStream) -> pb.RelayCall:
        """What the worker says next.

        :raises ShuffleError: the stream has ended, or the worker refuses.
        """
        asked = time.monotonic()
        with self._timers.guard(asked + self._silence, stream.abort):
            try:
                message = stream.read()
            except ShuffleError:
                if time.monotonic() - asked < self._silence:
                    raise
                raise DeadlineExceeded(f"the relay at {self._relay} was silent for {self._silence:g} s") from None
        if message is None:
            raise StreamBroken(f"the relay at {self._relay} has left")
        control = messages.parse(pb.ExchangeControl, message[1] or b"")
        if control.HasField("error"):
            raise messages.typed_error(control.error)
        call = messages.parse(pb.RelayCall, control.message)
        if not call.call:
            self._seen_as = call.peer
        return call

    def close(self) -> None:
        """After its streams."""
        self._timers.close()
        self._client.close()


class RelayListener:
    """Channels of one application come to `service` through the worker at `relay` (HOST:PORT). Close it.

    When the worker is gone it goes on trying to come back, under the same address.

    :ivar address: where this process is reached now: HOST:PORT/NAME.
    :param keys: to act for `app` at the worker; a caller needs the same token, or one made of the same secret.
    :param timeout: seconds for the worker to answer.
    :param keepalive: seconds; a worker that is silent for 3 times that, or 5 seconds, is taken for dead.
    :raises ServerUnreachable, DeadlineExceeded: there is no worker.
    :raises Unauthenticated, PermissionDenied: it does not let this application in.
    """

    def __init__(
        self, relay: str, app: str, service: ExchangeService, keys: Keyring, *, timeout: float, keepalive: float
    ) -> None:
        self._name = token_bytes(16)
        self.address = f"{relay}/{self._name.hex()}"
        self._relay, self._app, self._service, self._keys = relay, app, service, keys
        self._worker = RelayWorker(relay, keys.for_app(app), timeout, keepalive)
        self._task = PeriodicTask("relay-listener", self._listen_on, _FIRST_PAUSE, at_once=True, retry=_LONGEST_PAUSE)
        self._closing = self._task.closing
        self._answers: dict[threading.Thread, FlightStream | None] = {}  # single dict operations: no lock
        try:
            self._stream = self._listen()
        except BaseException:
            self._worker.close()
            raise
        self._fresh: FlightStream | None = self._stream
        self._task.start()

    def close(self) -> None:
        """Be reached no more. The service is closed before: its channels have a moment to say so. Idempotent."""
        self._closing.set()
        self._stream.abort()
        self._task.close()
        deadline = time.monotonic() + _LEAVE_WITHIN
        for thread in list(self._answers):
            thread.join(max(0.0, deadline - time.monotonic()))
            answer = self._answers.get(thread)
            if answer is not None:
                answer.abort()
            thread.join(_LEAVE_WITHIN)
        self._worker.close()

    def _listen_on(self) -> float:
        """On one stream, until it breaks."""
        found, self._fresh = self._fresh or self._come_back(), None
        if found is None:
            return 0.0
        self._stream = found
        if self._closing.is_set():  # `close` has seen the stream before
            found.abort()
        try:
            while True:
                call = self._worker.next(found)
                if call.call:
                    self._answer_soon(call)
        except ShuffleError as error:
            if not self._closing.is_set():
                log.warning("the relay at %s is gone, trying to come back: %s", self._relay, error)
        finally:
            found.abort()
            found.close()
        return 0.0

    def _come_back(self) -> FlightStream | None:
        pause = _FIRST_PAUSE
        while not self._closing.wait(pause):
            try:
                return self._listen()
            except ShuffleError as error:
                log.debug("the relay at %s is still gone: %s", self._relay, error)
                pause = min(2 * pause, _LONGEST_PAUSE)
        return None

    def _listen(self) -> FlightStream:
        """A stream on which calls come; the worker has said so."""
        stream = self._worker.open(pb.RelayRoute(listen=self._name, app=self._app))
        try:
            self._worker.next(stream)
        except BaseException:
            stream.abort()
            stream.close()
            raise
        return stream

    def _answer_soon(self, call: pb.RelayCall) -> None:
        thread = StreamThread("relay-answer", partial(self._answer, call), lambda error: None)
        self._answers[thread] = None
        thread.start()

    def _answer(self, call: pb.RelayCall) -> None:
        """Serve one channel, on a thread of its own."""
        me = threading.current_thread()
        try:
            stream = self._worker.open(pb.RelayRoute(answer=call.call, app=self._app))
        except ShuffleError as error:
            log.warning("a call of %s through the relay at %s is lost: %s", call.peer, self._relay, error)
            del self._answers[me]
            return
        stream.peer = call.peer
        self._answers[me] = stream
        try:
            self._service.serve(stream, partial(self._request, call))
        finally:
            stream.close()
            del self._answers[me]

    def _request(self, call: pb.RelayCall) -> tuple[pb.ExchangeCommand, Principal]:
        """What is asked and by whom. The worker has looked at the caller's token, if it wants tokens; this end does if
        it has one itself."""
        command = messages.parse(pb.ExchangeCommand, call.command)
        messages.check_protocol(command.protocol, call.peer)
        route = command.relay
        if not self._keys.wants_tokens:
            return command, Principal(name_of(self._app))
        tokens = [f"{SCHEME} {route.token}"] if route.token else []
        return command, self._keys.admit(tokens, [route.app] if route.app else [])
