"""A TCP proxy that remembers every byte, in both directions: what somebody on the wire would see."""

from __future__ import annotations

import socket
import threading
from types import TracebackType

TIMEOUT_S = 120.0


class RecordingProxy:
    """Forwards connections from a free port of 127.0.0.1 to `target` (HOST:PORT). A context manager."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._streams: list[bytearray] = []
        self._sockets: list[socket.socket] = [self._listener]
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def seen(self) -> bytes:
        """All bytes so far, stream by stream."""
        with self._lock:
            return b"\0".join(bytes(stream) for stream in self._streams)

    def __enter__(self) -> RecordingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # its peer was faster
            each.close()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
            assert not thread.is_alive()

    def _start(self, run: object, *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            far = socket.create_connection(self._target, timeout=TIMEOUT_S)
            near.settimeout(TIMEOUT_S)
            with self._lock:
                self._sockets += [near, far]
            self._start(self._forward, near, far)
            self._start(self._forward, far, near)

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        seen = bytearray()
        with self._lock:
            self._streams.append(seen)
        try:
            while piece := source.recv(1 << 16):
                with self._lock:
                    seen += piece
                sink.sendall(piece)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # one end has gone; `__exit__` closes the other
