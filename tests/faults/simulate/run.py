"""Running one schedule from beginning to end."""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.faults.simulate import disk
from tests.faults.simulate.cluster import Cluster, Node
from tests.faults.simulate.disk import Disks
from tests.faults.simulate.faults import Faults
from tests.faults.simulate.job import Run
from tests.faults.simulate.locks import Here
from tests.faults.simulate.network import Network
from tests.faults.simulate.oracle import Oracle
from tests.faults.simulate.schedule import FAULTS_UNTIL, LATEST, Schedule
from tests.faults.simulate.scheduler import Process, Scheduler, Task

LONGEST = 150.0
"""Seconds after the last fault within which all jobs have ended; the longest wait of the product is 60."""


@dataclass
class Result:
    """How a schedule went. `hash` is that of its trace: equal for equal runs."""

    seed: int
    violations: list[str]
    hash: str
    steps: int
    seconds: float
    trace: list[str] = field(default_factory=list)


class _Trace(logging.Handler):
    """What happens, in order. Logs of the product are part of it when `keep`."""

    def __init__(self, root: str, keep: bool) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self.digest = hashlib.sha256()
        self._root, self._keep = root, keep

    def __call__(self, text: str) -> None:
        scheduler = Here.scheduler
        who = scheduler.current.stack[0].name if scheduler.current else ""
        line = f"{scheduler.now:9.4f} {scheduler.steps:6} {who:8} {text}".replace(self._root, "")
        self.digest.update(line.encode())
        if self._keep:
            self.lines.append(line)

    def emit(self, record: logging.LogRecord) -> None:
        scheduler = Here.scheduler
        who = scheduler.current.process.name if scheduler.current else ""
        text = record.getMessage().replace(self._root, "")
        self.lines.append(f"{scheduler.now:9.4f} {scheduler.steps:6} {who:8}   | {text}")


def simulate(schedule: Schedule, *, keep: bool = False, folder: str = "/dev/shm") -> Result:
    """Run it. `keep`: with its trace. For patched processes only (`patches`)."""
    root = f"{folder}/simulated-{os.getpid()}"
    trace = _Trace(root, keep)
    logger = logging.getLogger()
    logging.disable(logging.NOTSET if keep else logging.CRITICAL)
    if keep:
        logger.addHandler(trace)
        logger.setLevel(logging.INFO)
    scheduler = Here.scheduler = Scheduler(schedule.seed, schedule.shape.switching)
    Here.random = random.Random(f"bytes/{schedule.seed}")
    random.seed(f"jitter/{schedule.seed}")
    Here.network = Network(
        random.Random(f"network/{schedule.seed}"),
        schedule.shape.trouble,
        random.Random(f"lateness/{schedule.seed}"),
        schedule.shape.late,
        trace=trace,
    )
    disks = Disks(root)
    gc.disable()
    try:
        disks.remove()
        violations = _run(schedule, scheduler, disks, trace)
    finally:
        disk.use(None)
        logger.removeHandler(trace)
        scheduler.forget()
        Here.network = Network(random.Random(0))
        gc.collect()
        disk.close_rest()
        disks.remove()
    return Result(schedule.seed, violations, trace.digest.hexdigest()[:16], scheduler.steps, scheduler.now, trace.lines)


def _run(schedule: Schedule, scheduler: Scheduler, disks: Disks, trace: Callable[[str], None]) -> list[str]:
    cluster = Cluster(disks, schedule.shape, trace)
    disk.use(disks)
    oracle = Oracle(cluster, trace)
    for node in cluster.nodes.values():
        node.when_serving = lambda node: _serving(node, cluster, oracle)
    cluster.master.when_ended = lambda node: oracle.master_stands(still=True)
    Here.network.handled = oracle.handled
    Here.network.applied = oracle.applied
    # A worker in doubt about whether it had been given up begins anew: a commit under way may get lost.
    Here.network.join_unanswered = oracle.in_doubt

    def unexpected(task: Task, error: Exception) -> None:
        oracle.blame(f"{task.name}: {type(error).__name__}: {error}")

    scheduler.unexpected = unexpected
    faults = Faults(cluster, oracle, schedule.seed, trace)
    runs = [Run(job, number, oracle, schedule.seed) for number, job in enumerate(schedule.jobs)]
    world = Process("world")

    def main() -> None:
        cluster.start()
        for fault in schedule.faults:
            faults.arrange(fault)
        for run in sorted(runs, key=lambda run: run.job.start):
            scheduler.sleep(run.job.start - scheduler.now)
            run.begin()
        last = max((fault.at for fault in schedule.faults), default=0.0)
        scheduler.after(min(last + 15.0, FAULTS_UNTIL) - scheduler.now, faults.heal)
        while not all(run.over for run in runs):
            scheduler.sleep(0.5)
        faults.heal(for_good=True)
        scheduler.sleep(3.0 + (LATEST if schedule.shape.late else 0.0))
        if oracle.left():  # of a driver that crashed, or by a request that was carried out after its driver had ended
            scheduler.sleep(2 * schedule.shape.app_timeout + 4.0)
        oracle.nothing_left()
        oracle.same_after_replay()
        scheduler.end()

    scheduler.limit = FAULTS_UNTIL + LONGEST
    scheduler.spawn(world, main, "world")
    scheduler.run()
    if scheduler.trouble and not oracle.violations:
        waiting = ", ".join(run.driver.name for run in runs if not run.over)
        oracle.violations.append(f"hang: {scheduler.trouble}; not over: {waiting or 'none'}")
    return oracle.violations


def _serving(node: Node, cluster: Cluster, oracle: Oracle) -> None:
    if node is cluster.master:
        oracle.master_stands(still=False)
        oracle.master_started()
    if node is not cluster.nodes.get("master"):
        oracle.workers[node.server._data.id] = node
