"""What must be true of one job of Spark with a fault in it, and how the fault comes into its middle."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.harness.spark_driver import SparkDriver
from tests.faults.explore import spark_job
from tests.spark import held

DEADLINE_S = 300.0
SIZE = {"records": 16_000, "maps": 8, "partitions": 4}
MOST = {"map": SIZE["maps"], "reduce": SIZE["partitions"]}
EXPECTED = held.expected(SIZE["records"], SIZE["partitions"])


@dataclass(frozen=True, slots=True)
class Run:
    """One job with one fault in it."""

    right: bool
    maps_lost: int
    maps_rerun: int
    others_rerun: int = 0
    """Of the maps that ran again, those that were not lost, and those that ran more often than they were."""

    @property
    def as_it_must_be(self) -> bool:
        return self.right and self.maps_lost == self.maps_rerun and not self.others_rerun


def others(lost: Collection[int], rerun: Collection[int]) -> int:
    """How many of the maps that ran again need not have."""
    return (Counter(rerun) - Counter(lost)).total()


def reruns(written: Sequence[tuple[int, int]]) -> list[int]:
    """The maps that ran again after they had succeeded, of `spark_job.written_maps`."""
    return sorted((Counter(index for _, index in written) - Counter(range(SIZE["maps"]))).elements())


def begin(driver: SparkDriver, flags: Path, group: str, phase: str, after: int) -> list[Path]:
    """Start the job and return when so many tasks of a phase have come to their middle: a file of each."""
    flags.mkdir()
    driver.begin(spark_job.two_stages, group=group, flags=str(flags), pause=0.3, **SIZE)
    deadline = time.monotonic() + DEADLINE_S
    while len(there := [flag for flag in flags.glob(f"{phase}-*") if flag.suffix == ""]) < after:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(there)} of {after} {phase} tasks came to their middle in {DEADLINE_S:.0f} s")
        time.sleep(0.02)
    return there


def kill_executor(there: Sequence[Path]) -> None:
    """``kill -9`` of the one that runs the task which came to its middle last."""
    newest = max(there, key=lambda flag: flag.stat().st_mtime_ns)
    os.kill(int(newest.read_text()), signal.SIGKILL)
