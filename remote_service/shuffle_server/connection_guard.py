"""What the connections of an endpoint may take: of one host, before a token is shown, and in messages no call takes up.

Flight has a message whole in memory, and expands it, before any of this project's code sees it, and asks for the token
after that; nor does it offer a limit. So the connections themselves are watched: how many bytes came (TCP_INFO), and
how many of them the endpoint's calls have taken up. A connection that goes beyond a bound is cut. The control endpoint
has limits of its own for messages; its connections are bounded by host and by token in the same way.

A thread waits on the listening sockets, so that a new connection is looked at when it comes; then often, until a call
of it was let in. All others are looked at once a second, four times while much is under way, and as soon as the process
has grown. Where /proc does not list descriptors, nothing is done.
"""

from __future__ import annotations

import logging
import resource
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import unquote

from shuffle_api.periodic import PeriodicTask
from shuffle_transport.tcp_sockets import GONE, Accepted, Keepalive, TcpInfo, cut, keep_alive, served_sockets, tcp_info

STRANGER_SECONDS = 10.0
"""For a connection to have a call let in, where a token is wanted."""

STRANGER_BYTES = 4 << 20
"""That a connection may send before; the first request may be a small map output with its table of blocks."""

STRANGER_ANSWERS = 32 << 10
"""That it may be sent: a handshake of TLS, and some dozens of refusals."""

STRANGERS_BYTES = 16 << 20
"""That all such connections may have sent together."""

STRANGERS_GROWTH = 24 << 20
"""Bytes by which the process may grow while there are such connections, beside what is reserved: a call without its
message is a hundred bytes to its peer and 14 KiB here. With more, those that have sent STRANGER_LITTLE are cut."""

STRANGER_LITTLE = 1 << 10

STRANGERS_PER_HOST = 64
"""Such connections of one host at once."""

PEER_SECONDS = 60.0
"""After which a peer that answers nothing is taken for gone, if nothing else is said."""

OFTEN, SELDOM, AT_REST = 0.01, 0.25, 1.0  # seconds between two looks
GLANCE = 0.02  # between two looks whether the process has grown, which cost little
LITTLE = 1 << 20  # bytes that no call has taken up; with less on all connections, they are at rest
SETTLE_SECONDS, SETTLE_MOST = 0.005, 0.1  # for gRPC to accept new connections
SHARE_OF_TIME = 0.02  # that looks may take
GROWTH = 16 << 20  # bytes by which the process may grow before the connections are looked at

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
    :ivar unread: bytes that one connection may have sent and no call has taken up; None: no bound.
    :ivar together: bytes that all connections may have sent and no call has taken up.
    :ivar seconds: for which a peer may leave everything unanswered.
    """

    tokens: bool = False
    per_host: int = 1000
    unread: int | None = 512 << 20
    together: int = 1 << 30
    seconds: float = PEER_SECONDS


@dataclass(frozen=True, slots=True)
class ConnectionStatistics:
    """`strangers`: connections of which no call was let in. `cut`: by reason."""

    known: int = 0
    strangers: int = 0
    unread: int = 0  # bytes, of all connections
    cut: dict[str, int] = field(default_factory=dict)


class Memory:
    """How much memory this process has, but for files, looked at often. Where /proc does not say, it never grows.

    :param reserved: bytes that are accounted for elsewhere, and do not count.
    """

    def __init__(self, reserved: Callable[[], int] = lambda: 0) -> None:
        self._reserved = reserved
        self.begin()

    def begin(self) -> None:
        """Growth counts from now on."""
        self._noted = self._size()

    def grown(self, bytes: int) -> bool:
        """Whether it has grown by so much since this was last true, or since it was smallest."""
        size = self._size()
        if size - self._noted >= bytes:
            self._noted = size
            return True
        self._noted = min(self._noted, size)
        return False

    def _size(self) -> int:
        try:
            with open("/proc/self/statm", "rb", buffering=0) as file:
                _, resident, files, *_ = file.read(128).split()
        except OSError:
            return 0
        return (int(resident) - int(files)) * resource.getpagesize() - self._reserved()


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


class _Cuts:
    """Connections that were cut, by reason: counted, and logged, each second one line of a reason. Thread-safe.

    :param endpoint: whose, for the log.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._logged: dict[str, tuple[float, int]] = {}  # by reason: when, and how many were left out since

    def counts(self) -> dict[str, int]:
        with self._lock:
            return {reason: self._counts[reason] for reason in REASONS}

    def cut(self, connection: _Connection, reason: str, why: str) -> None:
        connection.cut = True
        with self._lock:
            self._counts[reason] += 1
        cut(connection.accepted)
        now = time.monotonic()
        last, left_out = self._logged.get(reason, (-LOG_SECONDS, 0))
        if now - last < LOG_SECONDS:
            self._logged[reason] = last, left_out + 1
            return
        self._logged[reason] = now, 0
        more = f" ({left_out} more were cut since the last line)" if left_out else ""
        log.warning("%s connection of %s cut: %s%s", self._endpoint, connection.accepted.peer, why, more)


