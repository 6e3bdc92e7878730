"""Clients of the registry, and what their commits take.

A client is what a worker is to its master: one connection, on which the commits of several tasks are gathered. Each
task is a thread that commits so many map outputs, waits until they are acknowledged, and commits the next ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from bench.harness.apart import at_once
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput, ShuffleSpec, Totals
from shuffle_server.master.client import RegistryClient
from shuffle_transport import messages
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb

PARTITIONS, MAPS = 1000, 10_000
TIMEOUT = 240.0
WARM_UP_S = 1.0

Commit = Callable[[ShuffleId, list[MapOutput]], object]


@dataclass(frozen=True, slots=True)
class Mode:
    """So many tasks in each client, each of which commits so many map outputs at a time."""

    tasks: int
    batch: int

    def __str__(self) -> str:
        return f"{self.tasks}x{self.batch}"

    @classmethod
    def of(cls, text: str) -> Mode:
        """Of `TASKSxBATCH`. Raises ValueError."""
        tasks, _, batch = text.partition("x")
        return cls(int(tasks), int(batch))


def latencies_ms(ordered: Sequence[float]) -> dict[str, float]:
    """Of seconds, ascending."""
    at = {"p50_ms": share_of(ordered, 0.5), "p99_ms": share_of(ordered, 0.99), "max_ms": ordered[-1]}
    return {name: round(1e3 * seconds, 3) for name, seconds in at.items()}


def share_of(ordered: Sequence[float], share: float) -> float:
    """The value below which lies such a share of them."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def output(map_id: int, worker: str) -> MapOutput:
    """A map output such as a worker commits."""
    return MapOutput(MapAttempt(map_id, 0), worker, Totals(1000, 1 << 26, 1 << 27, 1 << 20, map_id))


def commit_for(commits: Sequence[tuple[Commit, ShuffleId]], worker: str, mode: Mode, seconds: float) -> list[float]:
    """Have tasks commit through each of `commits`; the seconds that each map output took, without a warm-up."""
    begin = time.perf_counter() + WARM_UP_S
    end = begin + seconds
    latencies: list[list[float]] = []

    def work(commit: Commit, shuffle: ShuffleId, task: int, mine: list[float]) -> None:
        map_id, now = task * mode.batch, time.perf_counter()
        while now < end or not mine:  # one at least, however busy the machine is
            commit(shuffle, [output(map_id + n, worker) for n in range(mode.batch)])
            before, now = now, time.perf_counter()
            if before >= begin:
                mine += [now - before] * mode.batch
            map_id += mode.tasks * mode.batch

    threads: list[threading.Thread] = []
    for commit, shuffle in commits:
        for task in range(mode.tasks):
            latencies.append([])
            arguments = (commit, shuffle, task, latencies[-1])
            threads.append(threading.Thread(target=work, args=arguments, name=f"task-{len(threads)}"))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [each for mine in latencies for each in mine]


def begin_app(address: str, app: str, shuffles: int) -> tuple[str, list[ShuffleId]]:
    """Register an application with shuffles; a worker of that server, and their ids."""
    with closing(ControlClient(address, client="flight-shuffle-bench", timeout=TIMEOUT)) as control:
        reply = control.call("RegisterApp", pb.RegisterAppRequest(app=app, instance=app, name="bench.registry"))
        ids = [ShuffleId(app, number) for number in range(shuffles)]
        for id in ids:
            control.call("RegisterShuffle", messages.spec_message(ShuffleSpec(id, PARTITIONS, MAPS)))
    return reply.workers[0].id, ids


def load(address: str, app: str, clients: int, mode: Mode, seconds: float) -> list[float]:
    """The latencies (seconds) of the commits of so many clients in this process."""
    worker, ids = begin_app(address, app, clients)
    with ExitStack() as stack:
        connected = [stack.enter_context(closing(RegistryClient(address, timeout=TIMEOUT))) for _ in ids]
        commits = [(_acknowledged(client), id) for client, id in zip(connected, ids, strict=True)]
        return commit_for(commits, worker, mode, seconds)


def _acknowledged(client: RegistryClient) -> Commit:
    def commit(shuffle: ShuffleId, outputs: list[MapOutput]) -> None:
        if client.commit_all(shuffle, outputs) != outputs:
            raise RuntimeError(f"{outputs[0]} or one after it was refused")

    return commit


def load_from_processes(
    address: str, app: str, *, processes: int, clients: int, mode: Mode, seconds: float
) -> list[float]:
    """The latencies of so many clients in all, in processes of their own."""
    work = [(address, f"{app}-{number}", clients // processes, mode, seconds) for number in range(processes)]
    return [each for own in at_once(load, work, TIMEOUT + seconds) for each in own]
