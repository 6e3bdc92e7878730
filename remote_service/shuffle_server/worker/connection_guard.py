"""What the connections of the data endpoint may take: before a token is shown, and of messages no call takes up.

Flight has a message whole in memory, and expands it, before any of this project's code sees it, and asks for the token
after that; nor does it offer a limit. So the connections themselves are watched: how many bytes came (TCP_INFO), and
how many of them the endpoint's calls have taken up. A connection that goes beyond a bound is cut.

A thread waits on the listening sockets, so that a new connection is looked at when it comes; then often, until a call
of it was let in. All others are looked at once a second, or four times while much is under way. Where /proc does not
list descriptors, nothing is done.
"""

from __future__ import annotations

import logging
import select
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

from shuffle_api.periodic import PeriodicTask
from shuffle_transport.tcp_sockets import Accepted, TcpInfo, cut, keep_alive, served_sockets, tcp_info

STRANGER_SECONDS = 10.0
"""For a connection to have a call let in, where a token is wanted."""

STRANGER_BYTES = 16 << 20
"""That a connection may send before; the first request may be a map output, or a table of blocks."""

STRANGERS_BYTES = 64 << 20
"""That all such connections may have sent together."""

STRANGERS_PER_HOST = 64
"""Such connections of one host at once."""

DEAD_SECONDS = 60.0
"""After which a peer that answers nothing is taken for gone."""

OFTEN, SELDOM, AT_REST = 0.01, 0.25, 1.0  # seconds between two looks
LITTLE = 1 << 20  # bytes that no call has taken up; with less on all connections, they are at rest
SETTLE_SECONDS, SETTLE_MOST = 0.005, 0.1  # for gRPC to accept new connections
SHARE_OF_TIME = 0.02  # that looks may take

CALL_COST, MESSAGE_COST = 4096, 1024  # bytes that a call and a message take at least, with their headers
ADDED = 4  # what is not payload is at most this part of it
PER_SENT = 64  # of what a peer reads, it sends this part back to say that it may be sent more

REASONS = ("token", "unread", "connections", "silent")
LOG_SECONDS = 1.0  # between two lines for the same reason

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Peer:
    """One connection, as the endpoint's calls see it. `taken`: bytes that came, in messages that were taken up.

    Calls add to it without a lock: what gets lost if two do so at once is little.
    """

    taken: int = 0

    def took(self, size: int) -> None:
        """A message of `size` bytes was taken up."""
        self.taken += size + MESSAGE_COST


@dataclass(frozen=True, slots=True)
class Bounds:
    """What connections may take.

    :ivar tokens: calls need one.
    :ivar per_host: connections of one host.
    :ivar unread: bytes that one connection may have sent and no call has taken up.
    """

    tokens: bool = False
    per_host: int = 1000
    unread: int = 512 << 20


@dataclass(frozen=True, slots=True)
class ConnectionStatistics:
    """`strangers`: connections of which no call was let in. `cut`: by reason."""

    known: int = 0
    strangers: int = 0
    unread: int = 0  # bytes, of all connections
    cut: dict[str, int] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Connection:
    accepted: Accepted
    since: float
    peer: Peer | None = None
    received: int = 0
    acknowledged: int = 0
    taken: int = 0
    unread: int = 0
    cut: bool = False

    def settle(self, info: TcpInfo) -> None:
        """Work out the bytes that no call has taken up. More came than calls take: headers and metadata."""
        taken = self.taken if self.peer is None else self.peer.taken
        accounted = (taken - self.taken) * (ADDED + 1) // ADDED + (info.acknowledged - self.acknowledged) // PER_SENT
        self.unread = max(0, self.unread + info.received - self.received - accounted)
        self.received, self.acknowledged, self.taken = info.received, info.acknowledged, taken


