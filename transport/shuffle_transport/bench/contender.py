"""A contender by itself: a client process, and a peer process that serves nobody else.

So none runs in memory that another has left behind, and what one sets in its processes the others go without.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from multiprocessing import get_context, parent_process
from threading import Thread
from time import perf_counter_ns
from typing import Any

from shuffle_transport import grpc_polling
from shuffle_transport.bench import machine
from shuffle_transport.bench.child import PeerProcess
from shuffle_transport.bench.credit import CreditSide
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.measure import Run
from shuffle_transport.bench.raw import RawSide
from shuffle_transport.bench.remote import RemoteSide
from shuffle_transport.bench.tcp import TcpSide

CREDIT, RAW, TCP, REMOTE = "credit", "raw_flight", "raw_tcp", "remote"
"""The contenders' names in reports: the credit stream; pyarrow's Flight as it comes; a socket; `FlightClient`'s push
and pull."""
RAW_POLLING = "raw_flight_polling"
"""Raw Flight whose processes poll as those of the credit stream do (`grpc_polling`)."""
CHECKED = "credit_checked"
"""The credit stream whose receiver checks every block's checksum, which raw Flight has none of."""
RAW_IPC = "raw_flight_ipc"
"""Raw Flight that compresses with the same codec, whole columns, as Arrow IPC offers it."""
PACKED = "credit_packed"
"""A credit stream whose caller compresses every block; a channel itself compresses what has to wait for credit."""

DEFAULT_BUDGET = 256 << 20

_SIDES: dict[str, tuple[str, Callable[[int], Any]]] = {  # name: what serves it, and the client of a port
    CREDIT: ("credit", lambda port: CreditSide(port, DEFAULT_BUDGET)),
    RAW: ("raw", RawSide),
    RAW_POLLING: ("raw", RawSide),
    TCP: ("tcp", TcpSide),
    REMOTE: ("remote", RemoteSide),
}


class Contender:
    """Both processes; they start beside whatever comes next. Close it.

    :param name: see above.
    """

    def __init__(self, name: str) -> None:
        self._client = ProcessPoolExecutor(1, get_context("spawn"), _belong)
        self._started = self._client.submit(_start, name)

    def run(self, verb: str, *jobs: Job) -> Run:
        """Call that method of the client with a job; with several at once, each on a thread of its own.

        :raises InternalError: the peer did not start.
        """
        self._started.result()
        return self._client.submit(_run, verb, jobs).result()

    @property
    def pids(self) -> tuple[int, int]:
        """Process ids of the client and the peer."""
        self._started.result()
        return self._client.submit(_pids).result()

    def close(self) -> None:
        """End both processes. Idempotent."""
        self._client.shutdown(cancel_futures=True)


@contextmanager
def contenders(*names: str) -> Iterator[dict[str, Contender]]:
    """Fresh ones, by name."""
    with ExitStack() as opened:
        yield {name: opened.enter_context(closing(Contender(name))) for name in names}


# In the client process. Its end closes the peer's standard input, which ends that as well.

_here: tuple[Any, PeerProcess]


def _belong() -> None:
    """To the command: Ctrl-C is for it, which ends this process in order. If it is killed, this process ends itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_command, name="bench-end", daemon=True).start()


def _end_with_command() -> None:
    command = parent_process()
    assert command is not None
    command.join()
    os._exit(1)


def _start(name: str) -> None:
    global _here
    if name == RAW_POLLING:
        os.environ[grpc_polling.VARIABLE] = grpc_polling.POLLING
    serves, client = _SIDES[name]
    peer = PeerProcess(DEFAULT_BUDGET, serves)
    _here = client(peer.ports[serves]), peer


def _pids() -> tuple[int, int]:
    return os.getpid(), _here[1].pid


def _run(verb: str, jobs: tuple[Job, ...]) -> Run:
    work: Callable[[Job], Any] = getattr(_here[0], verb)
    pids = _pids()
    cpu = [machine.cpu_seconds(pid) for pid in pids]
    started = perf_counter_ns()
    if len(jobs) == 1:
        value = work(*jobs)
    else:
        with ThreadPoolExecutor(len(jobs), "bench-channel") as pool:
            value = list(pool.map(work, jobs))
    seconds = (perf_counter_ns() - started) / 1e9
    client, served = (machine.cpu_seconds(pid) - before for pid, before in zip(pids, cpu, strict=True))
    return Run(seconds, client, served, value)
