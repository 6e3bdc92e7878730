"""The door of the control endpoint: what every call passes, in this order, before it is answered.

1. The token, from the headers alone. A call that is refused here needs no message, except a heartbeat whose token is
   good, but for its expiry: it is refused in the end.
2. The message. One that does not come within MESSAGE_SECONDS ends its call; meanwhile the call costs no thread. The
   number of such calls is bounded: the one that has waited longest makes room.
3. Bounds: calls under way, by host and by application. Heartbeats and streams have bounds of their own.
4. A pool (`CallPools`): heartbeats, joins, changes and queries have threads of their own. There the message is decoded,
   checked against the token, and answered by a method of the services; which knows nothing of gRPC, returns a reply or
   raises a ShuffleError.

Streams differ in the last step: a watch is entered into the list of watches, and each request of a stream of commits
goes to the thread that commits. Neither has a thread of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import grpc
from google.protobuf.message import DecodeError, Message

from shuffle_api.errors import DeadlineExceeded, ErrorCode, InvalidArgument, Overloaded, ShuffleError, StorageFailed
from shuffle_api.periodic import guarded
from shuffle_server.bounds import Bound, host_of
from shuffle_server.connection_guard import ConnectionGuard
from shuffle_server.master import auth
from shuffle_server.master.call_pool import CallPool, QueuedCall
from shuffle_server.master.half_open import HalfOpen
from shuffle_server.master.wire import Call
from shuffle_server.observe.calls import CallObserver
from shuffle_server.observe.log_context import add_log_fields, log_context
from shuffle_transport import messages
from shuffle_transport.security import ANYBODY, Authenticate, Principal
from shuffle_transport.tokens import ExpiredToken

MESSAGE_SECONDS = 5.0
STRANGE_CALLS = 50  # between two ticks; a thousand a second keep heartbeats waiting in the network
SMALL_BYTES = 32 << 10  # requests up to this size are counted as calls only
EACH_BYTES = 32 << 20  # of larger ones of a host, or of an application, that are under way
ALL_BYTES = 2 * EACH_BYTES
UNKNOWN = "unknown"  # replaces the name of a method that does not exist
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


class Visit:
    """A call on its way through the door."""

    __slots__ = (
        "_ended",
        "_lock",
        "_over",
        "call",
        "door",
        "expired",
        "host",
        "method",
        "name",
        "peer",
        "principal",
        "since",
    )

    def __init__(self, door: Door, call: Call, method: Method | None) -> None:
        self.door, self.call, self.method = door, call, method
        self.name = UNKNOWN if method is None else method.name
        self.peer = call.peer()
        self.host = host_of(self.peer)
        self.principal = ANYBODY
        self.expired: ExpiredToken | None = None  # why it is refused once it has counted as a heartbeat
        self.since = time.monotonic()
        self._lock, self._over = threading.Lock(), False
        self._ended: list[Callable[[], object]] = []  # what is to be done when it is over

    def refuse(self, error: ShuffleError) -> None:
        """End the call with `error`, unless it has ended."""
        if refuse(self.call, error):
            self.door.observer.refused(self.peer, self.name, error)

    def enter(self, bound: Bound[str], owner: str, whose: str, amount: int = 1) -> None:
        """Count it until it is over. Raises Overloaded."""
        bound.enter(owner, whose, amount)
        self.when_over(partial(bound.leave, owner, amount))

    def when_over(self, call: Callable[[], object]) -> None:
        """Have `call` called when the call is over; now if it is."""
        with self._lock:
            if not self._over:
                self._ended.append(call)
                return
        call()

    def over(self) -> None:
        """The call is over."""
        with self._lock:
            self._over = True
            ended, self._ended = self._ended, []
        for call in ended:
            call()

    @property
    def caller(self) -> str:
        """Whose turn it is in a pool: an application's, a worker's, or a host's that may act for all of them."""
        if self.principal.app is None:
            return self.host
        return f"worker {self.principal.worker}" if self.principal.worker else self.principal.app


class Method(Protocol):
    """A method of a service of the control endpoint."""

    @property
    def name(self) -> str: ...
    def take(self, visit: Visit, data: bytes) -> None:
        """The first message has come. In the wire's thread; may raise a ShuffleError, and must not wait."""
        ...


