"""The control endpoint of a master: its services behind the door, listening."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable
from dataclasses import dataclass

import grpc
from google.protobuf.message_factory import GetMessageClass

from shuffle_api.address import Address
from shuffle_api.errors import Overloaded
from shuffle_server.connection_guard import PEER_SECONDS, Bounds, ConnectionGuard
from shuffle_server.master.call_pool import CallPool, QueuedCall, Refusals
from shuffle_server.master.commit_control import CommitService
from shuffle_server.master.commit_streams import NAME as COMMITS
from shuffle_server.master.commit_streams import CommitStreams
from shuffle_server.master.committing import Committer
from shuffle_server.master.control import ControlService
from shuffle_server.master.door import CallAdmission, Checks, Door, Heartbeats, Method, ServerStream, Unary
from shuffle_server.master.membership import Membership
from shuffle_server.master.serving import ServedTime
from shuffle_server.master.watching import Watchers
from shuffle_server.master.wire import Wire
from shuffle_server.observe.calls import CallObserver
from shuffle_server.proto import registry_pb2 as registry_pb
from shuffle_server.security import OPEN, ServerSecurity, ServerTls
from shuffle_transport.proto import flight_shuffle_pb2 as pb

WATCH = "Watch"
HEARTBEATS = frozenset(("Heartbeat", "Beat"))
JOIN = "Join"
# They wait for the registry's log, and when the log's disk hangs they wait for as long as they may.
CHANGING = frozenset(
    ("RegisterApp", "UnregisterApp", "RegisterShuffle", "UnregisterShuffle", "ReportLost", "Release", "Leave", "Lose")
)
HEARTBEAT_THREADS = 4
JOIN_THREADS = 2
TURN_SECONDS = 0.2

MAX_MESSAGE_BYTES = 16 << 20
CALLS = 1000
CONNECTIONS = 10_000


@dataclass(frozen=True, slots=True)
class Limits:
    """What the endpoint serves at once.

    :param threads: for changes, and as many for queries.
    :param calls: of a host, or of an application.
    :param connections: in all.
    :param per_host: connections of one host.
    :param seconds: after which a peer that answers nothing is taken for gone.
    """

    threads: int = 16
    calls: int = CALLS
    connections: int = CONNECTIONS
    per_host: int = 1000
    seconds: float = PEER_SECONDS

    def options(self) -> list[tuple[str, int]]:
        """gRPC's."""
        third = int(1000 * self.seconds / 3)
        return [
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            # A small compressed message would be expanded to any size before its length is looked at.
            ("grpc.per_message_decompression", 0),
            ("grpc.max_concurrent_streams", 2 * self.calls),
            ("grpc.max_allowed_incoming_connections", min(self.connections, _room_for_connections())),
            # A connection whose peer says nothing, or has vanished, ends.
            ("grpc.server_handshake_timeout_ms", 10_000),
            ("grpc.keepalive_time_ms", third),
            ("grpc.keepalive_timeout_ms", third),
            ("grpc.http2.ping_timeout_ms", third),
            # Clients ping a master that is silent, to find out whether it was stopped.
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 1),
        ]


class CallPools:
    """The threads for calls, and the one that commits."""

    def __init__(self, threads: int, committer: Committer, served: ServedTime) -> None:
        self._served, self._probed = served, True
        most = 1000  # calls that wait in a pool
        slow = "try again later; see whether the master's disk hangs, or raise --control-threads"
        life = Refusals(f"{most} heartbeats wait", refused=served.miss)
        join = Refusals(f"{most} workers wait to join", remedy=slow)
        changes = Refusals(
            f"{most} changes wait for the registry's log",
            stuck_seconds=TURN_SECONDS,
            stuck=f"{threads} changes wait for the registry's log",
            remedy=slow,
        )
        queries = Refusals(f"{most} queries wait", remedy="try again later, or raise --control-threads")
        self.life = CallPool("life", HEARTBEAT_THREADS, most, life)
        self.join = CallPool("join", JOIN_THREADS, most, join)
        self.changes = CallPool("changes", threads, most, changes)
        self.queries = CallPool("queries", threads, most, queries)
        self.committer = committer
        self.all = (self.life, self.join, self.changes, self.queries)

    def of(self, method: str) -> CallPool:
        if method in HEARTBEATS:
            return self.life
        if method == JOIN:
            return self.join
        return self.changes if method in CHANGING else self.queries

    def probe(self) -> None:
        """Put a note in line with the heartbeats, unless one is there already."""
        if self._probed:
            self._probed = False
            try:
                self.life.offer(QueuedCall("", self._note, lambda error: None))
            except Overloaded:
                self._probed = True

    def _note(self) -> None:
        self._served.note()
        self._probed = True

    def close(self) -> None:
        """End the threads, once they have nothing to do."""
        for pool in self.all:
            pool.close()
        self.committer.close()


