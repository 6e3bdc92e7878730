"""How the control endpoint refuses: a gRPC status, and the typed error in the trailing metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

import grpc
from google.protobuf.message import Message

from shuffle_api.errors import ErrorCode, InternalError, ShuffleError, StorageFailed
from shuffle_transport import messages

Reply = TypeVar("Reply", bound=Message)

_STATUS = {
    ErrorCode.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorCode.PROTOCOL_MISMATCH: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorCode.UNKNOWN_APP: grpc.StatusCode.NOT_FOUND,
    ErrorCode.UNKNOWN_SHUFFLE: grpc.StatusCode.NOT_FOUND,
    ErrorCode.MAP_OUTPUT_NOT_WRITTEN: grpc.StatusCode.NOT_FOUND,
    ErrorCode.MAP_OUTPUT_LOST: grpc.StatusCode.DATA_LOSS,
    ErrorCode.APP_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    ErrorCode.SHUFFLE_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    ErrorCode.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    ErrorCode.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    ErrorCode.QUOTA_EXCEEDED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCode.STALE_EPOCH: grpc.StatusCode.ABORTED,
    ErrorCode.SHUTTING_DOWN: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.INTERNAL: grpc.StatusCode.INTERNAL,
}


def guard(context: grpc.ServicerContext, reply: Callable[[], Reply]) -> Reply:
    """The one edge at which a typed error becomes a gRPC status with the error beside it."""
    try:
        return reply()
    except ShuffleError as error:
        refuse(context, error)
    except OSError as error:
        refuse(context, StorageFailed(str(error), remedy="check the master's disk and log"))


def refuse(context: grpc.ServicerContext, error: ShuffleError) -> NoReturn:
    """End the call with `error`. Never returns: `abort` raises."""
    context.set_trailing_metadata(((messages.ERROR_METADATA, messages.error_message(error).SerializeToString()),))
    context.abort(_STATUS.get(error.code, grpc.StatusCode.FAILED_PRECONDITION), messages.status_text(error))
    raise InternalError("unreachable: abort raises")  # for the type checker
