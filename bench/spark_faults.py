"""Kills in the middle of Spark jobs, by the dice of a seed: ``python -m bench.spark_faults``.

A standalone cluster of Spark with two executors, a Flight Shuffle master and two workers, each a process, and a job of
two stages that is run again and again. In the middle of a task of one of its phases (which, and of how many, the seed
says) one of these happens:

* ``executor``: ``kill -9`` of the executor that runs it. Spark starts another.
* ``worker``: ``kill -9`` of a worker, which is started again at once.
* ``worker for good``: ``kill -9`` of a worker, whose files go with it. Another one joins.
* ``master``: ``kill -9`` of the master, which is started again at once.

In the first half of the runs executors and workers hand over files, in the second half all goes over the wire. With
``--one-server`` master and worker are one process, and what happens is ``executor``, ``server`` (killed, and started
again at once) and ``outputs``: between the phases, some map outputs vanish from the server's disk.

Each answer must be right, and the maps that ran again after they had succeeded must be exactly those that were lost:
none but for ``worker for good`` and ``outputs``. The JSON goes to standard output; the exit status is 1 if a run was
not as it must be.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from bench import machine, spark_faults_cluster, spark_faults_server
from bench.ending import unwind_when_told_to_end
from bench.spark_faults_run import Run
from bench.spark_shuffle import say
from tests.spark import observe

SETTINGS = observe.WITH_UI | {"spark.executor.memory": "1g", "spark.executor.cores": "2", "spark.task.maxFailures": "8"}


class Scene(Protocol):
    """What runs happen to."""

    def run(self, number: int, dice: random.Random) -> Run: ...


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_faults", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--runs", type=int, default=100, help="default: 100")
    parser.add_argument("--seed", type=int, default=1, help="of the dice (default: 1)")
    parser.add_argument("--one-server", action="store_true", help="master and worker are one process")
    parser.add_argument("--json", metavar="FILE", help="write the JSON to a file too, after each run")
    options = parser.parse_args(arguments)
    done: list[Run] = []
    with tempfile.TemporaryDirectory(prefix="spark-faults-") as scratch:
        run_all = one_server if options.one_server else cluster
        for run in run_all(options.runs, random.Random(options.seed), Path(scratch)):
            say(f"{run.number}: {run.fault} in {run.phase} after {run.after}: {'ok' if run.as_it_must_be else run}")
            done.append(run)
            if options.json:
                Path(options.json).write_text(report(done, options.seed))
    print(report(done, options.seed), end="")
    return int(not all(run.as_it_must_be for run in done))


def report(runs: list[Run], seed: int) -> str:
    """The JSON."""
    content: dict[str, Any] = {
        "benchmark": "spark_faults",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine.facts(),
        "seed": seed,
        "faults": Counter(f"{run.fault} in {run.phase}" for run in runs),
        "maps_lost": sum(run.maps_lost for run in runs),
        "maps_rerun": sum(run.maps_rerun for run in runs),
        "not_as_they_must_be": [run.number for run in runs if not run.as_it_must_be],
        "runs": [asdict(run) for run in runs],
    }
    return json.dumps(content, indent=2) + "\n"


def one_server(runs: int, dice: random.Random, scratch: Path) -> Iterator[Run]:
    """All the runs, of one server."""
    with spark_faults_server.scene(scratch, SETTINGS) as scene:
        yield from _runs(scene, range(runs), dice)


def cluster(runs: int, dice: random.Random, scratch: Path) -> Iterator[Run]:
    """All the runs, of a master and workers: half of them with hand-over, half of them over the wire."""
    numbers = range(runs)
    for hand_over, half in ((True, numbers[: runs // 2]), (False, numbers[runs // 2 :])):
        with spark_faults_cluster.scene(scratch / f"hand-over-{hand_over}", SETTINGS, hand_over) as scene:
            yield from _runs(scene, half, dice)


def _runs(scene: Scene, numbers: Iterable[int], dice: random.Random) -> Iterator[Run]:
    for number in numbers:
        yield scene.run(number, dice)


if __name__ == "__main__":
    unwind_when_told_to_end()
    sys.exit(main())
