"""A standalone cluster of Spark: a master and two workers, each a JVM. The workers have hosts of their own.

Spark starts a speculative copy on another host only, so `local-cluster`, whose workers share one, has none.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from bench.harness.spark_driver import SOURCE_ROOTS

READY_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
JOINED = re.compile(r"Successfully registered with master (\S+)")
LOOPBACK: Mapping[str, Sequence[str]] = {"127.0.0.1": (), "127.0.0.2": ()}


class Standalone:
    """A context manager; ``url`` is for ``spark.master``. Each worker has so many cores and so much memory.

    ``hosts`` are the workers' addresses, each with what goes before its command, to run it elsewhere; the master is at
    the first one.
    """

    def __init__(
        self,
        directory: Path,
        *,
        cores: int,
        memory: str = "1g",
        hosts: Mapping[str, Sequence[str]] = LOOPBACK,
    ) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            first, *_ = hosts
            log = self._start("master", (), "master.Master", "--host", first, "--port", "0", "--webui-port", "0")
            self.url = self._await(log, MASTER)
            size = ("--cores", str(cores), "--memory", memory, "--webui-port", "0", "--work-dir", f"{directory}/work")
            logs = [
                self._start(f"worker-{host}", prefix, "worker.Worker", "--host", host, *size, self.url)
                for host, prefix in hosts.items()
            ]
            for log in logs:
                self._await(log, JOINED)
        except BaseException:
            self.stop()
            raise

    def _start(self, name: str, prefix: Sequence[str], main: str, *arguments: str) -> Path:
        log = self._directory / f"{name}.log"
        environment = os.environ | {"SPARK_LOCAL_DIRS": str(self._directory), "SPARK_DAEMON_MEMORY": "256m"}
        environment["PYTHONPATH"] = os.pathsep.join(map(str, SOURCE_ROOTS))  # of the executors' Python workers
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*prefix, str(SPARK_CLASS), f"org.apache.spark.deploy.{main}", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,  # a worker's executors are in its group
            )
        self._processes.append(process)
        return log

    def _await(self, log: Path, said: re.Pattern[str]) -> str:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while (found := said.search(log.read_text(errors="replace"))) is None:
            if time.monotonic() > deadline or any(process.poll() is not None for process in self._processes):
                raise TimeoutError(f"{said.pattern} is not in {log.name}: {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.1)
        return found[1]

    def stop(self) -> None:
        for process in reversed(self._processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it ended by itself
            process.wait(STOP_TIMEOUT_S)

    def __enter__(self) -> Standalone:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
