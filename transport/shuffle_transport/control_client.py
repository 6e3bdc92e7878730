"""A client of the control service: a gRPC channel to each master, typed errors, a deadline on every call.

Of several masters one leads, the others are standbys and do not listen. A master that cannot be reached, stops, does
not lead or lets a call run into its deadline is left for the next one, by all clients of this process that have the
same addresses. A master of another registry than the application's names those of its own; a client that is refused so
goes there, with this request and all that follow.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import grpc
from google.protobuf.message import Message

from shuffle_api.address import Address, parse_addresses
from shuffle_api.backoff import Backoff
from shuffle_api.errors import (
    DeadlineExceeded,
    ProtocolMismatch,
    ServerUnreachable,
    ShuffleError,
    ShuttingDown,
    WrongMaster,
)
from shuffle_transport import messages
from shuffle_transport.connect import grpc_channel, not_connected, use_grpc
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.proto import flight_shuffle_pb2_grpc as rpc
from shuffle_transport.security import NO_CREDENTIALS, Credentials

Answer = TypeVar("Answer")

_AWAY = (ServerUnreachable, ShuttingDown)
MOST_MOVES = 3  # of one call, from one registry's masters to another's


@dataclass(frozen=True, slots=True)
class _Master:
    """One of the addresses."""

    address: Address
    channel: grpc.Channel
    stub: Any


class _Choice:
    """Which of the same addresses the clients of this process use."""

    def __init__(self) -> None:
        self.index = 0


_CHOICES: WeakValueDictionary[tuple[Address, ...], _Choice] = WeakValueDictionary()
_CHOOSING = threading.Lock()


class _Masters:
    """The masters of one registry, of which one leads."""

    def __init__(self, addresses: tuple[Address, ...], connect: Callable[[Address], _Master]) -> None:
        self.address = ",".join(map(str, addresses))
        self._all = [connect(each) for each in addresses]
        with _CHOOSING:
            self._choice = _CHOICES.setdefault(addresses, _Choice())

    def __len__(self) -> int:
        return len(self._all)

    @property
    def chosen(self) -> _Master:
        return self._all[self._choice.index]

    def leave(self, master: _Master) -> None:
        """Let calls go to the next master, unless another caller has seen to that."""
        with _CHOOSING:
            if self.chosen is master:
                self._choice.index = (self._choice.index + 1) % len(self._all)

    def close(self) -> None:
        for master in self._all:
            master.channel.close()


class ControlClient:
    """Calls `ShuffleControl` at the master that leads. Thread-safe.

    :param address: HOST:PORT; of several masters, separated by commas.
    :param timeout: seconds for the answer to one call.
    :param retry: seconds for which a call waits for a master that can be reached (it may be restarting). Each address
        is tried once at least.
    :param credentials: who calls, and how TLS is spoken.
    :param stub: of the service at that address whose methods are called.
    """

    def __init__(
        self,
        address: str,
        *,
        client: str,
        timeout: float = 30.0,
        retry: float = 0.0,
        credentials: Credentials = NO_CREDENTIALS,
        stub: Callable[[grpc.Channel], Any] = rpc.ShuffleControlStub,
    ) -> None:
        addresses = parse_addresses(
            address, "server address", remedy="use the address after `control=` in the server's ready line"
        )
        self._client, self._timeout, self._retry = client, timeout, retry
        self._tls, self._credentials, self._stub = credentials.tls, credentials, stub
        self._masters = _Masters(addresses, self._connect)
        self._left: list[_Masters] = []  # of other registries, of which calls may be under way
        self._moving = threading.Lock()
        self._closed = threading.Event()

    @property
    def address(self) -> str:
        """HOST:PORT, of several masters separated by commas: of those that were given, or of the registry to which a
        master has sent this client since."""
        return self._masters.address

    def _connect(self, address: Address) -> _Master:
        channel = grpc_channel(str(address), self._tls)
        return _Master(address, channel, self._stub(channel))

    def hello(self, known: pb.WorkersKnown | None = None, app: str = "") -> pb.HelloReply:
        """Greet the server; its reply has the protocol version to use.

        :param known: the state of the list of workers that the caller has: the reply has changes; None: all workers.
        :param app: the run that this client is for, or the name of an application that is to be registered: a master of
            its registry answers. Empty: any master does.

        Raises ServerUnreachable, ProtocolMismatch (also when something else listens there).
        """
        reply = self._greet(messages.PROTOCOL, known, app)
        messages.check_protocol(reply.protocol, f"the server at {self.address}")
        return reply

    def _greet(self, version: int, known: pb.WorkersKnown | None, app: str) -> pb.HelloReply:
        """A server of version 1 takes no range: it refuses every version but its own."""
        request = pb.HelloRequest(
            protocol=version, client=self._client, oldest=messages.OLDEST_PROTOCOL, known=known, app=app
        )
        try:
            reply: pb.HelloReply = self.call("Hello", request)
        except ProtocolMismatch:
            if version == messages.OLDEST_PROTOCOL:
                raise
            return self._greet(version - 1, known, app)
        return reply

    def call(self, method: str, request: Message, credentials: Credentials | None = None) -> Any:
        """The reply to one request; `credentials`: who asks this one, if it is somebody else.

        Raises the typed error that the server sent, ServerUnreachable, DeadlineExceeded, ProtocolMismatch when what
        answers is no Flight Shuffle server, Unauthenticated when its certificate is not to be trusted, or
        InvalidArgument in a process forked from one that has used gRPC.
        """
        headers = (credentials or self._credentials).headers()
        return self.attempt(
            method,
            lambda: getattr(self._masters.chosen.stub, method)(request, timeout=self._timeout, metadata=headers),
        )

    def open(self, method: str, requests: Iterator[Message]) -> Any:
        """A stream of `requests`, without a deadline: gRPC's call, to be iterated over for the replies, which raises
        grpc.RpcError where it fails (see `attempt`).
        """
        use_grpc()
        return getattr(self._masters.chosen.stub, method)(requests, metadata=self._credentials.headers())

    def attempt(self, method: str, ask: Callable[[], Answer]) -> Answer:
        """What `ask` returns. Where it raises grpc.RpcError this raises what `call` raises. For as long as no master
        can be reached, or `ask` raises ServerUnreachable, it is repeated; likewise at the masters of another registry.

        :raises ShuttingDown: this client was closed meanwhile.
        """
        use_grpc()
        backoff, untried, moves = Backoff(self._retry), len(self._masters), 0
        while not self._closed.is_set():
            masters = self._masters
            master = masters.chosen
            try:
                return ask()
            except grpc.RpcError as caught:
                error = self._translate(caught, method, master)
            except ServerUnreachable as caught:
                error = caught
            except ValueError:  # gRPC's, of a channel that is closed
                if not self._closed.is_set():
                    raise
                break
            if self._closed.is_set():
                break
            if isinstance(error, WrongMaster) and moves < MOST_MOVES:
                moves += 1
                self._move(masters, error)
                untried = len(self._masters)
                continue
            if isinstance(error, (*_AWAY, DeadlineExceeded)):
                masters.leave(master)
            if not isinstance(error, _AWAY):
                raise error
            untried -= 1
            pause = 0.0 if untried > 0 else backoff.pause()
            if pause is None:
                raise error
            self._closed.wait(pause)
        raise ShuttingDown(f"the client of {self.address} is closed")

    def stream(self, method: str, request: Message) -> ControlStream:
        """A call with one request and any number of replies, which ends after `timeout` seconds at the latest."""
        use_grpc()
        masters = self._masters
        master = masters.chosen
        call = getattr(master.stub, method)(request, timeout=self._timeout, metadata=self._credentials.headers())
        return ControlStream(
            call, functools.partial(self._stream_failed, method=method, masters=masters, master=master)
        )

    def close(self) -> None:
        """Close the connections; idempotent."""
        with self._moving:
            self._closed.set()
            for masters in (self._masters, *self._left):
                masters.close()

    def _move(self, refused: _Masters, error: WrongMaster) -> None:
        """Let calls go to the masters that the refusal names, unless another caller has seen to that."""
        addresses = parse_addresses(error.masters, f"the masters that {refused.address} names")
        with self._moving:
            if self._masters is not refused or self._closed.is_set():
                return
            known = [each for each in self._left if each.address == ",".join(map(str, addresses))]
            self._left = [each for each in (*self._left, refused) if each not in known]
            self._masters = known[0] if known else _Masters(addresses, self._connect)

    def _stream_failed(self, error: grpc.RpcError, method: str, masters: _Masters, master: _Master) -> ShuffleError:
        failure = self._translate(error, method, master)
        if isinstance(failure, _AWAY):  # a stream that lasts for as long as it may has not failed
            masters.leave(master)
        elif isinstance(failure, WrongMaster):
            self._move(masters, failure)
        return failure

    def _translate(self, error: grpc.RpcError, method: str, master: _Master) -> ShuffleError:
        address = str(master.address)
        call: Any = error  # grpc.RpcError of a finished call is a grpc.Call too
        for key, value in call.trailing_metadata() or ():
            if key == messages.ERROR_METADATA:
                return messages.typed_error(messages.parse(pb.Error, value))
        code, details = call.code(), call.details()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(
                f"{address} did not answer {method} within {self._timeout:g} s",
                remedy="see whether the server is overloaded or stuck",
            )
        # CANCELLED, and not by `close`: the server has stopped in the middle of the call, as on SIGTERM.
        if code is grpc.StatusCode.CANCELLED or (code is grpc.StatusCode.UNAVAILABLE and not _strange(details)):
            return not_connected(address, details or "", self._tls)
        return ProtocolMismatch(
            f"{address} does not answer as a Flight Shuffle control endpoint ({code.name}: {details})",
            remedy="give the address after `control=` in the server's ready line; `data=` is another endpoint",
        )


class ControlStream:
    """The replies of one call, once. Iterating raises what `ControlClient.call` raises."""

    def __init__(self, call: Any, translate: Callable[[grpc.RpcError], ShuffleError]) -> None:
        self._call, self._translate = call, translate
        self._cancelled = False

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._call
        except grpc.RpcError as caught:
            if not self._cancelled:
                raise self._translate(caught) from None

    def cancel(self) -> None:
        """End it, from any thread: whoever iterates comes to an end. Idempotent."""
        self._cancelled = True
        self._call.cancel()


def _strange(details: str | None) -> bool:
    """Whether a connection came about but its far side does not speak HTTP/2: a stranger, not an absence.

    A master that was stopped says nothing at all, and an old one objects to pings.
    """
    details = details or ""
    if "timed out before receiving SETTINGS" in details or "too_many_pings" in details:
        return False
    return any(
        sign in details
        for sign in ("Trying to connect an http1.x server", "HTTP2", "http2", "SETTINGS", "GOAWAY", "frame")
    )
