"""A TCP proxy that does to connections what networks do: delay, a reset, a silence without an error."""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from types import TracebackType

from shuffle_api.address import Address, parse_address

CONNECT_S = 10.0
JOIN_S = 30.0
LOOK_S = 0.05  # how soon a thread that waits for its socket sees a fault
PIECE = 256 << 10
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends RST and drops unsent bytes


class FaultProxy:
    """Forwards connections from `listen` to `target` (HOST:PORT each; port 0: any free one). A context manager.

    :param target: or the path of a socket of this machine.
    :param delay: seconds for which each piece of up to 256 KiB is held, each way.
    """

    def __init__(self, target: str, listen: str = "127.0.0.1:0", *, delay: float = 0.0) -> None:
        self._target = target if target.startswith("/") else parse_address(target, "target")
        self.delay = delay
        wanted = parse_address(listen, "listen", any_port=True)
        self._listener = socket.create_server((wanted.host, wanted.port), backlog=128)
        self._listener.settimeout(LOOK_S)
        host, port = self._listener.getsockname()
        self.address = f"{host}:{port}"
        self._flows = threading.Event()
        self._flows.set()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._open: set[_Connection] = set()
        self._thread = threading.Thread(target=self._accept, name="fault-proxy", daemon=True)
        self._thread.start()

    def reset(self) -> int:
        """Both ends of every connection that is open now get a reset. How many connections that were."""
        with self._lock:
            found = list(self._open)
        for connection in found:
            connection.doomed.set()
        return len(found)

    def freeze(self) -> None:
        """Forward nothing until `thaw`: connections are half open, and new ones are not answered."""
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        self.thaw()
        self._thread.join(JOIN_S)
        self._listener.close()
        self.reset()
        with self._lock:
            found = list(self._open)
        for connection in found:
            connection.join()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                near, _ = self._listener.accept()
            except TimeoutError:
                continue
            near.setblocking(True)
            try:
                far = _connected(self._target)
            except OSError:
                _close(near, reset=True)
                continue
            far.setblocking(True)
            connection = _Connection(near, far, lambda: self.delay, self._flows)
            with self._lock:
                self._open = {one for one in self._open if one.alive} | {connection}
            connection.start()


class _Connection:
    """Two sockets, and a thread for each direction."""

    def __init__(
        self, near: socket.socket, far: socket.socket, delay: Callable[[], float], flows: threading.Event
    ) -> None:
        self.doomed = threading.Event()
        self._ends, self._delay, self._flows = (near, far), delay, flows
        self._threads = [
            threading.Thread(target=self._pump, args=ends, name="fault-proxy-pump", daemon=True)
            for ends in ((near, far), (far, near))
        ]
        self._lock = threading.Lock()
        self._running = len(self._threads)

    @property
    def alive(self) -> bool:
        return self._running > 0

    def start(self) -> None:
        for end in self._ends:
            if end.family != socket.AF_UNIX:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(JOIN_S)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while piece := self._next(source):
                time.sleep(self._delay())
                self._send(sink, piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            self.doomed.set()  # one end has gone: so does the other
        with self._lock:
            self._running -= 1
            last = not self._running
        if last:
            for end in self._ends:
                _close(end, reset=self.doomed.is_set())

    def _next(self, source: socket.socket) -> bytes:
        while not (self._flows.wait(LOOK_S) and _ready(source, select.POLLIN)):
            self._check()
        return source.recv(PIECE)

    def _send(self, sink: socket.socket, piece: bytes) -> None:
        left = memoryview(piece)
        while left:
            self._check()
            if self._flows.wait(LOOK_S) and _ready(sink, select.POLLOUT):
                left = left[sink.send(left, socket.MSG_DONTWAIT) :]

    def _check(self) -> None:
        if self.doomed.is_set():
            raise ConnectionResetError


def _connected(target: Address | str) -> socket.socket:
    if isinstance(target, Address):
        return socket.create_connection((target.host, target.port), timeout=CONNECT_S)
    end = socket.socket(socket.AF_UNIX)
    try:
        end.connect(target)
    except OSError:
        end.close()
        raise
    return end


def _ready(end: socket.socket, event: int) -> bool:
    """Whether it can be read or written within `LOOK_S`. A descriptor may be above what select() takes."""
    poll = select.poll()
    poll.register(end, event)
    return bool(poll.poll(LOOK_S * 1000))


def _close(end: socket.socket, *, reset: bool) -> None:
    if reset:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    end.close()
