"""Many streams that run until an event is set, and what they and the two processes did meanwhile."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from shuffle_api.errors import DeadlineExceeded
from shuffle_transport.bench import machine
from shuffle_transport.bench.child import PeerProcess
from shuffle_transport.bench.credit import CreditSide
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.raw import RawSide

START_TIMEOUT_S = 60.0


class Ends:
    """Peer and clients; a context manager.

    :param budget: bytes of either process's buffer pool.
    """

    def __init__(self, budget: int) -> None:
        with ExitStack() as opening:  # closes what there is if something fails
            peer = opening.enter_context(PeerProcess(budget, "credit", "raw"))
            self.client_pid, self.peer_pid, ports = os.getpid(), peer.pid, peer.ports
            self.credit = opening.enter_context(closing(CreditSide(ports["credit"], budget)))
            self.raw, self.control = (opening.enter_context(closing(RawSide(ports["raw"]))) for _ in range(2))
            self._closing = opening.pop_all()

    def close(self) -> None:
        """Close the clients, then end the peer. Idempotent."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Streamer(Protocol):
    """A contender that can put until an event is set."""

    def put_until(self, job: Job, stop: threading.Event) -> None: ...


@dataclass(frozen=True, slots=True)
class Observed:
    """Bytes per second that each channel's consumer took in, by channel; growth of each process's memory, in bytes,
    from before the streams began to its peak."""

    rates: dict[int, float]
    client_growth: int
    peer_growth: int


def observe(ends: Ends, side: Streamer, jobs: Sequence[Job], warm_s: float, seconds: float) -> Observed:
    """Run `jobs` at once, let them settle for `warm_s`, count for `seconds`, then end them all in order."""
    stop = threading.Event()
    ends.control.ask("reset")
    pids = ends.client_pid, ends.peer_pid
    for pid in pids:
        machine.forget_peak(pid)
    before = [machine.resident(pid) for pid in pids]
    with ThreadPoolExecutor(len(jobs), "bench-stream") as pool:
        running = [pool.submit(side.put_until, job, stop) for job in jobs]
        try:
            _await_first(ends, len(jobs))
            time.sleep(warm_s)
            first = ends.control.ask("count")
            time.sleep(seconds)
            last = ends.control.ask("count")
            growth = [machine.peak(pid) - start for pid, start in zip(pids, before, strict=True)]
        finally:
            stop.set()
            ends.control.ask("release")
        for stream in running:
            stream.result()
    elapsed = last["at"] - first["at"]
    rates = {job.channel: (_count(last["received"], job) - _count(first["received"], job)) / elapsed for job in jobs}
    return Observed(rates, growth[0], growth[1])


def _await_first(ends: Ends, channels: int) -> None:
    """Until a message of every channel has arrived."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while len(ends.control.ask("count")["received"]) < channels:
        if time.monotonic() > deadline:
            raise DeadlineExceeded(f"of {channels} channels not all had started after {START_TIMEOUT_S:g} s")
        time.sleep(0.01)


def _count(received: dict[str, int], job: Job) -> int:
    return received.get(str(job.channel), 0)
