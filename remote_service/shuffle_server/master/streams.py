"""Streams to the control endpoint. They last as long as those who open them, and calls must not wait for them.

gRPC's Python server gives each call a thread of one pool until it ends. So streams have a pool of their own, and a
server that stops ends those on which nobody waits for a reply.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, TypeVar

import grpc

from shuffle_api.errors import Overloaded
from shuffle_server.master.refusal import refuse
from shuffle_server.master.watching import MAX_WATCHES, Watchers
from shuffle_server.master.wrapping import wrapped

MOST_STREAMS = 1000  # of requests and replies; watches are counted by themselves
REFUSING_THREADS = 4  # that tell those above it so

Request = TypeVar("Request")


class OpenStreams:
    """The streams of one server, each of requests and replies in turn. Thread-safe."""

    def __init__(self, most: int = MOST_STREAMS) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._open: dict[grpc.ServicerContext, bool] = {}  # whether somebody waits for a reply
        self._ending = False

    def requests(self, requests: Iterator[Request], context: grpc.ServicerContext) -> Iterator[Request]:
        """The requests of one stream, until it ends. Ask for the next one when the last has been answered."""
        with self._lock:
            full = len(self._open) >= self._most
            if not full:
                self._open[context] = True
        if full:
            refuse(context, Overloaded(f"{self._most} streams are open", remedy="end some, or try again later"))
        try:
            while self._may_wait(context):
                request = next(requests, None)
                if request is None:
                    return
                self._open[context] = True
                yield request
        finally:
            with self._lock:
                del self._open[context]

    def _may_wait(self, context: grpc.ServicerContext) -> bool:
        with self._lock:
            self._open[context] = False
            return not self._ending

    def end(self) -> None:
        """End those that wait for a request now, the others with their next reply."""
        with self._lock:
            self._ending = True
            for context, busy in self._open.items():
                if not busy:
                    context.cancel()  # type: ignore[no-untyped-call]


class StreamThreads(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Gives each stream a thread of its own. The first interceptor of a server: gRPC looks at what it returns."""

    def __init__(self, most: int = MOST_STREAMS) -> None:
        self._pool = futures.ThreadPoolExecutor(most + MAX_WATCHES + REFUSING_THREADS, thread_name_prefix="stream")

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = continuation(handler_call_details)
        stream = None if handler is None else handler.stream_stream or handler.unary_stream
        if stream is None:
            return handler  # type: ignore[no-any-return]

        def serve(request: Any, context: grpc.ServicerContext) -> Any:
            return stream(request, context)

        serve.experimental_thread_pool = self._pool  # type: ignore[attr-defined]  # grpc/_server.py
        if handler.unary_stream is not None:
            return wrapped(handler, serve)
        return grpc.stream_stream_rpc_method_handler(serve, handler.request_deserializer, handler.response_serializer)


class ControlServer:
    """A control endpoint that listens."""

    def __init__(self, server: grpc.Server, *streams: OpenStreams | Watchers) -> None:
        self._server, self._streams = server, streams

    def stop(self, grace: float) -> threading.Event:
        """Take no calls any more; set when those under way have ended, at the latest after `grace` seconds."""
        stopped: threading.Event = self._server.stop(grace)
        for streams in self._streams:
            streams.end()
        return stopped
