"""Jobs of Spark with one server, which is master and worker in one process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.harness.server import ServerProcess
from bench.harness.spark import local_conf
from bench.harness.spark_driver import SparkDriver
from shuffle_plugins.spark import spark_conf
from tests.faults.explore import spark_job
from tests.faults.explore.schedule import Fault
from tests.faults.explore.spark_run import DEADLINE_S, EXPECTED, SIZE, Run, begin, kill_executor, others, reruns
from tests.spark.standalone import Standalone


@dataclass(frozen=True, slots=True)
class ServerScene:
    """What the runs happen to; ``scratch`` is theirs."""

    driver: SparkDriver
    server: ServerProcess
    scratch: Path

    def run(self, group: str, fault: Fault) -> Run:
        """One job with a fault in it."""
        lost: list[int] = []
        if fault.kind == "outputs":
            lost = random.Random(f"{fault}").sample(range(SIZE["maps"]), fault.nth)
            answer, rerun = self._lose_outputs(group, lost)
        else:
            answer = self._interrupt(group, fault)
            rerun = reruns(self.driver.call(spark_job.written_maps, group=group))
        return Run(answer == EXPECTED, len(lost), len(rerun), others(lost, rerun))

    def _interrupt(self, group: str, fault: Fault) -> list[int]:
        there = begin(self.driver, self.scratch / group, group, fault.event, fault.nth)
        if fault.kind == "server":
            self.server.kill()
            self.server.restart()
        else:
            kill_executor(there)
        answer: list[int] = self.driver.result(DEADLINE_S)
        return answer

    def _lose_outputs(self, group: str, victims: list[int]) -> tuple[list[int], list[int]]:
        self.driver.call(spark_job.write, group=f"{group}-write", **SIZE)
        written = self.driver.call(spark_job.written_maps, group=f"{group}-write")
        paths = [self._output(task) for task, index in written if index in victims]
        for path in paths:
            path.unlink()
        answer: list[int] = self.driver.call(spark_job.read, timeout=DEADLINE_S, group=f"{group}-read")
        again = self.driver.call(spark_job.written_maps, group=f"{group}-read")
        return answer, [index for _, index in again]

    def _output(self, task: int) -> Path:
        """Spark's map ids are its task attempt ids; they are unique in an application, and there is but one."""
        [found] = (self.server.data_dir / "worker" / "apps").glob(f"*/*/{task}.*.out")
        return found


@contextmanager
def scene(scratch: Path, settings: dict[str, str]) -> Iterator[ServerScene]:
    """Start the server, the cluster of Spark and the driver."""
    with ExitStack() as running:
        server = running.enter_context(ServerProcess(scratch / "data", scratch / "server.log"))
        spark = running.enter_context(Standalone(scratch, cores=2))
        conf = local_conf(scratch) | settings | spark_conf(server.control, fallback="never")
        driver = running.enter_context(SparkDriver(conf | {"spark.master": spark.url}, scratch / "spark.log"))
        yield ServerScene(driver, server, scratch)