@dataclass(frozen=True, slots=True)
class Checks:
    """What is asked of each request. `sure` raises unless this master leads, `own` unless it is one of its registry."""

    sure: Callable[[], None] = lambda: None
    own: Callable[[str, Any], None] = lambda name, request: None

    def request(self, name: str, kind: type[Message], data: bytes, principal: Principal) -> Any:
        """The request that `data` is, if the caller may make it and this master may answer."""
        try:
            request = kind.FromString(data)
        except DecodeError:
            raise InvalidArgument(
                f"{len(data)} bytes that are no request of {name}",
                remedy="speak flight_shuffle.v1 (docs/protocol.md)",
            ) from None
        auth.check(name, request, principal)
        self.sure()
        self.own(name, request)
        return request


class ServerStream:
    """A method with one request and a stream of replies.

    :param begin: begins the stream; raises ShuffleError.
    """

    def __init__(
        self, name: str, kind: type[Message], pool: CallPool, checks: Checks, begin: Callable[[Visit, Any], None]
    ) -> None:
        self.name, self.kind, self._pool, self._checks, self._begin = name, kind, pool, checks, begin

    def take(self, visit: Visit, data: bytes) -> None:
        self._pool.offer(QueuedCall(visit.caller, partial(self._run, visit, data), visit.refuse))

    def _run(self, visit: Visit, data: bytes) -> None:
        if visit.call.over:
            return  # its caller has given up
        with log_context(peer=visit.peer, method=self.name):
            try:
                self._begin(visit, self._checks.request(self.name, self.kind, data, visit.principal))
            except ShuffleError as error:
                visit.refuse(error)


class Unary:
    """A method with one request and one reply.

    :param answer: to a request; raises ShuffleError or OSError.
    :param counted: its calls count as those that a host, or an application, has under way.
    """

    def __init__(
        self,
        name: str,
        kind: type[Message],
        pool: CallPool,
        checks: Checks,
        answer: Callable[[Any], Message],
        counted: bool = True,
    ) -> None:
        self.name, self.kind, self._pool, self._checks = name, kind, pool, checks
        self._answer, self._counted = answer, counted

    def take(self, visit: Visit, data: bytes) -> None:
        if self._counted:
            visit.door.count(visit)
        self._pool.offer(QueuedCall(visit.caller, partial(self._run, visit, data), visit.refuse))

    def answer(self, data: bytes, principal: Principal = ANYBODY) -> bytes:
        """The encoded reply to an encoded request. Raises ShuffleError."""
        request = self._checks.request(self.name, self.kind, data, principal)
        _add_fields(request)
        try:
            return self._answer(request).SerializeToString()
        except OSError as error:
            raise StorageFailed(str(error), remedy="check the master's disk and log") from error

    def _run(self, visit: Visit, data: bytes) -> None:
        if visit.call.over:
            return  # its caller has given up
        with log_context(peer=visit.peer, method=self.name):
            try:
                visit.call.finish(message=self._reply(visit, data))
            except ShuffleError as error:
                visit.refuse(error)
            finally:
                visit.door.observer.answered(self.name, time.monotonic() - visit.since)

    def _reply(self, visit: Visit, data: bytes) -> bytes:
        return self.answer(data, visit.principal)


class Heartbeats(Unary):
    """A method with heartbeats. One with a token that is over is refused, but counts: by a wall clock a token is over,
    and by a wall clock nobody may lose data.

    :param alive: called with each request of a token that is over.
    """

    def __init__(
        self,
        name: str,
        kind: type[Message],
        pool: CallPool,
        checks: Checks,
        answer: Callable[[Any], Message],
        alive: Callable[[Any], object],
    ) -> None:
        super().__init__(name, kind, pool, checks, answer, counted=False)
        self._alive = alive

    def _reply(self, visit: Visit, data: bytes) -> bytes:
        if visit.expired is None:
            return super()._reply(visit, data)
        self._alive(self._checks.request(self.name, self.kind, data, visit.principal))
        raise visit.expired


class CallAdmission:
    """Says whom a call comes from. Used by the wire's thread alone.

    :param authenticate: checks a token; None: no tokens are wanted.
    :param guard: of the connections, which sees from whom calls were let in.
    :param flooded: called at a tick since the last of which more than STRANGE_CALLS calls came without a valid token.
    """

    def __init__(
        self, authenticate: Authenticate | None, guard: ConnectionGuard, flooded: Callable[[], object] = lambda: None
    ) -> None:
        self._authenticate, self._guard, self._flooded = authenticate, guard, flooded
        self._strange = 0  # since the last tick

    def principal(self, call: Call, peer: str) -> Principal:
        """Whom the call acts for. Raises Unauthenticated, PermissionDenied."""
        principal = ANYBODY
        if self._authenticate is not None:
            self._strange += 1
            principal = auth.principal_of(self._authenticate, call.headers)
            self._strange -= 1
        self._guard.called(peer)
        return principal

    def tick(self) -> None:
        if self._strange > STRANGE_CALLS:
            self._flooded()
        self._strange = 0


