"""Jobs of Spark with a master and two workers, each a process of its own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.harness.cluster import ClusterProcesses, holders, wait_until
from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from shuffle_plugins.spark import spark_conf
from tests.faults.explore import spark_job
from tests.faults.explore.schedule import Fault
from tests.faults.explore.spark_run import DEADLINE_S, EXPECTED, Run, begin, kill_executor, others, reruns
from tests.spark.standalone import Standalone

WORKERS = 2
# Longer than a worker takes to start again, which is then not given up.
WORKER_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class ClusterScene:
    """What the runs happen to; ``scratch`` is theirs."""

    driver: SparkDriver
    cluster: ClusterProcesses
    scratch: Path

    def run(self, group: str, fault: Fault) -> Run:
        """One job with a fault in it.

        A second job reads the whole shuffle at the end, so that a reader misses every lost map output.
        """
        victim = self.cluster.workers[fault.victim % len(self.cluster.workers)]
        there = begin(self.driver, self.scratch / group, group, fault.event, fault.nth)
        gone: set[int] = set()
        if fault.kind == "executor":
            kill_executor(there)
        elif fault.kind == "worker for good":
            gone = self._lose(victim)
        else:
            process = self.cluster.master if fault.kind == "master" else victim
            process.kill()
            process.restart()
        right = self.driver.result(DEADLINE_S) == EXPECTED
        if fault.kind == "worker for good":
            wait_until(lambda: victim.worker not in self.cluster.worker_ids(), "the worker is given up")
            # Spark, too: else an executor that has read ahead might not miss what is lost.
            said = f"Flight Shuffle worker {victim.worker} is gone"
            wait_until(lambda: said in self.driver.log.read_text(errors="replace"), "Spark has given up the worker")
        right &= self.driver.call(spark_job.read, timeout=DEADLINE_S, group=group) == EXPECTED
        written = self.driver.call(spark_job.written_maps, group=group)
        lost, rerun = [index for task, index in written if task in gone], reruns(written)
        return Run(right, len(lost), len(rerun), others(lost, rerun))

    def _lose(self, victim: ServerProcess) -> set[int]:
        """A worker dies with its disk, and another one joins. Which map outputs it had, by Spark's map ids."""
        victim.kill()
        victim.data_dir.rename(disk := victim.data_dir.with_suffix(".gone"))  # at once, whoever still writes there
        shutil.rmtree(disk, ignore_errors=True)
        master = self.cluster.master
        newest = max((each.shuffle for each in master.status().shuffles), key=lambda key: key.shuffle)
        held_by = holders(master.control, newest.app, newest.shuffle)
        self.cluster.workers.remove(victim)
        self.cluster.workers.append(self.cluster.add_worker())
        return {output for output, worker in held_by.items() if worker == victim.worker}


@contextmanager
def scene(scratch: Path, settings: dict[str, str], hand_over: bool) -> Iterator[ClusterScene]:
    """Start the master, the workers, the cluster of Spark and the driver."""
    (scratch / "spark").mkdir(parents=True)
    with ExitStack() as running:
        cluster = running.enter_context(ClusterProcesses(scratch, WORKERS, worker_timeout=WORKER_TIMEOUT_S))
        spark = running.enter_context(Standalone(scratch / "spark", cores=2))
        options = {} if hand_over else {"handOver": "off"}
        flight = spark_conf(cluster.master.control, fallback="never", options=options)
        conf = local_conf(scratch) | settings | flight | {"spark.master": spark.url}
        driver = running.enter_context(SparkDriver(conf, scratch / "spark.log"))
        yield ClusterScene(driver, cluster, scratch)