class ControlServer:
    """A control endpoint that listens."""

    def __init__(
        self,
        wire: Wire,
        door: Door,
        pools: CallPools,
        streams: CommitStreams,
        watchers: Watchers,
        guard: ConnectionGuard,
    ) -> None:
        self._door, self._pools, self._streams, self._watchers = door, pools, streams, watchers
        self._wire, self._guard = wire, guard
        self.connections = guard.statistics

    def calls(self) -> dict[str, int]:
        """How many wait for their message, and how many are under way or in line in each pool."""
        calls = {pool.name: pool.waiting + pool.running for pool in self._pools.all}
        return calls | {"commits": self._pools.committer.waiting, "message": len(self._door.half_open)}

    def streams(self) -> dict[str, int]:
        """How many are open, of each kind."""
        return {"watches": self._watchers.bound.count, "commits": self._streams.bound.count}

    def stop(self, grace: float) -> threading.Event:
        """Take no calls any more; set when those under way have ended, at the latest after `grace` seconds."""
        stopped = self._wire.stop(grace)
        self._streams.end()
        self._watchers.end()
        self._pools.close()
        self._guard.close()
        return stopped


def start_control(
    service: ControlService,
    membership: Membership,
    host: str,
    port: int,
    limits: Limits,
    security: ServerSecurity = OPEN,
    *,
    observer: CallObserver | None = None,
    sure: Callable[[], None] = lambda: None,
    served: ServedTime | None = None,
) -> tuple[ControlServer, int]:
    """Listen; the server and its port. Raises InvalidArgument when it cannot listen there.

    :param sure: asked before each request is looked at; raises a ShuffleError unless this master leads. So an answer
        shows the state of a master that led after the request was sent, however late the answer leaves.
    :param served: notes for how long heartbeats are received.
    """
    registries = service.registries
    commits = CommitService(service.master, membership, sure, registries)
    served = served or ServedTime()
    pools = CallPools(limits.threads, Committer(commits.commits), served)
    streams = CommitStreams(pools.committer)
    bounds = Bounds(security.tokens is not None, limits.per_host, None, seconds=limits.seconds)
    guard = ConnectionGuard(bounds, "control")
    authenticate = None if security.tokens is None else security.tokens.authenticate
    door = Door(
        methods(service, commits, pools, streams, Checks(sure, registries.check)),
        pools.all,
        CallAdmission(authenticate, guard, served.miss),
        limits.calls,
        observer or CallObserver(),
        (pools.probe,),
    )
    wire = Wire(door, limits.options())
    bound = wire.listen(str(Address(host, port)), None if security.tls is None else _credentials(security.tls))
    wire.start()
    guard.start(bound)
    return ControlServer(wire, door, pools, streams, service.watchers, guard), bound


def methods(
    service: ControlService, commits: CommitService, pools: CallPools, streams: CommitStreams, checks: Checks
) -> dict[str, Method]:
    """What is done with the calls of each path."""
    found: dict[str, Method] = {}
    for file, implementation in ((pb, service), (registry_pb, commits)):
        [described] = file.DESCRIPTOR.services_by_name.values()
        for method in described.methods:
            name = method.name
            kind, pool = GetMessageClass(method.input_type), pools.of(name)
            if name == COMMITS:
                made: Method = streams
            elif name == WATCH:
                made = ServerStream(name, kind, pool, checks, service.watchers.answer)
            elif name in HEARTBEATS:
                made = Heartbeats(name, kind, pool, checks, getattr(implementation, name), implementation.alive)
            else:
                made = Unary(name, kind, pool, checks, getattr(implementation, name), counted=pool is not pools.join)
            found[f"/{described.full_name}/{name}"] = made
    return found


def _room_for_connections() -> int:
    """Half of the files that this process may open: connections leave the other half to files and to the workers."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft // 2 if soft != resource.RLIM_INFINITY else CONNECTIONS


def _credentials(tls: ServerTls) -> grpc.ServerCredentials:
    return grpc.ssl_server_credentials(
        [(tls.key, tls.cert)], tls.client_ca or None, require_client_auth=bool(tls.client_ca)
    )
