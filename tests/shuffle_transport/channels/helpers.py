"""What the tests of channels share: batches that can be told apart, endpoints, a proxy that cuts connections."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

import numpy as np

from shuffle_api.buffer import Buffer
from shuffle_transport.channels import (
    BlockChannel,
    ChannelOptions,
    Control,
    ExchangeClient,
    ExchangeEndpoint,
    Handler,
    ReceivedBatch,
)
from shuffle_transport.channels.options import DEFAULT_OPTIONS
from shuffle_transport.checksum import BLOCK_ROW, crc32c
from shuffle_transport.pool import BufferPool

TIMEOUT = 60.0
MIB = 1 << 20
ANY = "grpc+tcp://127.0.0.1:0"


def batch(*payloads: Buffer, first_partition: int = 0) -> tuple[np.ndarray, bytes]:
    """Table and payload of raw blocks."""
    rows = np.zeros(len(payloads), BLOCK_ROW)
    for i, payload in enumerate(payloads):
        size = memoryview(payload).nbytes
        rows[i] = (first_partition + i, crc32c(payload), size, size, 1)
    return rows, b"".join(payloads)


def numbered(number: int, size: int) -> tuple[np.ndarray, bytes]:
    """A batch of one block of at least 8 bytes that says its number."""
    return batch(struct.pack("<q", number) + bytes(size - 8), first_partition=number)


def number_of(item: object) -> int:
    assert isinstance(item, ReceivedBatch)
    (number,) = struct.unpack_from("<q", item.payload)
    return int(number)


def receive_batch(channel: BlockChannel, timeout: float = TIMEOUT) -> ReceivedBatch:
    item = channel.receive(timeout)
    assert isinstance(item, ReceivedBatch)
    return item


def echo(name: str, metadata: bytes, channel: BlockChannel) -> None:
    """The handler that sends back what it gets."""
    while (item := channel.receive(TIMEOUT)) is not None:
        if isinstance(item, Control):
            channel.send_control(item.message, TIMEOUT)
        else:
            channel.send(item.rows, item.payload, TIMEOUT)
            item.release()


def hold(name: str, metadata: bytes, channel: BlockChannel) -> None:
    """Takes batches in and never releases them; answers control messages."""
    while (item := channel.receive(TIMEOUT)) is not None:
        if isinstance(item, Control):
            channel.send_control(item.message, TIMEOUT)


def eventually(condition: Callable[[], object]) -> None:
    """Wait until it is true."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def connected(
    handler: Handler,
    *,
    options: ChannelOptions = DEFAULT_OPTIONS,
    budget: int = 256 * MIB,
    timeout: float = TIMEOUT,
    server_options: ChannelOptions = DEFAULT_OPTIONS,
) -> Iterator[tuple[ExchangeClient, ExchangeEndpoint]]:
    with ExchangeEndpoint(ANY, handler, BufferPool(budget), timeout=timeout, options=server_options) as endpoint:
        with ExchangeClient(
            f"127.0.0.1:{endpoint.port}", BufferPool(budget), timeout=timeout, options=options
        ) as client:
            yield client, endpoint


class CuttingProxy:
    """Forwards TCP connections to `port`; `cut` resets those there are. A context manager.

    :param cut_after: reset each connection after so many bytes from client to server, one entry per connection.
    """

    def __init__(self, port: int, cut_after: list[int] | None = None) -> None:
        self._port, self._cut_after = port, list(cut_after or [])
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut(self) -> None:
        """Reset all connections there are now."""
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._reset(*pair)

    def _reset(self, *pair: socket.socket) -> None:
        for end in pair:
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it is closed already

    def _start(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            far = socket.create_connection(("127.0.0.1", self._port), timeout=TIMEOUT)
            far.settimeout(None)
            limit = self._cut_after.pop(0) if self._cut_after else None
            with self._lock:
                self.connections += 1
                self._pairs.append((near, far))
            self._start(self._pump, near, far, limit)
            self._start(self._pump, far, near, None)

    def _pump(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        passed = 0
        try:
            while data := source.recv(1 << 16):
                passed += len(data)
                if limit is not None and passed > limit:
                    self._reset(source, sink)
                    return
                sink.sendall(data)
        except OSError:
            pass  # reset
        finally:
            for end in (source, sink):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # reset

    def __enter__(self) -> CuttingProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(TIMEOUT)  # it accepts: no more pairs after that
        self.cut()
        for thread in self._threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()
        for pair in self._pairs:
            for end in pair:
                end.close()
