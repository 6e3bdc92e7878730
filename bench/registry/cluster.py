"""A master with thousands of workers and hundreds of applications, in one process: the code that requests end in.

Times are of the processor, not of the clock: nothing here waits.
"""

from __future__ import annotations

import gc
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.registry.operations import CommitMapOutput, Operation, RegisterApp, RegisterShuffle
from shuffle_api.values import MapOutput, ShuffleSpec, Totals, WorkerInfo
from shuffle_server.master.cluster import Cluster
from shuffle_server.master.commit_control import CommitService
from shuffle_server.master.committing import Asked
from shuffle_server.master.control import ControlService
from shuffle_server.master.master import Master
from shuffle_server.master.membership import Membership
from shuffle_server.proto import registry_pb2
from shuffle_server.worker.master_session import SHUFFLES_AT_ONCE
from shuffle_transport import messages
from shuffle_transport.proto import flight_shuffle_pb2 as pb

WORKERS_OF_A_HOST, WORKERS_OF_A_RACK = 4, 200
SHUFFLES_OF_AN_APP = 5
BATCH = 16  # commits of a request
SAMPLES = 5000  # calls of each kind that are timed
ROOM = 1 << 40


class Cell:
    """A durable master (its log is written and not synced), its workers and applications."""

    def __init__(self, directory: Path, workers: int, apps: int, outputs: int) -> None:
        self.random = random.Random(7)
        self.master = Master(directory, snapshot_every=1 << 60)
        self.membership = Membership(self.master, 60.0)
        self.workers = [worker_of(number) for number in range(workers)]
        self.shuffles = [
            ShuffleId(f"app{app}", number, 1) for app in range(apps) for number in range(SHUFFLES_OF_AN_APP)
        ]
        self.maps = -(-outputs // len(self.shuffles))
        for worker in self.workers:
            self.membership.join(worker)
        self.master.apply_all([RegisterApp(f"app{app}", "i", "") for app in range(apps)])
        self.master.apply_all([RegisterShuffle(ShuffleSpec(id, 1000, self.maps)) for id in self.shuffles])
        self.control = ControlService(self.master, Cluster(self.membership, None), "bench", 60)
        self.commits = CommitService(self.master, self.membership)

    def fill(self, outputs: int) -> None:
        """So many outputs, spread over shuffles and workers."""
        batch: list[Operation] = []
        for number in range(outputs):
            shuffle, map_id = self.shuffles[number % len(self.shuffles)], number // len(self.shuffles)
            batch.append(CommitMapOutput(shuffle, _output(map_id, self.random.choice(self.workers).id)))
            if len(batch) == 1000:
                self.master.apply_all(batch)
                batch = []
        self.master.apply_all(batch)
        self.master.materialize()  # as a master does by itself, every so often

    def place(self) -> pb.PlaceReply:
        shuffle = messages.key_of(self.random.choice(self.shuffles))
        return self.control.Place(pb.PlaceRequest(shuffle=shuffle, host=self.random.choice(self.workers).host))

    def place_elsewhere(self) -> pb.PlaceReply:
        shuffle = messages.key_of(self.random.choice(self.shuffles))
        return self.control.Place(pb.PlaceRequest(shuffle=shuffle, host="none", near="rack=r1"))

    def beat(self, worker: WorkerInfo) -> registry_pb2.BeatReply:
        request = registry_pb2.BeatRequest(
            identity=registry_pb2.Identity(worker=worker.id, incarnation=1),
            free_bytes=ROOM,
            status=pb.WorkerStatus(worker=worker.id, open_pushes=self.random.randrange(9)),
            shuffles=map(messages.key_of, self.random.sample(self.shuffles, min(SHUFFLES_AT_ONCE, len(self.shuffles)))),
        )
        return self.commits.Beat(request)

    def commit(self, number: int, count: int) -> None:
        """A request with so many commits of one worker, of maps that nobody has written."""
        worker = self.random.choice(self.workers)
        commits = [
            registry_pb2.Commit(
                shuffle=messages.key_of(self.shuffles[at % len(self.shuffles)]),
                output=messages.output_message(_output((1 << 40) + number * BATCH + at, worker.id)),
            )
            for at in range(count)
        ]
        identity = registry_pb2.Identity(worker=worker.id, incarnation=1)
        data = registry_pb2.CommitRequest(identity=identity, commits=commits).SerializeToString()
        self.commits.commits([Asked(data)])


def measure(scratch: Path, workers: int, apps: int, outputs: int) -> dict[str, Any]:
    """Everything, for so many workers, applications and outputs."""
    before = _resident()
    cell = Cell(scratch / "cluster", workers, apps, outputs)
    with closing(cell.master):
        empty = _resident()
        cell.fill(outputs)
        report: dict[str, Any] = {
            "workers": workers,
            "applications": apps,
            "outputs": outputs,
            "bytes_per_worker": round((empty - before) / workers),
            "bytes_per_output": round((_resident() - empty) / outputs),
            "place_at_host": _timed(cell.place() for _ in range(SAMPLES)),
            "place_elsewhere": _timed(cell.place_elsewhere() for _ in range(SAMPLES)),
            "beat": _timed(cell.beat(each) for each in cell.workers[:SAMPLES]),
            "looked_at_per_place": round(cell.membership.looked / (2 * SAMPLES), 2),
            "place_bytes": cell.place_elsewhere().ByteSize(),
            **_lists(cell),
            **_commits(cell),
        }
        report.update(_losses(cell))
    return report


def _lists(cell: Cell) -> dict[str, Any]:
    whole = cell.control.Heartbeat(pb.HeartbeatRequest(app="app0", known=pb.WorkersKnown()))
    known = pb.WorkersKnown(epoch=whole.changes.epoch, version=whole.changes.version)
    request = pb.HeartbeatRequest(app="app0", known=known)
    return {
        "list_bytes": whole.ByteSize(),
        "no_changes_bytes": cell.control.Heartbeat(request).ByteSize(),
        "changes": _timed(cell.control.Heartbeat(request) for _ in range(SAMPLES)),
    }


def _commits(cell: Cell) -> dict[str, Any]:
    found = {}
    for name, count in (("commit", 1), ("commits_of_16", BATCH)):
        begun, cpu = 0 if count == 1 else SAMPLES, time.process_time()
        for number in range(SAMPLES // 5):
            cell.commit(begun + number, count)
        spent = time.process_time() - cpu
        found[name] = {"us_each": round(1e6 * spent / (SAMPLES // 5 * count), 1)}
        found[name]["per_cpu_second"] = round(SAMPLES // 5 * count / spent)
    return found


def _losses(cell: Cell) -> dict[str, Any]:
    """The loss of a worker with its share of the outputs, and of one with a tenth of them all."""
    found: dict[str, Any] = {}
    for name, worker in (("share", cell.workers[1]), ("tenth", _fat(cell))):
        with cell.master.lock:
            count, _ = cell.master.registry.only_at(worker.id)
        steps: list[float] = []
        apply_all = cell.master.apply_all
        cell.master.apply_all = _noting(apply_all, steps)  # type: ignore[method-assign]
        cpu = time.process_time()
        cell.membership.leave(worker.id, "silent")
        spent = time.process_time() - cpu
        cell.master.apply_all = apply_all  # type: ignore[method-assign]
        found[name] = {
            "outputs": count,
            "cpu_s": round(spent, 4),
            "steps": len(steps),
            "longest_step_ms": round(1e3 * max(steps), 2),
        }
    return {"loss": found}


def _fat(cell: Cell) -> WorkerInfo:
    """A worker with as many new outputs as make a tenth of all."""
    worker = cell.workers[2]
    maps = range(1 << 41, (1 << 41) + cell.maps // 9 + 1)
    for shuffle in cell.shuffles:
        cell.master.apply_all([CommitMapOutput(shuffle, _output(map_id, worker.id)) for map_id in maps])
    return worker


def _noting(call: Callable[..., Any], steps: list[float]) -> Callable[..., Any]:
    def noted(*arguments: Any) -> Any:
        cpu = time.process_time()
        try:
            return call(*arguments)
        finally:
            steps.append(time.process_time() - cpu)

    return noted


def _timed(calls: Iterable[object]) -> dict[str, float]:
    """Processor time of each of these calls, which are made as they are taken."""
    spent: list[float] = []
    iterator: Iterator[object] = iter(calls)
    gc.disable()
    while True:
        begun = time.thread_time()
        try:
            next(iterator)
        except StopIteration:
            break
        spent.append(time.thread_time() - begun)
    gc.enable()
    spent.sort()
    at = {"p50_us": 0.5, "p99_us": 0.99}
    return {name: round(1e6 * spent[int(share * len(spent))], 1) for name, share in at.items()}


def worker_of(number: int) -> WorkerInfo:
    """One of many, four at each host."""
    labels = (f"rack=r{number // WORKERS_OF_A_RACK}",)
    return WorkerInfo(f"w-{number:012x}", f"host-{number // WORKERS_OF_A_HOST}", 9111, ROOM, 1, labels)


def _output(map_id: int, worker: str) -> MapOutput:
    return MapOutput(MapAttempt(map_id, 0), worker, Totals(1000, 1 << 26, 1 << 27, 1 << 20, map_id & 0xFFFFFFFF))


def _resident() -> int:
    """Bytes of memory of this process."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
