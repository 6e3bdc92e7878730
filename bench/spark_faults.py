"""Kills in the middle of Spark jobs, by the dice of a seed: ``python -m bench.spark_faults``.

A standalone cluster of Spark with two executors, a server, and a job of two stages that is run again and again. In the
middle of a task of one of its phases (which, and of how many, the seed says) one of these happens:

* ``executor``: ``kill -9`` of the executor that runs it. Spark starts another.
* ``server``: ``kill -9`` of the server, which is started again at once.
* ``outputs``: between the phases, some map outputs vanish from the server's disk.

Each answer must be right, and the maps that ran again after they had succeeded must be exactly those that were lost:
none but for ``outputs``. The JSON goes to standard output; the exit status is 1 if a run was not as it must be.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import machine, spark_faults_job
from bench.server import ServerProcess
from bench.spark import local_conf
from bench.spark_driver import SparkDriver
from bench.spark_shuffle import say
from shuffle_plugins.spark import spark_conf
from tests.spark import held, observe
from tests.spark.standalone import Standalone

FAULTS = (("executor", "map"), ("executor", "reduce"), ("server", "map"), ("server", "reduce"), ("outputs", "between"))
DEADLINE_S = 600.0
SIZE = {"records": 16_000, "maps": 8, "partitions": 4}
# A reduce stage may learn of one lost output per attempt, and Spark grants it four.
MOST = {"map": SIZE["maps"], "reduce": SIZE["partitions"], "between": 3}
CLUSTER = observe.WITH_UI | {"spark.executor.memory": "1g", "spark.executor.cores": "2", "spark.task.maxFailures": "8"}


@dataclass(frozen=True, slots=True)
class Run:
    """One job with one fault in it. ``after``: tasks in their middle when it happened, or outputs that vanished."""

    number: int
    fault: str
    phase: str
    after: int
    seconds: float
    right: bool
    maps_lost: int
    maps_rerun: int

    @property
    def as_it_must_be(self) -> bool:
        return self.right and self.maps_lost == self.maps_rerun


@dataclass(frozen=True, slots=True)
class Scene:
    """What the runs happen to; ``scratch`` is theirs."""

    driver: SparkDriver
    server: ServerProcess
    scratch: Path

    def run(self, number: int, dice: random.Random) -> Run:
        """One job with a fault that the dice choose. Each fault and phase comes once in five runs."""
        fault, phase = FAULTS[number % len(FAULTS)]
        after = dice.randint(1, MOST[phase])
        group, started = f"run-{number}", time.monotonic()
        if fault == "outputs":
            answer, rerun = self._lose_outputs(group, dice.sample(range(SIZE["maps"]), after))
        else:
            answer = self._interrupt(group, fault, phase, after)
            rerun = len(self.driver.call(spark_faults_job.written_maps, group=group)) - SIZE["maps"]
        right = answer == held.expected(SIZE["records"], SIZE["partitions"])
        lost = after if fault == "outputs" else 0
        return Run(number, fault, phase, after, round(time.monotonic() - started, 2), right, lost, rerun)

    def _interrupt(self, group: str, fault: str, phase: str, after: int) -> list[int]:
        flags = self.scratch / group
        flags.mkdir()
        self.driver.begin(spark_faults_job.two_stages, group=group, flags=str(flags), pause=0.3, **SIZE)
        deadline = time.monotonic() + DEADLINE_S
        while len(there := [flag for flag in flags.glob(f"{phase}-*") if flag.suffix == ""]) < after:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(there)} of {after} {phase} tasks came to their middle in {DEADLINE_S:.0f} s")
            time.sleep(0.02)
        if fault == "server":
            self.server.kill()
            self.server.restart()
        else:
            newest = max(there, key=lambda flag: flag.stat().st_mtime_ns)
            os.kill(int(newest.read_text()), signal.SIGKILL)
        answer: list[int] = self.driver.result(DEADLINE_S)
        return answer

    def _lose_outputs(self, group: str, victims: list[int]) -> tuple[list[int], int]:
        self.driver.call(spark_faults_job.write, group=f"{group}-write", **SIZE)
        written = self.driver.call(spark_faults_job.written_maps, group=f"{group}-write")
        paths = [self._output(task) for task, index in written if index in victims]
        for path in paths:
            path.unlink()
        answer: list[int] = self.driver.call(spark_faults_job.read, timeout=DEADLINE_S, group=f"{group}-read")
        again = self.driver.call(spark_faults_job.written_maps, group=f"{group}-read")
        return answer, len(again)

    def _output(self, task: int) -> Path:
        """Spark's map ids are its task attempt ids; they are unique in an application, and there is but one."""
        [found] = (self.server.data_dir / "worker" / "apps").glob(f"*/*/{task}.out")
        return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_faults", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=100, help="default: 100")
    parser.add_argument("--seed", type=int, default=1, help="of the dice (default: 1)")
    parser.add_argument("--json", metavar="FILE", help="write the JSON to a file too")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="spark-faults-") as scratch:
        runs = run_all(options.runs, options.seed, Path(scratch))
    failed = [run.number for run in runs if not run.as_it_must_be]
    report: dict[str, Any] = {
        "benchmark": "spark_faults",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.facts(),
        "seed": options.seed,
        "not_as_they_must_be": failed,
        "runs": [asdict(run) for run in runs],
    }
    text = json.dumps(report, indent=2)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n")
    return int(bool(failed))


def run_all(runs: int, seed: int, scratch: Path) -> list[Run]:
    """Start cluster, server and driver, and do all the runs."""
    dice = random.Random(seed)
    done = []
    with ExitStack() as running:
        server = running.enter_context(ServerProcess(scratch / "data", scratch / "server.log"))
        cluster = running.enter_context(Standalone(scratch, cores=2))
        conf = local_conf(scratch) | CLUSTER | spark_conf(server.control, fallback="never")
        driver = running.enter_context(SparkDriver(conf | {"spark.master": cluster.url}, scratch / "spark.log"))
        scene = Scene(driver, server, scratch)
        for number in range(runs):
            run = scene.run(number, dice)
            say(f"{run.number}: {run.fault} in {run.phase} after {run.after}: {'ok' if run.as_it_must_be else run}")
            done.append(run)
    return done


if __name__ == "__main__":
    sys.exit(main())