class Door:
    """Takes the calls of a `Wire`.

    :param methods: by their paths.
    :param calls: that a host, or an application, may have under way.
    :param ticks: called at each tick.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        pools: tuple[CallPool, ...],
        admission: CallAdmission,
        calls: int,
        observer: CallObserver,
        ticks: tuple[Callable[[], object], ...] = (),
    ) -> None:
        self.methods, self._pools, self._admission = methods, pools, admission
        self.observer, self._ticks = observer, ticks
        remedy = "make fewer at once, or raise --control-calls"
        self.half_open: HalfOpen[Visit] = HalfOpen(MESSAGE_SECONDS, max(1, calls // 64), calls)
        self.bytes: Bound[str] = Bound("bytes of requests wait", EACH_BYTES, ALL_BYTES, remedy="send smaller requests")
        self.hosts: Bound[str] = Bound("calls are under way", calls, remedy=remedy)
        self.apps: Bound[str] = Bound("calls are under way", calls, remedy=remedy)

    # ------------------------------------------------------------------ in the wire's thread

    def accept(self, call: Call) -> None:
        visit = Visit(self, call, self.methods.get(call.path))
        call.on_over = partial(self._over, visit)
        guarded("the door", partial(self._enter, visit), visit.refuse)

    def _enter(self, visit: Visit) -> None:
        try:
            visit.principal = self._admission.principal(visit.call, visit.peer)
        except ExpiredToken as error:
            if error.principal is None or not isinstance(visit.method, Heartbeats):
                raise
            visit.principal, visit.expired = error.principal, error
        if visit.method is None:
            visit.call.finish(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            return
        out = self.half_open.add(visit, visit.caller, time.monotonic())
        if out is not None:
            self._refuse_half_open(out)
        visit.call.receive(partial(self._message, visit))

    def _refuse_half_open(self, visit: Visit) -> None:
        visit.refuse(
            Overloaded(
                f"more than {self.half_open.each} calls of {visit.caller} wait for their message,"
                f" or {self.half_open.most} in all",
                remedy="send messages with their headers, or raise --control-calls",
            )
        )

    def _message(self, visit: Visit, data: bytes | None) -> None:
        self.half_open.remove(visit)
        if visit.call.over:
            return
        if data is None:
            visit.call.finish(grpc.StatusCode.UNIMPLEMENTED, "a call without a message")
            return
        assert visit.method is not None
        guarded("the door", partial(self._take, visit, visit.method, data), visit.refuse)

    def _take(self, visit: Visit, method: Method, data: bytes) -> None:
        if len(data) > SMALL_BYTES:
            visit.enter(self.bytes, visit.caller, visit.caller, len(data))
        method.take(visit, data)

    def count(self, visit: Visit) -> None:
        """Count a call that has one request until it is over. Raises Overloaded."""
        visit.enter(self.hosts, visit.host, f"host {visit.host}")
        if app := visit.principal.app:
            visit.enter(self.apps, app, f"application {app}")

    def _over(self, visit: Visit) -> None:
        self.half_open.remove(visit)
        visit.over()

    def tick(self) -> None:
        self._admission.tick()
        now = time.monotonic()
        for visit in self.half_open.overdue(now):
            visit.refuse(
                DeadlineExceeded(
                    f"the message of this call did not come within {self.half_open.seconds:g} s",
                    remedy="see whether the client or the network is stuck",
                )
            )
        for visit in self.half_open.crowding(now):
            self._refuse_half_open(visit)
        for pool in self._pools:
            pool.sweep()
        for call in self._ticks:
            call()


def _add_fields(request: Any) -> None:
    """Have the log say which application and shuffle a request is about."""
    app, shuffle = getattr(request, "app", ""), getattr(request, "shuffle", None)
    if shuffle is not None:
        add_log_fields(app=shuffle.app, shuffle=shuffle.shuffle)
    elif app:
        add_log_fields(app=app)
