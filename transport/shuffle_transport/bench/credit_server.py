"""The peer's end of credit streams: a handler of channels that does what a job says."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from shuffle_api.errors import InvalidArgument
from shuffle_transport.bench.arrivals import Arrivals
from shuffle_transport.bench.counters import Counters
from shuffle_transport.bench.data import ring
from shuffle_transport.bench.job import Job
from shuffle_transport.channels import BlockChannel, ReceivedBatch

TIMEOUT_S = 180.0


class CreditHandler:
    """Serves jobs that channels carry in their metadata."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters

    def __call__(self, name: str, metadata: bytes, channel: BlockChannel) -> None:
        job = Job.load(metadata)
        if job.work == "source":
            send_all(channel, job)
        elif job.work == "both":
            exchange_all(channel, job)
        elif job.work == "echo":
            for batch in received(channel):
                channel.send(batch.rows, batch.payload, TIMEOUT_S)
                batch.release()
        elif job.work == "arrivals":
            arrivals = Arrivals(job.block)
            for batch in received(channel):
                arrivals.add(batch.payload)
                batch.release()
            channel.send_control(arrivals.report(), TIMEOUT_S)
        else:
            self._sink(channel, job)

    def _sink(self, channel: BlockChannel, job: Job) -> None:
        for batch in received(channel):
            if job.check:
                for _ in batch.raw():
                    pass
            self._counters.took(job, job.message)
            batch.release()


def received(channel: BlockChannel) -> Iterator[ReceivedBatch]:
    """Batches until the other end has ended."""
    while (item := channel.receive(TIMEOUT_S)) is not None:
        if not isinstance(item, ReceivedBatch):
            raise InvalidArgument("a control message in a job that has none", remedy="send blocks")
        yield item


def send_all(channel: BlockChannel, job: Job) -> None:
    """The job's messages, then the end."""
    messages = ring(job)
    for i in range(job.count):
        message = messages[i % len(messages)]
        channel.send(message.rows, message.payload, TIMEOUT_S)
    channel.half_close(TIMEOUT_S)


def exchange_all(channel: BlockChannel, job: Job) -> None:
    """Send and receive at once, to the end of both."""
    sender = threading.Thread(target=send_all, args=(channel, job), name="credit-send")
    sender.start()
    for batch in received(channel):
        batch.release()
    sender.join()
