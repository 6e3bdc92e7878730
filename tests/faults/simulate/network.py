"""The simulated network: calls between processes that get lost, come late, or lose their answer.

A call runs the product's handler in the caller's thread, which belongs to the server's process meanwhile. What a server
takes up when its caller has given up (it stood still, or the request came late) runs in a thread of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from shuffle_api.address import Address
from shuffle_api.errors import DeadlineExceeded, ServerUnreachable, ShuffleError
from shuffle_server.worker.actions import act
from shuffle_server.worker.endpoint import DataServices
from shuffle_server.worker.incoming import PushMessage
from shuffle_server.worker.push_handler import PushHandler
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.blocks import BlockBatch, table_rows
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Principal
from tests.faults.simulate.locks import Here
from tests.faults.simulate.schedule import LATEST
from tests.faults.simulate.scheduler import Crash, Process

Answer = TypeVar("Answer")
PATIENCE = 30.0  # of a call without a deadline


class Unreachable(Exception):
    """No answer: nobody listens, or the connection broke. Whether the request was carried out is not known."""


class Late(Exception):
    """No answer in time."""


@dataclass
class Network:
    """Who listens where, who is cut off from whom, and how unreliable calls are."""

    random: Random
    trouble: float = 0.0  # how likely a call goes wrong
    lateness: Random = field(default_factory=lambda: Random(0))
    late: float = 0.0  # how likely a request is under way for up to LATEST seconds
    listening: dict[str, tuple[Process, Any]] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)  # names of processes that reach nobody
    port: int = 20_000
    beat_seconds: float = 1.5  # of drivers
    handled: Callable[[str, Any], None] = lambda method, request: None
    applied: Callable[[Any, tuple[Any, ...]], None] = lambda operation, events: None
    trace: Callable[[str], None] = lambda text: None
    join_unanswered: Callable[[str], None] = lambda worker: None

    def listen(self, address: str, server: Any) -> str:
        """Have `server` answer at an address, whose port may be 0, for as long as its process lives."""
        process = Here.scheduler.me().process
        host, _, port = address.rpartition(":")
        if port == "0":
            self.port += 1
            address = f"{host}:{self.port}"
        self.listening[address] = process, server
        process.when_killed.append(lambda: self.silence(address, process))
        return address

    def silence(self, address: str, process: Process) -> None:
        if self.listening.get(address, (None,))[0] is process:
            del self.listening[address]

    def call(self, address: str, run: Callable[[Any], Answer], seconds: float | None) -> Answer:
        """What `run` makes of the server at `address`. Raises Unreachable, Late, and what `run` raises."""
        scheduler = Here.scheduler
        scheduler.step()
        caller, wait = scheduler.me().process, PATIENCE if seconds is None else seconds
        found = self.listening.get(address)
        if found is not None and (caller.name in self.cut or found[0].name in self.cut):
            scheduler.sleep(wait)
            raise Late
        if found is None or not found[0].alive:
            raise Unreachable
        process, server = found
        fate = self.random.random() / self.trouble if self.trouble else 1.0
        if self.late and self.lateness.random() < self.late:
            return self._apart(process, lambda: run(server), wait, self.lateness.uniform(0, LATEST))
        if process.paused or fate < 0.25:
            return self._apart(process, lambda: run(server), wait, self.random.uniform(0, 4) if fate < 0.25 else 0.0)
        if fate < 0.5:
            scheduler.sleep(self.random.uniform(0, 0.5))
            raise Unreachable  # it was lost
        if fate < 0.75:
            scheduler.sleep(self.random.uniform(0, 0.5))
        answer = inside(process, lambda: run(server))
        scheduler.step()
        if 0.75 <= fate < 1.0:
            raise Unreachable  # the answer was lost
        return answer

    def _apart(self, process: Process, run: Callable[[], Answer], wait: float, delay: float) -> Answer:
        """Run it in a thread of the server, later; give up after `wait` seconds."""
        scheduler = Here.scheduler
        task, results, errors = scheduler.me(), list[Answer](), list[Exception]()
        turn = task.turn + 1  # if its process is killed, it waits for something else when the answer comes

        def serve() -> None:
            try:
                scheduler.sleep(delay)
                results.append(run())
            except Crash:
                errors.append(Unreachable())
                raise
            except (ShuffleError, grpc.RpcError, Unreachable, Late) as error:
                errors.append(error)
            finally:
                if task.waiting and task.turn == turn:
                    scheduler.wake(task)

        scheduler.spawn(process, serve, f"call of {task.name}")
        scheduler.block(wait)
        if results:
            return results[0]
        raise errors[0] if errors else Late


def inside(process: Process, run: Callable[[], Answer]) -> Answer:
    """Run a handler of another process in this thread. Raises Unreachable when that process ends meanwhile."""
    scheduler = Here.scheduler
    task = scheduler.me()
    task.stack.append(process)
    crashed = False
    try:
        scheduler.check(task)
        return run()
    except Crash:
        crashed = not process.alive and not scheduler.ending
        if not crashed:
            raise
    finally:
        task.stack.pop()
    scheduler.check(task)
    raise Unreachable


# ------------------------------------------------------------------ control: what stands in for gRPC


class RpcError(grpc.RpcError):
    """A call that failed."""

    def __init__(self, code: grpc.StatusCode, details: str = "", trailers: Any = ()) -> None:
        super().__init__(details)
        self._code, self._details, self._trailers = code, details, trailers

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Any:
        return self._trailers


class Server:
    """`shuffle_server.master.wire.Wire`: what a `Door` does with a request, without the calls around it."""

    def __init__(self, door: Any, options: Any) -> None:
        self._door = door
        self._address = ""

    def listen(self, address: str, credentials: Any = None) -> int:
        self._address = Here.network.listen(address, self)
        return int(self._address.rpartition(":")[2])

    def start(self) -> None: ...
    def stop(self, grace: float) -> Any:
        import threading

        Here.network.silence(self._address, Here.scheduler.me().process)
        stopped = threading.Event()
        stopped.set()
        return stopped

    def answer(self, path: str, request: bytes) -> bytes:
        from shuffle_server.master.door import refusal

        method = self._door.methods[path]
        try:
            answered: bytes = method.answer(request)
        except ShuffleError as error:
            raise RpcError(*refusal(error)) from None
        except Exception as error:  # as gRPC does; and it is looked for
            Here.scheduler.unexpected(Here.scheduler.me(), error)
            raise RpcError(grpc.StatusCode.UNKNOWN, str(error)) from error
        Here.network.handled(method.name, method.kind.FromString(request))
        return answered


class Channel:
    """A grpc.Channel."""

    def __init__(self, address: str) -> None:
        self._address = address

    def unary_unary(self, path: str, request_serializer: Any, response_deserializer: Any, **_: Any) -> Any:
        def call(request: Message, timeout: float | None = None, metadata: Any = None) -> Any:
            return response_deserializer(self._ask(path, request_serializer(request), timeout))

        return call

    def unary_stream(self, path: str, **_: Any) -> Any:
        return None

    def stream_stream(self, path: str, request_serializer: Any, response_deserializer: Any, **_: Any) -> Any:
        def call(requests: Iterator[Message], metadata: Any = None) -> _Stream:
            ask = self._ask
            return _Stream(response_deserializer(ask(path, request_serializer(each), None)) for each in requests)

        return call

    def _ask(self, path: str, request: bytes, timeout: float | None) -> bytes:
        method = path.rpartition("/")[2]
        try:
            answer: bytes = Here.network.call(self._address, lambda server: server.answer(path, request), timeout)
        except Unreachable:
            Here.network.trace(f"{method}: no answer")
            if method == "Join":
                Here.network.join_unanswered(Here.scheduler.me().process.name)
            raise RpcError(grpc.StatusCode.UNAVAILABLE, "simulated") from None
        except Late:
            Here.network.trace(f"{method}: no answer in time")
            raise RpcError(grpc.StatusCode.DEADLINE_EXCEEDED, "simulated") from None
        except RpcError as error:
            Here.network.trace(f"{method}: {error.details()}")
            raise
        if method not in ("Beat", "Heartbeat"):
            Here.network.trace(method)
        return answer

    def close(self) -> None: ...


class _Stream:
    """The replies of a stream; `cancel` does nothing, since a reply is under way only while it is waited for."""

    def __init__(self, replies: Iterator[Any]) -> None:
        self._replies = replies

    def __next__(self) -> Any:
        return next(self._replies)

    def __iter__(self) -> Iterator[Any]:
        return self._replies

    def cancel(self) -> None: ...


# ------------------------------------------------------------------ data: what stands in for Flight


class Endpoint:
    """A worker's data endpoint: the product's handlers, without Flight around them."""

    def __init__(self, listen: Address, worker: Worker, services: DataServices, *rest: Any) -> None:
        self.worker = worker
        self._pushes = PushHandler(worker, services.put, None)
        self._address = Here.network.listen(str(listen), self)
        self.port = int(self._address.rpartition(":")[2])

    def shutdown(self) -> None:
        Here.network.silence(self._address, Here.scheduler.me().process)

    def put(self, body: bytes) -> pb.Committed:
        return self._pushes.inline(body, Principal())

    def push(self, command: pb.PutCommand, said: Iterator[PushMessage]) -> pb.PutReply:
        replies: list[pb.PutReply] = []
        self._pushes.attempt(command, said, replies.append)
        return replies[-1]

    def get(self, ticket: pb.GetTicket) -> list[tuple[Any, bytes]]:
        """The messages of a pull: batches, and what is said with them."""
        return list(self.worker.get(ticket)[1])

    def get_whole(self, ticket: pb.GetTicket) -> bytes:
        return self.worker.get_whole(ticket)

    def act(self, action: str, body: bytes) -> bytes:
        return act(self.worker, Principal(), action, body)


class DataClient:
    """`shuffle_transport.flight_client.FlightClient`, as far as servers use it among themselves."""

    def __init__(self, address: str, *, timeout: float, **_: Any) -> None:
        self.address, self._timeout = address, timeout

    def act(self, action: str, body: bytes) -> bytes:
        return self.call(lambda endpoint: endpoint.act(action, body))

    def push(self, target: Any, blocks: Any, *, first_block: int, end: Any, commit: bool) -> pb.PutReply:
        from shuffle_transport.flight_client import put_command

        command = put_command(target, first_block)
        batch = BlockBatch(table_rows(blocks), memoryview(b"".join(bytes(block.payload) for block in blocks)))
        last = pb.PutControl(end=messages.totals_message(end), commit=commit)
        said: list[PushMessage] = [(pb.PutControl(), batch), (last, None)] if blocks else [(last, None)]
        return self.call(lambda endpoint: endpoint.push(command, iter(said)))

    def call(self, run: Callable[[Endpoint], Answer]) -> Answer:
        """Raises what the worker answers, ServerUnreachable, DeadlineExceeded."""
        try:
            return Here.network.call(self.address, run, self._timeout)
        except Unreachable:
            raise ServerUnreachable(self.address, "simulated") from None
        except Late:
            raise DeadlineExceeded(f"{self.address} did not answer within {self._timeout:g} s") from None

    def close(self) -> None: ...


def _watch_nothing(guard: object, port: int) -> None:
    """`ConnectionGuard.start`: simulated connections have no sockets to be watched."""


def install() -> None:
    """Have the product's modules use all of these."""
    import shuffle_server.connection_guard
    import shuffle_server.master.cluster
    import shuffle_server.master.endpoint
    import shuffle_server.server
    import shuffle_server.worker.copier
    import shuffle_server.worker.runtime
    import shuffle_transport.control_client
    from shuffle_api.registry.state import Registry

    def channel(address: str, tls: object) -> Channel:
        return Channel(address)

    apply = Registry.apply

    def applied(registry: Registry, operation: Any) -> tuple[Any, ...]:
        events = apply(registry, operation)
        if events:
            Here.network.applied(operation, events)
        return events

    for owner, name, value in (
        (shuffle_server.connection_guard.ConnectionGuard, "start", _watch_nothing),
        (Registry, "apply", applied),
        (shuffle_server.master.endpoint, "Wire", Server),
        (shuffle_transport.control_client, "grpc_channel", channel),
        (shuffle_server.master.cluster, "FlightClient", DataClient),
        (shuffle_server.worker.copier, "FlightClient", DataClient),
        (shuffle_server.worker.runtime, "FlightEndpoint", Endpoint),
    ):
        setattr(owner, name, value)