class ConnectionGuard:
    """Watches the connections of one port from `start` to `close`."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._peers: dict[str, Peer] = {}  # of connections of which a call was let in
        self._connections: dict[int, _Connection] = {}  # by descriptor
        self._listening: list[int] = []
        self._port = 0
        self._cuts: Counter[str] = Counter()
        self._logged: dict[str, tuple[float, int]] = {}  # by reason: when, and how many were left out since
        self._lock = threading.Lock()  # of what `statistics` reads
        self._cost = 0.0  # seconds that it takes to find all connections
        self._found = 0.0  # when that was done
        self._period = SELDOM
        self._task = PeriodicTask("connections", self._round, SELDOM, at_once=True)

    def start(self, port: int) -> None:
        self._port = port
        self._task.start()

    def close(self) -> None:
        self._task.close()

    def called(self, address: str) -> Peer:
        """A call was let in, of the peer at `address` (as gRPC shows it)."""
        peer = self._peers.get(address)
        if peer is None:
            if not self._port:
                return Peer()
            peer = self._peers.setdefault(unquote(address), Peer())
            if "%" in address:
                self._peers[address] = peer
        peer.taken += CALL_COST
        return peer

    def statistics(self) -> ConnectionStatistics:
        with self._lock:
            connections = list(self._connections.values())
            cuts = {reason: self._cuts[reason] for reason in REASONS}
        known = sum(each.peer is not None for each in connections)
        return ConnectionStatistics(known, len(connections) - known, sum(each.unread for each in connections), cuts)

    # The rest is done by the task's thread.

    def _round(self) -> float:
        """Wait until it is time to look, and look."""
        came = self._wait()
        now = time.monotonic()
        strangers = self._strangers()
        # To find all takes longer than to look at what was found.
        if came or now - self._found >= max(self._period, self._cost / SHARE_OF_TIME):
            self._find(now)
            self._judge(list(self._connections.values()), now)
            busy = any(each.unread > LITTLE for each in self._connections.values())
            self._period = SELDOM if busy or not self._listening else AT_REST
        else:
            self._judge(strangers, now)
        return 0.0

    def _wait(self) -> bool:
        """Whether a connection came."""
        seconds = OFTEN if self._strangers() else self._period
        if not self._listening:
            self._task.closing.wait(seconds)
            return False
        poll = select.poll()
        for fd in self._listening:
            poll.register(fd, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return False
        self._task.closing.wait(min(SETTLE_MOST, max(SETTLE_SECONDS, self._cost / SHARE_OF_TIME)))
        return True

    def _strangers(self) -> list[_Connection]:
        return [each for each in self._connections.values() if each.peer is None and not each.cut]

    def _find(self, now: float) -> None:
        """Compare what is known with the connections that there are."""
        called = dict(self._peers)  # before the look: each of them has a connection, or has lost it
        known = {fd: each.accepted for fd, each in self._connections.items()}
        found = served_sockets(self._port, known)
        present: dict[int, _Connection] = {}
        for accepted in found.accepted:
            earlier = self._connections.get(accepted.fd)
            if earlier is None or earlier.accepted is not accepted:
                keep_alive(accepted)
                earlier = _Connection(accepted, now)
            present[accepted.fd] = earlier
        with self._lock:
            self._connections, self._listening = present, found.listening
        there = {each.accepted.peer for each in present.values()}
        for address in called:
            if unquote(address) not in there:
                self._peers.pop(address, None)
        self._found, self._cost = now, time.monotonic() - now

    def _judge(self, connections: Iterable[_Connection], now: float) -> None:
        bounds, strangers = self._bounds, []
        for each in connections:
            if each.cut:
                continue
            each.peer = each.peer or self._peers.get(each.accepted.peer)
            info = tcp_info(each.accepted)
            if info is None:
                continue
            each.settle(info)
            if (info.unacknowledged or info.probes > 1) and info.last_answer > DEAD_SECONDS:
                self._cut(each, "silent", f"it has answered nothing for {info.last_answer:.0f} s")
            elif each.unread > bounds.unread:
                self._cut(each, "unread", f"{each.unread} bytes of it are in no request, more than --peer-max-unread")
            elif each.peer is None:
                strangers.append(each)
        if bounds.tokens:
            self._judge_strangers(strangers, now)
        self._judge_hosts(bounds.per_host)

    def _judge_strangers(self, strangers: list[_Connection], now: float) -> None:
        hosts = Counter(each.accepted.host for each in strangers)
        together = sum(each.received for each in strangers)
        strangers.sort(key=lambda each: each.since)
        for each in strangers:
            if now - each.since > STRANGER_SECONDS:
                self._cut(each, "token", f"no call with a valid token came within {STRANGER_SECONDS:g} s")
            elif each.received > STRANGER_BYTES:
                self._cut(each, "token", f"{each.received} bytes came before a call with a valid token")
            elif hosts[each.accepted.host] > STRANGERS_PER_HOST:
                hosts[each.accepted.host] -= 1
                self._cut(each, "token", f"its host has more than {STRANGERS_PER_HOST} without a valid token")
        for each in sorted(strangers, key=lambda each: -each.received):
            if together <= STRANGERS_BYTES:
                break
            together -= each.received
            if not each.cut:
                self._cut(each, "token", f"all without a valid token have sent more than {STRANGERS_BYTES} bytes")

    def _judge_hosts(self, most: int) -> None:
        if len(self._connections) <= most:
            return
        hosts: Counter[str] = Counter()
        for each in sorted(self._connections.values(), key=lambda each: each.since):
            hosts[each.accepted.host] += not each.cut
            if hosts[each.accepted.host] > most and not each.cut:
                hosts[each.accepted.host] -= 1
                self._cut(each, "connections", f"its host has {most} already, --peer-max-connections")

    def _cut(self, connection: _Connection, reason: str, why: str) -> None:
        connection.cut = True
        with self._lock:
            self._cuts[reason] += 1
        cut(connection.accepted)
        now = time.monotonic()
        last, left_out = self._logged.get(reason, (-LOG_SECONDS, 0))
        if now - last < LOG_SECONDS:
            self._logged[reason] = last, left_out + 1
            return
        self._logged[reason] = now, 0
        more = f" ({left_out} more were cut since the last line)" if left_out else ""
        log.warning("connection of %s cut: %s%s", connection.accepted.peer, why, more)
