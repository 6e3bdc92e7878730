"""gRPC's core, event by event: the server under the control endpoint.

gRPC's own Python servers do not serve strangers well. The synchronous one (`grpc.server`) gives each call a thread as
soon as its headers are there, and the thread waits for the message. The asynchronous one (`grpc.aio`) stops serving
when the path of a call is not UTF-8. This one uses the core that both are made of: one thread takes events, and a call
that waits for its peer costs its memory, no thread.

The core's interface is that of `grpc/_server.py`. No other module of this package may use it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import grpc
from grpc._cython import cygrpc  # type: ignore[attr-defined]  # the stubs leave it out

from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_api.periodic import StreamThread, guarded

Received = Callable[[bytes | None], object]
"""Gets a message, or None when no other one comes: the peer has sent all of them, or is gone."""

TICK_SECONDS = 0.05

_NO_FLAGS = 0
_SHUTDOWN = "shutdown"
_CODES: dict[grpc.StatusCode, Any] = {code: code.value[0] for code in grpc.StatusCode}


def _is_ours(record: logging.LogRecord) -> bool:
    """Whether gRPC says something of this process: not that the header of a call is not UTF-8, once for each."""
    return not str(record.msg).startswith("Invalid encoding on")


logging.getLogger(cygrpc.__name__).addFilter(_is_ours)


class Acceptor(Protocol):
    """What is done with calls. All of it in the one thread of a `Wire`, so it must not wait."""

    def accept(self, call: Call) -> None:
        """A call has come: its headers are there."""
        ...

    def tick(self) -> None:
        """Called every TICK_SECONDS."""
        ...


class Call:
    """One call, whatever its kind: messages come when they are asked for. Thread-safe.

    :ivar path: of the method, with replacements for what is not UTF-8.
    :ivar on_over: called once, in the wire's thread, when the call is over: its peer has the status, or is gone.
    """

    __slots__ = ("_call", "_cancelled", "_finished", "_greeted", "_wire", "headers", "on_over", "path")

    def __init__(self, wire: Wire, event: Any) -> None:
        self._wire, self._call = wire, event.call
        self.path: str = event.call_details.method.decode("utf-8", "replace")
        self.headers: Sequence[tuple[str, str | bytes]] = event.invocation_metadata
        self.on_over: Callable[[], object] = _nothing
        self._greeted = self._finished = self._cancelled = False

    def peer(self) -> str:
        """The address, as gRPC writes it: `ipv4:127.0.0.1:1234`."""
        peer: bytes | str = self._call.peer()
        return peer if isinstance(peer, str) else peer.decode("utf-8", "replace")

    @property
    def over(self) -> bool:
        """Whether nobody waits for this call any more."""
        return self._finished or self._cancelled

    def receive(self, then: Received) -> None:
        """Call `then` with the next message, in the wire's thread. One at a time."""
        self._wire.batch(self._call, (cygrpc.ReceiveMessageOperation(_NO_FLAGS),), partial(_received, then))

    def send(self, message: bytes, then: Callable[[bool], object]) -> None:
        """Send a message of several; `then` gets whether it has gone out. One at a time, and none after `finish`."""
        operations = (*self._greeting(), cygrpc.SendMessageOperation(message, _NO_FLAGS))
        self._wire.batch(self._call, operations, lambda event: then(event.success))

    def exchange(self, message: bytes, then: Received) -> None:
        """Send a message and receive the next one: `send` and `receive` at the price of one of them."""
        operations = (
            *self._greeting(),
            cygrpc.SendMessageOperation(message, _NO_FLAGS),
            cygrpc.ReceiveMessageOperation(_NO_FLAGS),
        )
        self._wire.batch(self._call, operations, partial(_received, then))

    def finish(
        self,
        code: grpc.StatusCode = grpc.StatusCode.OK,
        details: str = "",
        trailers: Sequence[tuple[str, bytes]] = (),
        message: bytes | None = None,
    ) -> bool:
        """End the call; whether this did it. It is a no-op for one that has ended, or whose peer is gone."""
        with self._wire.lock:
            if self.over:
                return False
            self._finished = True
        last = () if message is None else (cygrpc.SendMessageOperation(message, _NO_FLAGS),)
        status = cygrpc.SendStatusFromServerOperation(trailers, _CODES[code], details.encode(), _NO_FLAGS)
        self._wire.batch(self._call, (*self._greeting(), *last, status), _nothing)
        return True

    def _greeting(self) -> Sequence[Any]:
        """Headers come before the first message, or with the status. One thread at a time sends."""
        if self._greeted:
            return ()
        self._greeted = True
        return (cygrpc.SendInitialMetadataOperation((), _NO_FLAGS),)

    def begin(self) -> None:
        """Look out for its end; called once, before anything else."""
        self._wire.batch(self._call, (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),), self._closed)

    def _closed(self, event: Any) -> None:
        if event.batch_operations[0].cancelled():
            with self._wire.lock:
                self._cancelled = True
        # Who waits for the end refers to this call, which keeps its connection's descriptor.
        then, self.on_over = self.on_over, _nothing
        then()


