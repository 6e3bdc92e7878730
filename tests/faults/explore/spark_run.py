"""One job of Spark with its faults, and what must be true of it.

The law is that of `tests.faults.explore.records` for each reduce task: of each map it reads one attempt, which Spark
counts as succeeded, and the maps come in their order. Maps that ran again after they had succeeded are exactly those
that were lost, unless a fault has struck that may lose more.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bench.harness.cluster import holders, wait_until
from bench.harness.spark_driver import JobFailed, SparkDriver
from shuffle_server.store.file_cache import KEPT_SECONDS
from tests.faults.explore import records, spark_job
from tests.faults.explore.cluster import Hung, Scene
from tests.faults.explore.injector import Injector
from tests.faults.explore.ledger import Finding
from tests.faults.explore.records import Record, Size
from tests.faults.explore.schedule import Fault, Schedule
from tests.faults.explore.stall import Patience
from tests.faults.explore.strikes import back, strike, victim
from tests.spark import held

JOB_S = 300.0
OVER_S = 120.0
LOOK_S = 0.02
PAUSE_S = 0.3
"""For so long a task stands in its middle."""

Attempts = Sequence[tuple[int, int]]
"""Spark's id and the map of attempts that succeeded, as `spark_job.written_maps` has them."""


def wrong_reads(
    reads: Sequence[Sequence[Record]], run: int, size: Size, maps: range, attempts: Attempts
) -> list[Finding]:
    """What is wrong with the records that each reduce task has read."""
    allowed = {map: {attempt for attempt, of in attempts if of == map} for map in maps}
    found = []
    for partition, got in enumerate(reads):
        wrong = records.problems(got, run, 0, size, range(partition, partition + 1), allowed)
        wrong += records.maps_out_of_order(got)
        found += [Finding(each.kind, f"reduce task {partition}: {each.what}") for each in wrong]
    return found


def wrong_reruns(attempts: Attempts, lost: set[int]) -> list[Finding]:
    """Whether the maps that ran again after they had succeeded are those of the `lost` attempts."""
    must = Counter(map for attempt, map in attempts if attempt in lost)
    ran = Counter(map for _, map in attempts) - Counter({map for _, map in attempts})
    if must == ran:
        return []
    return [Finding("dropped", f"maps {sorted(ran.elements())} ran again, {sorted(must.elements())} were lost")]


