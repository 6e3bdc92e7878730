"""The client's end of raw Flight: one pyarrow connection, batches prepared beforehand, written and read one by one."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from shuffle_transport.bench.arrivals import due_blocks
from shuffle_transport.bench.data import batches, ring
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.raw_server import chunks
from shuffle_transport.blocks import PUT_SCHEMA, put_batch

TIMEOUT_S = 180.0


class RawSide:
    """The client of a `RawServer`: one connection. Each call is one stream and returns when the receiver has all."""

    def __init__(self, port: int) -> None:
        self._client = fl.connect(f"grpc+tcp://127.0.0.1:{port}")
        self._options = fl.FlightCallOptions(timeout=TIMEOUT_S)

    def put(self, job: Job) -> None:
        prepared = batches(job)
        self._put(job, lambda writer: _write(writer, prepared, job.count), self._options)

    def put_ipc(self, job: Job) -> None:
        """As `put`, compressed with the job's codec, whole columns, as Arrow IPC offers it."""
        prepared = batches(job)
        write = pa.ipc.IpcWriteOptions(compression=job.codec)
        options = fl.FlightCallOptions(timeout=TIMEOUT_S, write_options=write)
        self._put(job, lambda writer: _write(writer, prepared, job.count), options)

    def put_until(self, job: Job, stop: threading.Event) -> None:
        """As `put`, until `stop` is set."""
        prepared = batches(job)

        def write(writer: Any) -> None:
            i = 0
            while not stop.is_set():
                writer.write_batch(prepared[i % len(prepared)])
                i += 1

        self._put(job, write, self._options)

    def get(self, job: Job) -> None:
        reader = self._client.do_get(fl.Ticket(job.dump()), self._options)
        for _ in chunks(reader):
            pass

    def exchange(self, job: Job) -> None:
        prepared = batches(job)
        writer, reader = self._exchange(job)
        with writer:
            sender = threading.Thread(target=_write_all, args=(writer, prepared, job.count), name="raw-send")
            sender.start()
            for _ in chunks(reader):
                pass
            sender.join()

    def ping(self, job: Job) -> np.ndarray:
        """`job.count` round trips of one message, in ns."""
        batch = batches(job)[0]
        trips = np.empty(job.count, np.int64)
        writer, reader = self._exchange(job)
        with writer:
            for i in range(job.count):
                started = perf_counter_ns()
                writer.write_batch(batch)
                reader.read_chunk()
                trips[i] = perf_counter_ns() - started
            writer.done_writing()
            _to_end(reader)
        return trips

    def offer(self, job: Job) -> dict[str, float]:
        """`job.blocks` blocks at `job.rate` per second; the `Arrivals.report` of the other end."""
        rows = ring(job)[0].rows
        writer, reader = self._exchange(job)
        with writer:
            for message in due_blocks(job.rate, job.blocks, job.block, len(rows)):
                writer.write_batch(put_batch(rows[: len(message)], message.data))
            writer.done_writing()
            report: dict[str, float] = json.loads(_to_end(reader))
        return report

    def ask(self, action: str) -> dict[str, Any]:
        """What the peer answers to an action, as JSON."""
        (answer,) = self._client.do_action(fl.Action(action, b""), self._options)
        values: dict[str, Any] = json.loads(answer.body.to_pybytes())
        return values

    def close(self) -> None:
        self._client.close()

    def _put(self, job: Job, write: Callable[[Any], None], options: fl.FlightCallOptions) -> None:
        writer, replies = self._client.do_put(fl.FlightDescriptor.for_path(job.dump()), PUT_SCHEMA, options)
        with writer:
            write(writer)
            writer.done_writing()
            if replies.read() is None:
                raise ConnectionError("raw Flight: the server ended the put without its answer")

    def _exchange(self, job: Job) -> tuple[Any, Any]:
        writer, reader = self._client.do_exchange(fl.FlightDescriptor.for_path(job.dump()), self._options)
        writer.begin(PUT_SCHEMA)
        return writer, reader


def _write(writer: Any, prepared: tuple[Any, ...], count: int) -> None:
    for i in range(count):
        writer.write_batch(prepared[i % len(prepared)])


def _write_all(writer: Any, prepared: tuple[Any, ...], count: int) -> None:
    _write(writer, prepared, count)
    writer.done_writing()


def _to_end(reader: Any) -> bytes:
    """Read to the end; the last metadata there was."""
    last = b""
    for chunk in chunks(reader):
        if chunk.app_metadata is not None:
            last = chunk.app_metadata.to_pybytes()
    return last
