"""A client of the control service: one gRPC channel, typed errors, a deadline on every call."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, ProtocolMismatch, ServerUnreachable, ShuffleError
from shuffle_transport import messages
from shuffle_transport.connect import grpc_channel, not_connected
from shuffle_transport.forked import use_grpc
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.proto import flight_shuffle_pb2_grpc as rpc
from shuffle_transport.security import NO_CREDENTIALS, Credentials

Answer = TypeVar("Answer")

_RETRY_FIRST, _RETRY_MOST = 0.05, 1.0  # seconds between attempts to reach a server that is away


class ControlClient:
    """Calls `ShuffleControl` at one address. Thread-safe.

    :param address: HOST:PORT.
    :param timeout: seconds for the answer to one call.
    :param retry: seconds for which a call waits for a server that cannot be reached (it may be restarting).
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
        host, colon, port = address.rpartition(":")
        if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise InvalidArgument(
                f"server address {address!r} is not HOST:PORT",
                remedy="use the address after `control=` in the server's ready line",
            )
        self.address = address
        self._client, self._timeout, self._retry = client, timeout, retry
        self._tls, self._headers = credentials.tls, credentials.headers()
        self._channel = grpc_channel(address, credentials.tls)
        self._stub = stub(self._channel)

    def hello(self) -> pb.HelloReply:
        """Greet the server; its reply has the protocol version to use.

        Raises ServerUnreachable, ProtocolMismatch (also when something else listens there).
        """
        reply = self._greet(messages.PROTOCOL)
        messages.check_protocol(reply.protocol, f"the server at {self.address}")
        return reply

    def _greet(self, version: int) -> pb.HelloReply:
        """A server of version 1 takes no range: it refuses every version but its own."""
        request = pb.HelloRequest(protocol=version, client=self._client, oldest=messages.OLDEST_PROTOCOL)
        try:
            reply: pb.HelloReply = self.call("Hello", request)
        except ProtocolMismatch:
            if version == messages.OLDEST_PROTOCOL:
                raise
            return self._greet(version - 1)
        return reply

    def call(self, method: str, request: Message) -> Any:
        """The reply to one request.

        Raises the typed error that the server sent, ServerUnreachable, DeadlineExceeded, ProtocolMismatch when what
        answers is no Flight Shuffle server, Unauthenticated when its certificate is not to be trusted, or
        InvalidArgument in a process forked from one that has used gRPC.
        """
        return self.attempt(
            method, lambda: getattr(self._stub, method)(request, timeout=self._timeout, metadata=self._headers)
        )

    def open(self, method: str, requests: Iterator[Message]) -> Any:
        """A stream of `requests`, without a deadline: gRPC's call, to be iterated over for the replies, which raises
        grpc.RpcError where it fails (see `attempt`).
        """
        use_grpc()
        return getattr(self._stub, method)(requests, metadata=self._headers)

    def attempt(self, method: str, ask: Callable[[], Answer]) -> Answer:
        """What `ask` returns. Where it raises grpc.RpcError this raises what `call` raises. For as long as the server
        cannot be reached, or `ask` raises ServerUnreachable, it is repeated.
        """
        use_grpc()
        give_up = time.monotonic() + self._retry
        pause = _RETRY_FIRST
        error: ShuffleError
        while True:
            try:
                return ask()
            except grpc.RpcError as caught:
                error = self._translate(caught, method)
            except ServerUnreachable as caught:
                error = caught
            if not isinstance(error, ServerUnreachable) or time.monotonic() + pause > give_up:
                raise error
            time.sleep(pause)
            pause = min(2 * pause, _RETRY_MOST)

    def stream(self, method: str, request: Message) -> ControlStream:
        """A call with one request and any number of replies, which ends after `timeout` seconds at the latest."""
        use_grpc()
        call = getattr(self._stub, method)(request, timeout=self._timeout, metadata=self._headers)
        return ControlStream(call, functools.partial(self._translate, method=method))

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._channel.close()

    def _translate(self, error: grpc.RpcError, method: str) -> ShuffleError:
        call: Any = error  # grpc.RpcError of a finished call is a grpc.Call too
        for key, value in call.trailing_metadata() or ():
            if key == messages.ERROR_METADATA:
                return messages.typed_error(messages.parse(pb.Error, value))
        code, details = call.code(), call.details()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return DeadlineExceeded(
                f"{self.address} did not answer {method} within {self._timeout:g} s",
                remedy="see whether the server is overloaded or stuck",
            )
        if code is grpc.StatusCode.UNAVAILABLE and not _strange(details):
            return not_connected(self.address, details or "", self._tls)
        return ProtocolMismatch(
            f"{self.address} does not answer as a Flight Shuffle control endpoint ({code.name}: {details})",
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
    """Whether a connection came about but its far side does not speak HTTP/2: a stranger, not an absence."""
    return any(
        sign in (details or "")
        for sign in ("Trying to connect an http1.x server", "HTTP2", "http2", "SETTINGS", "GOAWAY", "frame")
    )