class Wire:
    """Listens, and gives the calls that come to `acceptor`. `listen`, then `start`, then `stop`."""

    def __init__(self, acceptor: Acceptor, options: Sequence[tuple[str, int]]) -> None:
        self.lock = threading.Lock()
        self._acceptor = acceptor
        self._queue = cygrpc.CompletionQueue()
        self._server = cygrpc.Server(tuple(options), False)
        self._server.register_completion_queue(self._queue)
        self._due = 0  # batches under way
        self._stopping = self._shut = False
        self._cut_at: float | None = None
        self._stopped = threading.Event()

    def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """The port. Raises InvalidArgument when it cannot listen there."""
        tls = () if credentials is None else (credentials._credentials,)  # type: ignore[attr-defined]
        reason = "the address is in use, or not of this machine"
        try:
            port: int = self._server.add_http2_port(address.encode(), *tls)
        except RuntimeError as error:
            port, reason = 0, str(error)
        if not port:
            raise InvalidArgument(
                f"cannot listen on {address}: {reason}",
                remedy="choose another --listen address, or port 0 for any free one",
            )
        return port

    def start(self) -> None:
        self._server.start()
        self._request()
        StreamThread("control", self._serve, _nothing).start()

    def stop(self, grace: float) -> threading.Event:
        """Take no calls any more, and cut those that have not ended after `grace` seconds; set when all have ended."""
        with self.lock:
            if not self._stopping:
                self._stopping = True
                self._due += 1
                self._server.shutdown(self._queue, _SHUTDOWN)
            cut_at = time.monotonic() + grace
            self._cut_at = cut_at if self._cut_at is None else min(self._cut_at, cut_at)
        return self._stopped

    def batch(self, call: Any, operations: Sequence[Any], then: Callable[[Any], object]) -> None:
        """Have the core do `operations`; `then` gets the event of their end, in the wire's thread."""
        with self.lock:
            self._due += 1
        if call.start_server_batch(operations, then) != 0:
            with self.lock:
                self._due -= 1

    def _request(self) -> None:
        """Take the next call."""
        with self.lock:
            if self._stopping:
                return
            self._due += 1
            self._server.request_call(self._queue, self._queue, self._called)

    def _called(self, event: Any) -> None:
        self._request()
        if event.success:
            call = Call(self, event)
            call.begin()
            self._acceptor.accept(call)

    def _serve(self) -> None:
        tick_at = 0.0
        while True:
            event = self._queue.poll(time.time() + TICK_SECONDS)
            if event.completion_type != cygrpc.CompletionType.queue_timeout:
                guarded("an event of the control endpoint", partial(self._take, event), _log_only)
                if self._ended():
                    break
            event = None  # what it refers to must not live until the next one
            now = time.monotonic()
            if now >= tick_at:
                tick_at = now + TICK_SECONDS
                guarded("the control endpoint's tick", self._tick, _log_only)
        self._server.destroy()
        self._stopped.set()

    def _take(self, event: Any) -> None:
        with self.lock:
            self._due -= 1
            self._shut |= event.tag is _SHUTDOWN
        if event.tag is not _SHUTDOWN:
            event.tag(event)

    def _ended(self) -> bool:
        return self._shut and not self._due

    def _tick(self) -> None:
        with self.lock:
            cut = self._cut_at is not None and time.monotonic() >= self._cut_at and not self._shut
            if cut:
                self._cut_at = None
        if cut:
            self._server.cancel_all_calls()
        self._acceptor.tick()


def _received(then: Received, event: Any) -> None:
    then(event.batch_operations[-1].message() if event.success else None)


def _nothing(*_: object) -> None: ...
def _log_only(error: ShuffleError) -> None:
    """`guarded` has logged it."""
