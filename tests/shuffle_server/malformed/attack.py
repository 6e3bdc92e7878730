"""The common part of all attacks: their target, their counts, the check that a refusal is typed."""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import grpc

from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from tests.shuffle_server.malformed.frames import SERVICE, metadata_of

TIMEOUT = 120.0  # seconds for the answer to one call; a call that takes so long has hung
SHUFFLES_OF = 250  # calls per victim shuffle
APP = "victim"
PARTITIONS = 8

OWN_CONNECTION: list[tuple[str, Any]] = [("grpc.use_local_subchannel_pool", 1)]  # else gRPC shares one per address
RAW: Any = None  # serializer and deserializer of calls whose messages are bytes already


class Untyped(AssertionError):
    """The answer to a malformed message was not a typed refusal."""


@dataclass(frozen=True, slots=True)
class Target:
    """The server under attack."""

    control: str
    data: str


class Attack(ABC):
    """Sends malformed messages of one kind. One thread per instance."""

    name: ClassVar[str]

    def __init__(self, target: Target) -> None:
        self.target = target

    @abstractmethod
    def send(self, seed: int) -> int:
        """Send what `seed` says, see that each answer is typed, and return how many messages that was.

        Depends on the seed alone: a failing message can be sent again by itself.
        """

    @abstractmethod
    def close(self) -> None:
        """End the connections."""


class FlightAttack(Attack):
    """Calls of the Flight service with messages made by hand."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._channel = grpc.insecure_channel(target.data, [("grpc.max_send_message_length", -1), *OWN_CONNECTION])
        self.victims = Victims(target)

    def put(self, sent: Iterable[bytes]) -> list[pb.PutReply]:
        """All replies of one push. Raises Untyped."""
        call = self._channel.stream_stream(SERVICE + "DoPut", RAW, RAW)(iter(sent), timeout=TIMEOUT)
        replies = [pb.PutReply.FromString(metadata_of(reply)) for reply in flight_answers(call)]
        for reply in replies:
            if reply.HasField("error"):
                _check(reply.error)
        return replies

    def get(self, method: str, request: bytes) -> list[bytes]:
        """All answers to one call with one request. Raises Untyped."""
        call = self._channel.unary_stream(SERVICE + method, RAW, RAW)(request, timeout=TIMEOUT)
        return flight_answers(call, stacks=method == "GetSchema")

    def stream(self, method: str, sent: Iterable[bytes]) -> list[bytes]:
        """All answers to a call with several requests. Raises Untyped."""
        return flight_answers(self._channel.stream_stream(SERVICE + method, RAW, RAW)(iter(sent), timeout=TIMEOUT))

    def close(self) -> None:
        self._channel.close()
        self.victims.close()


class Victims:
    """Shuffles to be attacked: fresh ones every now and then, the old ones unregistered."""

    _lock = threading.Lock()
    _numbers = itertools.count()

    def __init__(self, target: Target) -> None:
        self._channel = grpc.insecure_channel(target.control, OWN_CONNECTION)
        self._calls = 0
        self.call("RegisterApp", pb.RegisterAppRequest(app=APP, instance="one"), pb.RegisterAppReply)
        self.key = self._register()

    def next(self) -> pb.ShuffleKey:
        """The shuffle for the next call: 8 partitions, codec none, any map number."""
        self._calls += 1
        if self._calls % SHUFFLES_OF == 0:
            self.unregister()
            self.key = self._register()
        return self.key

    def unregister(self) -> None:
        request = pb.UnregisterShuffleRequest(shuffle=self.key)
        self.call("UnregisterShuffle", request, pb.UnregisterShuffleReply)

    def call(self, method: str, request: Any, reply: Any) -> Any:
        path = f"/flight_shuffle.v1.ShuffleControl/{method}"
        serve = self._channel.unary_unary(path, type(request).SerializeToString, reply.FromString)
        return serve(request, timeout=TIMEOUT)

    def close(self) -> None:
        self.unregister()
        self._channel.close()

    def _register(self) -> pb.ShuffleKey:
        with self._lock:
            key = pb.ShuffleKey(app=APP, shuffle=next(self._numbers))
        request = pb.RegisterShuffleRequest(shuffle=key, partitions=PARTITIONS, codec="none", content="spark")
        self.call("RegisterShuffle", request, pb.RegisterShuffleReply)
        return key


def flight_answers(call: Any, *, stacks: bool = False) -> list[bytes]:
    """All answers of a call of the data endpoint. Raises Untyped unless it ends well or with a typed refusal.

    With `stacks`, a Python stack after the refusal's text will do: pyarrow has no other way for GetSchema.
    """
    answers = []
    try:
        for answer in call:
            answers.append(answer)
    except grpc.RpcError as error:
        check_flight(error, stacks)
    return answers


def check_flight(error: Any, stacks: bool) -> None:
    """Raises Untyped unless the error is one of ours, or Arrow's or gRPC's own about what they could not decode."""
    code, text = error.code(), error.details() or ""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            _check(pb.Error.FromString(value))
            return
    if code is grpc.StatusCode.UNIMPLEMENTED or (code is grpc.StatusCode.INTERNAL and not text):
        return  # a verb that is not served; a request that gRPC could not decode
    if code in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INVALID_ARGUMENT) and (stacks or "Traceback" not in text):
        return  # a schema or a descriptor that Arrow could not decode: it never came as far as our code
    raise Untyped(f"{code.name}: {text[:2000]}")


def check_control(error: Any) -> None:
    """Raises Untyped unless the error is one of ours, or gRPC's own about the size or the name of a method."""
    for key, value in error.trailing_metadata() or ():
        if key == messages.ERROR_METADATA:
            _check(pb.Error.FromString(value))
            return
    if error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED):
        return
    raise Untyped(f"{error.code().name}: {(error.details() or '')[:2000]}")


def _check(error: pb.Error) -> None:
    if error.code == pb.ErrorCode.INTERNAL or not error.message or not error.remedy:
        raise Untyped(f"an error that says too little: {error}")
