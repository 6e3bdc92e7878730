"""The client's end of credit streams: one `ExchangeClient`, a channel per stream."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from time import perf_counter_ns

import numpy as np

from shuffle_api.errors import StreamBroken
from shuffle_transport.bench.arrivals import due_blocks
from shuffle_transport.bench.credit_server import TIMEOUT_S, exchange_all, received, send_all
from shuffle_transport.bench.data import Prepared, ring
from shuffle_transport.bench.job import Job
from shuffle_transport.channels import BlockChannel, ChannelOptions, Control, ExchangeClient
from shuffle_transport.checksum import crc32c
from shuffle_transport.codecs import Codec, get_codec
from shuffle_transport.pool import BufferPool


class CreditSide:
    """One connection. Each call is one channel and returns when the receiver has ended it, so has all.

    Blocks are described as their sender would have to: a table with checksums, made beforehand as for raw Flight.
    """

    def __init__(self, port: int, budget: int) -> None:
        self._client = ExchangeClient(f"127.0.0.1:{port}", BufferPool(budget))

    def put(self, job: Job) -> float:
        """With a codec, the channel compresses what has to wait for credit. Returns bytes sent, per raw byte."""
        with self._open(job) as channel:
            send_all(channel, job)
            _expect_end(channel)
            return _sent_part(channel)

    def put_packed(self, job: Job) -> float:
        """As `put`, but the caller compresses every block, on the thread that sends."""
        with self._open(job) as channel:
            _send_packed(channel, job)
            _expect_end(channel)
            return _sent_part(channel)

    def put_checked(self, job: Job) -> None:
        """As `put`, and the receiver checks each block against its checksum, as a task does."""
        self.put(replace(job, check=True))

    def put_until(self, job: Job, stop: threading.Event) -> None:
        """As `put`, until `stop` is set."""
        messages = ring(job)
        i = 0
        with self._open(job) as channel:
            while not stop.is_set():
                message = messages[i % len(messages)]
                channel.send(message.rows, message.payload, TIMEOUT_S)
                i += 1
            channel.half_close(TIMEOUT_S)
            _expect_end(channel)

    def get(self, job: Job) -> None:
        with self._open(job) as channel:
            channel.half_close(TIMEOUT_S)
            for batch in received(channel):
                batch.release()

    def exchange(self, job: Job) -> None:
        with self._open(job) as channel:
            exchange_all(channel, job)

    def ping(self, job: Job) -> np.ndarray:
        """`job.count` round trips of one message, in ns."""
        message = ring(job)[0]
        trips = np.empty(job.count, np.int64)
        with self._open(job) as channel:
            answers = received(channel)
            for i in range(job.count):
                started = perf_counter_ns()
                channel.send(message.rows, message.payload, TIMEOUT_S)
                next(answers).release()
                trips[i] = perf_counter_ns() - started
            channel.half_close(TIMEOUT_S)
            _expect_end(channel)
        return trips

    def offer(self, job: Job) -> dict[str, float]:
        """`job.blocks` blocks at `job.rate` per second; the `Arrivals.report` of the other end."""
        rows = ring(job)[0].rows
        with self._open(job) as channel:
            for message in due_blocks(job.rate, job.blocks, job.block, len(rows)):
                channel.send(rows[: len(message)], message.data.cast("B"), TIMEOUT_S)
            channel.half_close(TIMEOUT_S)
            answer = channel.receive(TIMEOUT_S)
            if not isinstance(answer, Control):
                raise StreamBroken("the peer ended the channel without its report")
            _expect_end(channel)
        report: dict[str, float] = json.loads(answer.message)
        return report

    def close(self) -> None:
        self._client.close()

    def _open(self, job: Job) -> BlockChannel:
        return self._client.open(
            f"{job.work}-{job.channel}", metadata=job.dump(), options=ChannelOptions(codec=job.codec)
        )


def _sent_part(channel: BlockChannel) -> float:
    sent = channel.statistics()
    return round(sent.bytes_sent / sent.raw_bytes_sent, 3)


def _send_packed(channel: BlockChannel, job: Job) -> None:
    codec, messages = get_codec(job.codec), ring(job)
    for i in range(job.count):
        packed = _packed(messages[i % len(messages)], codec)
        channel.send(packed.rows, packed.payload, TIMEOUT_S)
    channel.half_close(TIMEOUT_S)


def _packed(message: Prepared, codec: Codec) -> Prepared:
    """The message compressed block by block, on the thread that sends it."""
    rows = message.rows.copy()
    at, pieces = 0, []
    for i, length in enumerate(message.rows["length"].tolist()):
        raw = message.payload[at : at + length]
        stored = codec.compress(raw)
        if stored is not None:
            rows["length"][i], rows["crc32c"][i] = memoryview(stored).nbytes, crc32c(stored)
        pieces.append(raw if stored is None else stored)
        at += length
    return Prepared(rows, memoryview(b"".join(pieces)))


def _expect_end(channel: BlockChannel) -> None:
    if channel.receive(TIMEOUT_S) is not None:
        raise StreamBroken("the peer sent something where its end was expected")
