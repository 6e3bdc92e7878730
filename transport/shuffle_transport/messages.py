"""The edge between protobuf messages and the values of `shuffle_api`.

Everything that comes from the wire is validated here, once: ids become ids, errors become typed errors.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from functools import lru_cache
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from shuffle_api.errors import ErrorCode, InvalidArgument, ProtocolMismatch, ShuffleError, WrongMaster, error_class
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo
from shuffle_transport.proto import flight_shuffle_pb2 as pb

PROTOCOL = 2  # the newest version that this side speaks
OLDEST_PROTOCOL = 1
MOST_AVOIDED = 1000  # workers that one request for a place names
ERROR_METADATA = "flight-shuffle-error-bin"  # gRPC trailing metadata of a failed control call

# An error travels in the trailers of a call, up to three times and with its bytes escaped or in base64, and a gRPC peer
# takes 8 KiB of trailers. Text that an error quotes of a request may be as long as the request.
MAX_MESSAGE_BYTES = 700
MAX_REMEDY_BYTES = 300

M = TypeVar("M", bound=Message)


def parse(kind: type[M], data: bytes) -> M:
    """Decode one message; InvalidArgument when `data` is not one."""
    try:
        return kind.FromString(data)
    except DecodeError:
        raise InvalidArgument(
            f"{len(data)} bytes that are no {kind.__name__} message",
            remedy="speak flight_shuffle.v1 (docs/protocol.md)",
        ) from None


@lru_cache(maxsize=1024)
def bytes_head(field: int, length: int) -> bytes:
    """What protobuf writes before a field of so many bytes, for field numbers below 16."""
    return bytes([field << 3 | 2]) + varint(length)


def varint(number: int) -> bytes:
    """A number as protobuf encodes it."""
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    return bytes((number & 0x7F | 0x80,)) + varint(number >> 7)


def check_protocol(version: int, peer: str) -> None:
    """Raises ProtocolMismatch unless this side speaks the version that `peer` has chosen."""
    negotiate(version, version, peer)


def negotiate(newest: int, oldest: int, peer: str) -> int:
    """The newest version that this side and `peer`, which speaks `oldest` to `newest`, both speak.

    Raises ProtocolMismatch when there is none.
    """
    version = min(newest, PROTOCOL)
    if version < max(oldest, OLDEST_PROTOCOL):
        spoken = str(newest) if oldest == newest else f"{oldest} to {newest}"
        raise ProtocolMismatch(
            f"{peer} speaks protocol version {spoken}, this side speaks {OLDEST_PROTOCOL} to {PROTOCOL}",
            remedy="install releases of flight-shuffle on both sides that share a version",
        )
    return version


def version_for(shuffle: ShuffleId) -> int:
    """The protocol version of requests about `shuffle`: a server of version 1 gives shuffles no generation."""
    return PROTOCOL if shuffle.generation else OLDEST_PROTOCOL


def key_of(shuffle: ShuffleId) -> pb.ShuffleKey:
    return pb.ShuffleKey(app=shuffle.app, shuffle=shuffle.shuffle, generation=shuffle.generation)


def shuffle_id(key: pb.ShuffleKey) -> ShuffleId:
    return _shuffle_id(key.app, key.shuffle, key.generation)


def attempt_of(output: MapAttempt) -> pb.MapAttempt:
    return pb.MapAttempt(map=output.map, attempt=output.attempt)


def map_attempt(message: pb.MapAttempt | pb.MapRange) -> MapAttempt:
    return _map_attempt(message.map, message.attempt)


# Requests name the same few again and again, and to make and check an id takes longer than to find the one that was
# made before.
_shuffle_id = lru_cache(maxsize=256)(ShuffleId)
_map_attempt = lru_cache(maxsize=16_384)(MapAttempt)


def totals_message(totals: Totals) -> pb.Totals:
    return pb.Totals(
        blocks=totals.blocks,
        bytes=totals.bytes,
        raw_bytes=totals.raw_bytes,
        records=totals.records,
        digest=totals.digest,
    )


def totals(message: pb.Totals) -> Totals:
    return Totals(message.blocks, message.bytes, message.raw_bytes, message.records, message.digest)


def this_driver() -> pb.Driver:
    """This process, which begins to drive an application now, for people who look at the server."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # in a container the user's number may have no name
        user = str(os.getuid())
    user, host = (text.encode(errors="replace").decode() for text in (user, socket.gethostname()))
    return pb.Driver(user=user, host=host, began=time.time())


