"""How the control endpoint refuses: a gRPC status, and the typed error in the trailing metadata."""

from __future__ import annotations

import grpc

from shuffle_api.errors import ErrorCode, ShuffleError
from shuffle_server.master.wire import Call
from shuffle_transport import messages

STATUS = {
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


def refuse(call: Call, error: ShuffleError) -> bool:
    """End a call with `error`; whether this did it."""
    return call.finish(*refusal(error))


def refusal(error: ShuffleError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """The status, its text and the trailing metadata for an error."""
    code = STATUS.get(error.code, grpc.StatusCode.FAILED_PRECONDITION)
    trailers = ((messages.ERROR_METADATA, messages.error_message(error).SerializeToString()),)
    return code, messages.status_text(error), trailers
