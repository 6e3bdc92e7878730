"""Calls that change the registry wait for its log, and when the log's disk hangs they wait for as long as they may.

So they never have all the threads of the control endpoint: queries and heartbeats are answered meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc

from shuffle_api.errors import Overloaded
from shuffle_server.master.refusal import refuse
from shuffle_server.master.wrapping import wrapped

CHANGING = frozenset(
    (
        "RegisterApp",
        "UnregisterApp",
        "RegisterShuffle",
        "UnregisterShuffle",
        "ReportLost",
        "Join",
        "Release",
        "Leave",
        "Lose",
    )
)
RESERVED = 4  # threads beyond those in which such calls wait
TURN_SECONDS = 0.2


class ChangesInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]  # generic in the stubs only
    """Lets at most `most` changing calls in at once, and refuses what has no turn within TURN_SECONDS by Overloaded."""

    def __init__(self, most: int) -> None:
        self._most, self._turns = most, threading.BoundedSemaphore(most)

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], grpc.RpcMethodHandler[Any, Any] | None],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        handler: Any = continuation(handler_call_details)
        method = str(handler_call_details.method).rpartition("/")[2]
        if handler is None or method not in CHANGING:
            return handler  # type: ignore[no-any-return]

        def serve(request: Any, context: grpc.ServicerContext) -> Any:
            if not self._turns.acquire(timeout=TURN_SECONDS):
                refuse(
                    context,
                    Overloaded(
                        f"{self._most} changes wait for the registry's log",
                        remedy="try again later; see whether the master's disk hangs, or raise --control-threads",
                    ),
                )
            try:
                return handler.unary_unary(request, context)
            finally:
                self._turns.release()

        return wrapped(handler, serve)
