"""The connection over which a worker's commits go to the master: one stream, opened when it is needed.

A request and its reply on an open stream cost gRPC's Python about half of what a call costs. Only one request is under
way at a time, so a reply belongs to the last request. A stream on which anything has gone wrong is never used again.
"""

from __future__ import annotations

import math
import time
from queue import SimpleQueue
from typing import Any

import grpc

from shuffle_api.errors import DeadlineExceeded, ServerUnreachable, ShuffleError, ShuttingDown
from shuffle_api.periodic import PeriodicTask
from shuffle_server.proto import registry_pb2 as pb
from shuffle_transport.control_client import ControlClient

_METHOD = "Commits"
_LOOKS = 4  # at the deadline, in the time that a reply may take


class CommitStream:
    """Requests through `client`, whose stub is that of ShuffleRegistry. Close it at the end.

    :param timeout: seconds for the answer to one request.
    """

    def __init__(self, client: ControlClient, timeout: float) -> None:
        self._client, self._timeout = client, timeout
        self._stream: _OutgoingStream | None = None
        self._watch = PeriodicTask("commit-deadline", self._end_overdue, timeout / _LOOKS)
        self._closed = self._watch.closing

    def ask(self, request: pb.CommitRequest) -> pb.CommitReply:
        """The reply to one request; for one thread at a time. It may have been carried out whatever this raises.

        :raises ShuffleError: what the master answers; what `ControlClient.call` raises; ShuttingDown after `close`.
        """
        return self._client.attempt(_METHOD, lambda: self._ask(request))

    def _ask(self, request: pb.CommitRequest) -> pb.CommitReply:
        give_up = time.monotonic() + self._timeout
        if self._stream is not None:
            try:
                return self._on(self._stream, request, give_up)
            except (grpc.RpcError, ServerUnreachable) as error:
                # A stream ends between requests when the master restarts. Any other status is an answer.
                if not isinstance(error, ServerUnreachable) and _code(error) is not grpc.StatusCode.UNAVAILABLE:
                    raise
        if self._closed.is_set():
            raise ShuttingDown("the connection to the master is closed")
        self._stream = _OutgoingStream(self._client)
        self._watch.start()
        return self._on(self._stream, request, give_up)

    def _on(self, stream: _OutgoingStream, request: pb.CommitRequest, give_up: float) -> pb.CommitReply:
        answered = False
        try:
            reply = stream.ask(request, give_up)
            answered = True
            return reply
        except (grpc.RpcError, StopIteration) as error:
            if (why := self._why(error, give_up)) is None:
                raise
            raise why from error
        finally:
            if not answered:
                self._stream = None
                stream.end()

    def _why(self, error: Exception, give_up: float) -> ShuffleError | None:
        """What it means that a stream ended in this way; None when its status says so."""
        if self._closed.is_set():
            return ShuttingDown("the connection to the master was closed meanwhile")
        if time.monotonic() >= give_up:
            return DeadlineExceeded(
                f"{self._client.address} did not answer {_METHOD} within {self._timeout:g} s",
                remedy="see whether the server is overloaded or stuck",
            )
        if isinstance(error, StopIteration) or _code(error) is grpc.StatusCode.CANCELLED:
            return ServerUnreachable(self._client.address, "it ends its streams")
        return None

    def _end_overdue(self) -> None:
        """gRPC has no deadline for a message of a stream."""
        stream = self._stream
        if stream is not None and time.monotonic() > stream.give_up:
            stream.end()

    def close(self) -> None:
        """End the stream; idempotent. Callers that wait for a reply get ShuttingDown."""
        self._closed.set()
        stream = self._stream
        if stream is not None:
            stream.end()
        self._watch.close()


class _OutgoingStream:
    """One stream. `give_up`: when its request is overdue (time.monotonic), infinite while there is none."""

    def __init__(self, client: ControlClient) -> None:
        self.give_up = math.inf
        self._requests: SimpleQueue[pb.CommitRequest | None] = SimpleQueue()
        self._replies = client.open(_METHOD, iter(self._requests.get, None))

    def ask(self, request: pb.CommitRequest, give_up: float) -> pb.CommitReply:
        """Raises grpc.RpcError, and StopIteration when the master has ended the stream."""
        self.give_up = give_up
        self._requests.put(request)
        reply: pb.CommitReply = next(self._replies)
        self.give_up = math.inf
        return reply

    def end(self) -> None:
        self._replies.cancel()
        self._requests.put(None)  # gRPC's thread waits for requests


def _code(error: Any) -> grpc.StatusCode:
    """grpc.RpcError of a call is a grpc.Call too."""
    code: grpc.StatusCode = error.code()
    return code
