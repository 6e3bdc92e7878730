"""Many streams that run until an event is set, and what they and the two processes did meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from shuffle_api.errors import DeadlineExceeded
from shuffle_transport.bench import process
from shuffle_transport.bench.ends import Ends
from shuffle_transport.bench.job import Job

START_TIMEOUT_S = 60.0


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
        process.forget_peak(pid)
    before = [process.resident(pid) for pid in pids]
    with ThreadPoolExecutor(len(jobs), "bench-stream") as pool:
        running = [pool.submit(side.put_until, job, stop) for job in jobs]
        try:
            _await_first(ends, len(jobs))
            time.sleep(warm_s)
            first = ends.control.ask("count")
            time.sleep(seconds)
            last = ends.control.ask("count")
            growth = [process.peak(pid) - start for pid, start in zip(pids, before, strict=True)]
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
