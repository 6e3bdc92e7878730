"""How the control endpoint refuses: a gRPC status, and the typed error in the trailing metadata."""

from __future__ import annotations

from typing import NoReturn

import grpc

from shuffle_api.errors import ErrorCode, InternalError, ShuffleError
from shuffle_transport import messages

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
    ErrorCode.SHUTTING_DOWN: grpc.StatusCode.UNAVAILABLE,
    ErrorCode.INTERNAL: grpc.StatusCode.INTERNAL,
}


def refuse(context: grpc.ServicerContext, error: ShuffleError) -> NoReturn:
    """End the call with `error`. Never returns: `abort` raises."""
    context.set_trailing_metadata(((messages.ERROR_METADATA, messages.error_message(error).SerializeToString()),))
    context.abort(_STATUS.get(error.code, grpc.StatusCode.FAILED_PRECONDITION), messages.status_text(error))
    raise InternalError("unreachable: abort raises")  # for the type checker
