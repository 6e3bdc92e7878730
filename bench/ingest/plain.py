"""What the store's figures are held against: the same bytes written by `writev`, the same files sent over Flight."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as fl

PIECE = 2 << 20
START_SECONDS = 300.0
_SCHEMA = pa.schema([pa.field("payload", pa.large_binary(), nullable=False)])


def write_files(root: Path, writer: int, files: int, pieces: Sequence[memoryview]) -> None:
    """New files with the given contents, a few pieces per `writev`."""
    for number in range(files):
        fd = os.open(root / f"{writer}.{number}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            for first in range(0, len(pieces), 8):
                _write_all(fd, list(pieces[first : first + 8]))
        finally:
            os.close(fd)


def _write_all(fd: int, pieces: list[memoryview]) -> None:
    while pieces:
        count = os.writev(fd, pieces)
        while pieces and count >= pieces[0].nbytes:
            count -= pieces.pop(0).nbytes
        if count:
            pieces[0] = pieces[0][count:]


@contextmanager
def flight_of_files() -> Iterator[str]:
    """The address of a Flight server, a process of its own, that sends the files whose paths are a ticket's lines."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs,), name="plain-flight")
    process.start()
    try:
        if not ours.poll(START_SECONDS):
            raise TimeoutError("the plain Flight server did not start")
        yield f"grpc://127.0.0.1:{ours.recv()}"
    finally:
        ours.send("stop")
        process.join(START_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()
        process.close()
        ours.close()


def receive_files(address: str, paths: Sequence[Path]) -> tuple[int, float]:
    """Bytes received and the seconds that took."""
    with fl.connect(address) as client:
        started, received = time.perf_counter(), 0
        for chunk in client.do_get(fl.Ticket("\n".join(map(str, paths)).encode())):
            received += chunk.data.column(0).buffers()[2].size
        return received, time.perf_counter() - started


class _Files(fl.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    def do_get(self, context: fl.ServerCallContext, ticket: fl.Ticket) -> fl.GeneratorStream:
        return fl.GeneratorStream(_SCHEMA, _pieces(ticket.ticket.decode().split("\n")))


def _pieces(paths: Sequence[str]) -> Iterator[pa.RecordBatch]:
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while True:
                buffer = pa.allocate_buffer(PIECE)
                if not (count := file.readinto(memoryview(buffer).cast("B"))):
                    break
                offsets = pa.array([0, count], pa.int64()).buffers()[1]
                array = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, buffer.slice(0, count)])
                yield pa.record_batch([array], schema=_SCHEMA)


def _serve(pipe: Connection) -> None:
    server = _Files("grpc://127.0.0.1:0")
    pipe.send(server.port)
    pipe.recv()
    server.shutdown()
    pipe.close()
