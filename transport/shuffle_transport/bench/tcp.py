"""Both ends of raw TCP: a connection per stream, the job's line first, then payload without any framing.

The receiver reads into one buffer, again and again: the cheapest that can be done with a socket from Python, and so the
limit that the rest is measured against.
"""

from __future__ import annotations

import socket
import threading
from time import perf_counter_ns

import numpy as np

from shuffle_transport.bench.data import ring
from shuffle_transport.bench.job import Job

TIMEOUT_S = 60.0
DONE = b"."


class TcpServer:
    """Serves jobs on a free port of 127.0.0.1, a thread per connection, until the process ends."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="tcp-accept", daemon=True).start()

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=_serve, args=(connection,), name="tcp-serve", daemon=True).start()


class TcpSide:
    """The client of a :class:`TcpServer`. Each call opens a connection and returns when the receiver has all."""

    def __init__(self, port: int) -> None:
        self._port = port

    def put(self, job: Job) -> None:
        with self._open(job) as connection:
            _send(connection, job)
            _expect_done(connection)

    def get(self, job: Job) -> None:
        with self._open(job) as connection:
            _drain(connection, job)

    def exchange(self, job: Job) -> None:
        with self._open(job) as connection:
            _both(connection, job)
            _expect_done(connection)

    def ping(self, job: Job) -> np.ndarray:
        """`job.count` round trips of one message, in ns."""
        payload, buffer = ring(job)[0].payload, bytearray(job.message)
        trips = np.empty(job.count, np.int64)
        with self._open(job) as connection:
            for i in range(job.count):
                started = perf_counter_ns()
                connection.sendall(payload)
                _fill(connection, buffer)
                trips[i] = perf_counter_ns() - started
        return trips

    def close(self) -> None:
        """Nothing stays open."""

    def _open(self, job: Job) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(job.dump())
        return connection


def _serve(connection: socket.socket) -> None:
    with connection:
        connection.settimeout(TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        line = b""
        while not line.endswith(b"\n"):
            line += connection.recv(1)
        job = Job.load(line)
        if job.work == "sink":
            _drain(connection, job)
        elif job.work == "source":
            _send(connection, job)
            return
        elif job.work == "both":
            _both(connection, job)
        elif job.work == "echo":
            buffer = bytearray(job.message)
            for _ in range(job.count):
                _fill(connection, buffer)
                connection.sendall(buffer)
            return
        connection.sendall(DONE)


def _both(connection: socket.socket, job: Job) -> None:
    sender = threading.Thread(target=_send, args=(connection, job), name="tcp-send")
    sender.start()
    _drain(connection, job)
    sender.join()


def _send(connection: socket.socket, job: Job) -> None:
    messages = ring(job)
    for i in range(job.count):
        connection.sendall(messages[i % len(messages)].payload)


def _drain(connection: socket.socket, job: Job) -> None:
    buffer = bytearray(max(job.message, 1 << 20))
    left = job.volume
    while left:
        left -= _received(connection.recv_into(buffer, min(left, len(buffer))))


def _fill(connection: socket.socket, buffer: bytearray) -> None:
    view, at = memoryview(buffer), 0
    while at < len(buffer):
        at += _received(connection.recv_into(view[at:]))


def _expect_done(connection: socket.socket) -> None:
    _received(len(connection.recv(1)))


def _received(size: int) -> int:
    if not size:
        raise ConnectionError("the other end closed the connection in the middle of a job")
    return size