class _Pace:
    """When all connections are to be found anew, which takes longer than to look at what was found."""

    def __init__(self) -> None:
        self._found = 0.0  # when that was done
        self._cost = 0.0  # seconds that it took
        self._period = SELDOM

    def due(self, now: float, period: float | None = None) -> bool:
        """Whether it is time: so often, and within the part of the time that looks may take."""
        return now - self._found >= max(self._period if period is None else period, self.cost_share)

    @property
    def cost_share(self) -> float:
        """Seconds of which the last time was SHARE_OF_TIME."""
        return self._cost / SHARE_OF_TIME

    def found(self, began: float) -> None:
        self._found, self._cost = began, time.monotonic() - began

    def rest(self, at_rest: bool) -> None:
        """How often from now on."""
        self._period = AT_REST if at_rest else SELDOM


class ConnectionGuard:
    """Watches the connections of one port from `start` to `close`.

    :param endpoint: its name, for the log.
    :param reserved: bytes of memory that the endpoint accounts for.
    """

    def __init__(self, bounds: Bounds, endpoint: str = "data", reserved: Callable[[], int] = lambda: 0) -> None:
        self._bounds = bounds
        self._keepalive = Keepalive.within(bounds.seconds)
        self._memory, self._strangers_memory = Memory(), Memory(reserved)
        self._peers: dict[str, Peer] = {}  # of connections of which a call was let in
        self._connections: dict[int, _Connection] = {}  # by descriptor
        self._listening: list[int] = []
        self._port = 0
        self._cuts = _Cuts(endpoint)
        self._lock = threading.Lock()  # of what `statistics` reads
        self._looking = threading.Lock()
        self._looked = 0.0  # when a refused call has looked
        self._pace = _Pace()
        self._task = PeriodicTask(f"{endpoint}-connections", self._round, SELDOM, at_once=True)

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

    def refused(self) -> None:
        """A call was refused by its headers.

        Flight has given it a thread by then, as it does with each call of a stream. There may be so many that the
        guard's own thread does not get its turn, so one of them looks in its place.
        """
        now = time.monotonic()
        if self._port and now - self._looked >= OFTEN:
            self._looked = now
            self._look(now, self._pace.due(now, 2 * OFTEN), own=False)

    def statistics(self) -> ConnectionStatistics:
        with self._lock:
            connections = list(self._connections.values())
        known = sum(each.peer is not None for each in connections)
        unread = sum(each.unread for each in connections)
        return ConnectionStatistics(known, len(connections) - known, unread, self._cuts.counts())

    # The rest is done with `_looking` held, but for the wait.

    def _round(self) -> float:
        """Wait until it is time to look, and look."""
        came = self._wait()
        self._look(time.monotonic(), came)
        return 0.0

    def _look(self, now: float, came: bool, own: bool = True) -> None:
        """`own`: by the guard's thread, which has the time to look at those that were cut, too."""
        if not self._looking.acquire(blocking=False):
            return
        try:
            if came or self._pace.due(now):
                self._find(now)
                self._judge(list(self._connections.values()), now)
                busy = any(each.unread > LITTLE for each in self._connections.values())
                self._pace.rest(not busy and bool(self._listening))
            elif self._bounds.unread is not None and self._memory.grown(GROWTH):
                self._judge(list(self._connections.values()), now)
            else:
                self._judge(self._strangers() if own else [each for each in self._strangers() if not each.cut], now)
        finally:
            self._looking.release()

    def _wait(self) -> bool:
        """Whether a connection came."""
        seconds = OFTEN if self._strangers() else GLANCE
        if not self._listening:
            self._task.closing.wait(seconds)
            return False
        poll = select.poll()
        for fd in self._listening:
            poll.register(fd, select.POLLIN)
        if not poll.poll(seconds * 1000):
            return False
        self._task.closing.wait(min(SETTLE_MOST, max(SETTLE_SECONDS, self._pace.cost_share)))
        return True

    def _strangers(self) -> list[_Connection]:
        """With those that were cut and have not ended."""
        return [each for each in self._connections.values() if each.peer is None]

    def _find(self, now: float) -> None:
        """Compare what is known with the connections that there are."""
        called = dict(self._peers)  # before the look: each of them has a connection, or has lost it
        known = {fd: each.accepted for fd, each in self._connections.items()}
        found = served_sockets(self._port, known)
        present: dict[int, _Connection] = {}
        for accepted in found.accepted:
            earlier = self._connections.get(accepted.fd)
            if earlier is None or earlier.accepted is not accepted:
                keep_alive(accepted, self._keepalive)
                earlier = _Connection(accepted, now)
            present[accepted.fd] = earlier
        with self._lock:
            self._connections, self._listening = present, found.listening
        there = {each.accepted.peer for each in present.values()}
        for address in called:
            if unquote(address) not in there:
                self._peers.pop(address, None)
        self._pace.found(now)

    def _judge(self, connections: Iterable[_Connection], now: float) -> None:
        bounds, strangers, ending = self._bounds, [], 0
        for each in connections:
            if each.cut:
                cut(each.accepted)  # gRPC misses the end of one on which much comes at that moment
                ending += each.received if each.peer is None else 0
                continue
            each.peer = each.peer or self._peers.get(each.accepted.peer)
            info = tcp_info(each.accepted)
            if info is None:
                continue
            if info.closed:
                cut(each.accepted)  # likewise
                continue
            each.settle(info)
            if (info.unacknowledged or info.probes > 1) and info.last_answer > bounds.seconds:
                self._cuts.cut(each, "silent", f"it has answered nothing for {info.last_answer:.0f} s, --peer-timeout")
            elif bounds.unread is not None and each.unread > bounds.unread:
                self._cuts.cut(
                    each, "unread", f"{each.unread} bytes of it are in no request, more than --peer-max-unread"
                )
            elif each.peer is None:
                strangers.append(each)
        if bounds.tokens:
            self._judge_strangers(strangers, now, ending)
            if bounds.unread is not None:
                self._judge_growth(strangers)
        if bounds.unread is not None:
            self._judge_unread(bounds.together)
        self._judge_hosts(bounds.per_host)

    def _judge_strangers(self, strangers: list[_Connection], now: float, ending: int) -> None:
        """`ending`: bytes of those that were cut, which gRPC still has."""
        hosts = Counter(each.accepted.host for each in strangers)
        together = ending + sum(each.received for each in strangers)
        strangers.sort(key=lambda each: each.since)
        for each in strangers:
            if now - each.since > STRANGER_SECONDS:
                self._cuts.cut(each, "token", f"no call with a valid token came within {STRANGER_SECONDS:g} s")
            elif each.received > STRANGER_BYTES:
                self._cuts.cut(each, "token", f"{each.received} bytes came before a call with a valid token")
            elif each.acknowledged > STRANGER_ANSWERS:
                self._cuts.cut(
                    each, "token", f"{each.acknowledged} bytes of refusals went out, and no valid token came"
                )
            elif hosts[each.accepted.host] > STRANGERS_PER_HOST:
                hosts[each.accepted.host] -= 1
                self._cuts.cut(each, "token", f"its host has more than {STRANGERS_PER_HOST} without a valid token")
        for each in sorted(strangers, key=lambda each: -each.received):
            if together <= STRANGERS_BYTES or each.received <= STRANGER_LITTLE:
                break
            together -= each.received
            if not each.cut:
                self._cuts.cut(each, "token", f"all without a valid token have sent more than {STRANGERS_BYTES} bytes")

    def _judge_growth(self, strangers: list[_Connection]) -> None:
        if not strangers:
            self._strangers_memory.begin()
        elif self._strangers_memory.grown(STRANGERS_GROWTH):
            for each in strangers:
                if each.received > STRANGER_LITTLE and not each.cut:
                    why = f"the process grew by {STRANGERS_GROWTH} bytes while there were connections without one"
                    self._cuts.cut(each, "token", f"no call with a valid token came, and {why}")

    def _judge_unread(self, most: int) -> None:
        there = [each for each in self._connections.values() if not each.cut]
        together = sum(each.unread for each in there)
        for each in sorted(there, key=lambda each: -each.unread):
            if together <= most:
                break
            together -= each.unread
            self._cuts.cut(
                each, "unread", f"{each.unread} bytes of it are in no request, and of all more than --memory"
            )

    def _judge_hosts(self, most: int) -> None:
        if len(self._connections) <= most:
            return
        hosts: Counter[str] = Counter()
        for each in sorted(self._connections.values(), key=lambda each: each.since):
            hosts[each.accepted.host] += not each.cut and each.accepted.host != GONE
            if hosts[each.accepted.host] > most and not each.cut:
                hosts[each.accepted.host] -= 1
                self._cuts.cut(each, "connections", f"its host has {most} already, --peer-max-connections")