def worker_message(worker: WorkerInfo) -> pb.Worker:
    return pb.Worker(
        id=worker.id, host=worker.host, port=worker.port, free_bytes=worker.free_bytes, labels=worker.labels
    )


def worker_info(message: pb.Worker) -> WorkerInfo:
    return WorkerInfo(message.id, message.host, message.port, message.free_bytes, labels=tuple(message.labels))


def output_message(output: MapOutput) -> pb.MapOutput:
    return pb.MapOutput(
        output=attempt_of(output.output),
        worker=output.worker,
        totals=totals_message(output.totals),
        copies=output.copies,
    )


def committed_message(winner: MapOutput) -> pb.Committed:
    """The answer to a commit: the output that won its map."""
    return pb.Committed(output=attempt_of(winner.output), worker=winner.worker, totals=totals_message(winner.totals))


def map_output(message: pb.MapOutput) -> MapOutput:
    return MapOutput(map_attempt(message.output), message.worker, totals(message.totals), tuple(message.copies))


def spec_message(spec: ShuffleSpec) -> pb.RegisterShuffleRequest:
    return pb.RegisterShuffleRequest(
        shuffle=key_of(spec.id),
        partitions=spec.partitions,
        maps=spec.maps,
        codec=spec.codec,
        content=spec.content,
        replicas=spec.replicas,
    )


def shuffle_spec(message: pb.RegisterShuffleRequest) -> ShuffleSpec:
    return ShuffleSpec(
        shuffle_id(message.shuffle),
        message.partitions,
        message.maps,
        message.codec,
        message.content,
        message.replicas or 1,
    )


def shortened(text: str, most: int) -> str:
    """`text` in at most `most` bytes of UTF-8, its middle left out if it must be."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    gap = f" [{len(data)} bytes] "
    half = (most - len(gap)) // 2
    return data[:half].decode("utf-8", "ignore") + gap + data[-half:].decode("utf-8", "ignore")


def status_text(error: ShuffleError) -> str:
    """The words of `error` for people, short enough for a status or a line of a log."""
    return shortened(str(error), MAX_MESSAGE_BYTES)


def error_message(error: ShuffleError) -> pb.Error:
    """The wire form of a typed error."""
    message = pb.Error(
        code=pb.ErrorCode.Name(error.code),
        message=shortened(error.message, MAX_MESSAGE_BYTES),
        remedy=shortened(error.remedy, MAX_REMEDY_BYTES),
        worker=error.worker or "",
    )
    if error.shuffle is not None:
        message.shuffle.CopyFrom(key_of(error.shuffle))
    if error.output is not None:
        message.output.CopyFrom(attempt_of(error.output))
    if isinstance(error, WrongMaster):
        message.masters = error.masters
    return message


def typed_error(message: pb.Error) -> ShuffleError:
    """The typed error that a peer sent; a code this side does not know reads as INTERNAL."""
    known = ErrorCode(message.code) if message.code in ErrorCode._value2member_map_ else ErrorCode.INTERNAL
    error = error_class(known)(
        message.message,
        remedy=message.remedy,
        worker=message.worker or None,
        shuffle=shuffle_id(message.shuffle) if message.HasField("shuffle") else None,
        output=map_attempt(message.output) if message.HasField("output") else None,
    )
    if isinstance(error, WrongMaster):
        error.masters = message.masters
    return error