class SparkRun:
    """One schedule. `findings` is what was wrong; `another` starts a second driver of the same name."""

    def __init__(
        self, schedule: Schedule, scene: Scene, driver: SparkDriver, run: int, another: Callable[[], SparkDriver]
    ) -> None:
        self.schedule, self.scene = schedule, scene
        self.findings: list[Finding] = []
        self._driver, self._number, self._another = driver, run, another
        self._size = Size(schedule.partitions, schedule.records, schedule.size)
        self._flags = scene.root / "flags"
        self._pending = list(schedule.faults)
        self._injector = Injector(scene)
        self._app = ""
        self._lost: set[int] = set()  # attempts
        self._gone: list[str] = []  # workers
        self._strikes: Mapping[str, Callable[[Scene, Fault], None]] = {
            "kill executor": self._kill_executor,
            "stop executor": self._stop_executor,
            "lose worker": self._lose_worker,
            "lose outputs": self._lose_outputs,
            "again": self._again,
        }

    def run(self) -> None:
        """To its end."""
        try:
            self._run()
        except JobFailed as failed:
            self._find("error", f"{failed}")
        except (TimeoutError, Hung) as hung:
            self._find("hang", f"{hung}\n{self.scene.stacks()}")
        finally:
            self._injector.close()
            self.findings += self._injector.failures()

    def _run(self) -> None:
        driver, run = self._driver, self._number
        self._app = driver.call(held.app_key, timeout=JOB_S)
        self._begin(driver, run)
        patience = Patience(JOB_S)
        while not driver.answered(LOOK_S) and not patience.is_over():
            self._strike("map")
            self._strike("reduce")
        reads = [driver.result(LOOK_S)]
        (self._flags / f"{run}" / "read-0").touch()
        self._strike("read")
        wait_until(self._injector.quiet, "the faults are over", OVER_S)
        self.findings += self._injector.heal()
        if not self._may_rerun:
            self._await_loss()
        reads.append(driver.call(spark_job.read, timeout=JOB_S, run=run))
        if self.schedule.restart:
            self.findings += self._injector.restart_all()
            reads.append(driver.call(spark_job.read, timeout=JOB_S, run=run))
        attempts = self._check(driver, run, reads)
        if not self._may_rerun:
            self.findings += wrong_reruns(attempts, self._lost)
        driver.configure({})  # the session ends before the servers do

    @property
    def _may_rerun(self) -> bool:
        return self.scene.may_lose or self.scene.may_end_run

    def _begin(self, driver: SparkDriver, run: int) -> None:
        flags = self._flags / f"{run}"
        flags.mkdir(parents=True)
        maps, size = self.schedule.maps, self._size
        driver.begin(spark_job.two_stages, run=run, flags=str(flags), maps=maps, size=size, pause=PAUSE_S)

    def _check(self, driver: SparkDriver, run: int, reads: Sequence[Sequence[Sequence[Record]]]) -> Attempts:
        attempts: Attempts = driver.call(spark_job.written_maps, timeout=JOB_S, run=run)
        for read in reads:
            self.findings += wrong_reads(read, run, self._size, range(self.schedule.maps), attempts)
        return attempts

    def _await_loss(self) -> None:
        """By Spark: else an executor that has read ahead might not miss what is gone."""
        said = {f"Flight Shuffle worker {worker} is gone" for worker in self._gone}
        log = self._driver.log
        wait_until(lambda: all(each in log.read_text(errors="replace") for each in said), f"Spark: {said}", OVER_S)

    # Faults.

    def _strike(self, event: str) -> None:
        """Begin those whose moment has come."""
        come = len(self._at(event))
        for fault in [fault for fault in self._pending if fault.event == event and fault.nth < come]:
            self._pending.remove(fault)
            self._injector.begin(fault, self._strikes.get(fault.kind, strike))

    def _at(self, event: str) -> list[Path]:
        """A file for each task that has come to its middle, the newest one last."""
        there = [flag for flag in (self._flags / f"{self._number}").glob(f"{event}-*") if not flag.suffix]
        return sorted(there, key=lambda flag: flag.stat().st_mtime_ns)

    def _kill_executor(self, scene: Scene, fault: Fault) -> None:
        self._signal_executor(fault, signal.SIGKILL)

    def _stop_executor(self, scene: Scene, fault: Fault) -> None:
        """It goes on late, when Spark counts it as lost or other executors have run its tasks, too."""
        self._signal_executor(fault, signal.SIGSTOP, signal.SIGCONT)

    def _signal_executor(self, fault: Fault, *signals: signal.Signals) -> None:
        """That of the task which came to its middle last."""
        process = int(self._at(fault.event)[-1].read_text())
        with suppress(ProcessLookupError):  # Spark has ended it
            for number in signals:
                os.kill(process, number)
                time.sleep(fault.amount)

    def _lose_worker(self, scene: Scene, fault: Fault) -> None:
        """It dies with its disks, and another one takes its place."""
        server = victim(scene.workers, fault)
        with server.lock:
            server.kill()
            [id] = {path.read_text().strip() for each in server.directories for path in each.rglob("worker-id")}
            for directory in server.directories:
                directory.rename(directory.with_name(f"{directory.name}-{id}"))
            held_by = holders(scene.server, self._app, 0)
            self._lost |= {output for output, worker in held_by.items() if worker == id}
            self._gone.append(id)
            back(scene, server)

    def _lose_outputs(self, scene: Scene, fault: Fault) -> None:
        attempts: Attempts = self._driver.call(spark_job.written_maps, timeout=JOB_S, run=self._number)
        for attempt, _ in random.Random(fault.amount).sample(attempts, 1 + fault.victim % len(attempts)):
            roots = [root / "worker" / "apps" for server in scene.workers for root in server.directories]
            for path in [path for root in roots for path in root.glob(f"*/*/{attempt}.*.out")]:
                path.unlink()
                self._lost.add(attempt)
        time.sleep(KEPT_SECONDS)  # a reader that comes earlier gets the open file

    def _again(self, scene: Scene, fault: Fault) -> None:
        """While the driver is stopped, another one runs a job under its name, and goes on beside it."""
        scene.may_end_run = True  # no heartbeat arrives
        try:
            self._driver.freeze()
            with self._another() as other:
                self._begin(other, run := self._number + 1)
                wait_until(lambda: any((self._flags / f"{run}").glob("map-?")), "the other driver is at work", JOB_S)
                time.sleep(fault.amount)
                self._driver.thaw()
                self._check(other, run, [other.result(JOB_S)])
        except (JobFailed, TimeoutError) as failed:
            self._find("error", f"the other driver of the name: {failed}")
        finally:
            self._driver.thaw()

    def _find(self, kind: str, what: str) -> None:
        self.findings.append(Finding(kind, what))
