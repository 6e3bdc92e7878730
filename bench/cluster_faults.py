"""kill -9 in a cluster, with an oracle: ``python -m bench.cluster_faults --rounds N --seed S --json FILE``.

Each round is an application whose maps are written by several threads, while a worker, the master or both are killed at
a random moment and started again. Then every committed output must read back as it was written, by the attempt that was
told it has won, nothing else may be visible, and when the application ends no file may be left.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.cluster import ClusterProcesses, wait_until
from bench.cluster_writers import write_all
from bench.server import ServerProcess
from shuffle_api.errors import MapOutputNotWritten
from shuffle_api.interfaces import OptionValue
from shuffle_api.testing.oracle import Workload, problems, read
from shuffle_plugins.remote import RemoteShuffle

VICTIMS = ("worker", "master", "both")
MOMENTS = ("write", "read")


@dataclass(frozen=True, slots=True)
class Round:
    """What happened: who was killed during what, how many attempts had to begin anew, and what was wrong."""

    seed: int
    victim: str
    moment: str
    delay_s: float
    new_attempts: int
    wrong: list[str]
    seconds: float


def run(cluster: ClusterProcesses, seed: int, *, workers: int, maps: int = 12, records: int = 3000) -> Round:
    """One round. Everything random comes from the seed, but for the threads' order."""
    chance = random.Random(seed)
    victim, moment, delay = chance.choice(VICTIMS), chance.choice(MOMENTS), chance.uniform(0.0, 0.6)
    started = time.monotonic()
    workload = Workload(seed, partitions=8, maps=maps, records=records, size=200)
    app = f"faults-{seed}"
    processes = _victims(cluster, victim, chance.randrange(workers))
    wrong: list[str] = []
    options: dict[str, OptionValue] = {"server": cluster.master.control, "timeout": 60, "retry": 60}
    options["push_bytes"] = 64 << 10  # so that a kill finds half of an output at the worker
    with RemoteShuffle(options) as plugin, plugin.master(app) as master:
        handle = master.register_shuffle(workload.partitions, maps)
        try:
            read(plugin, handle)
            wrong.append("a shuffle without a commit was read")
        except MapOutputNotWritten:
            pass
        if moment == "write":
            killer = threading.Thread(target=_kill, args=(processes, delay), name="killer")
            killer.start()
            winners = write_all(plugin, handle, workload)
            killer.join()
        else:
            winners = write_all(plugin, handle, workload)
        expected = workload.expected(winners, range(workload.partitions))
        if moment == "read":
            killer = threading.Thread(target=_kill, args=(processes, delay / 4), name="killer")
            killer.start()
            wrong += problems(expected, read(plugin, handle))
            killer.join()
        located = [output.output for output in master.map_outputs(handle)]
        if located != winners:
            wrong.append(f"committed are {located}, acknowledged were {winners}")
        wrong += problems(expected, read(plugin, handle))
    try:
        wait_until(lambda: not _files(cluster, app), f"no file of {app} is left")
    except TimeoutError:
        wrong.append(f"files are left: {', '.join(map(str, _files(cluster, app)))}")
    repeated = sum(winner.attempt for winner in winners)
    return Round(seed, victim, moment, round(delay, 3), repeated, wrong, round(time.monotonic() - started, 2))


def _victims(cluster: ClusterProcesses, victim: str, worker: int) -> list[ServerProcess]:
    chosen = {"worker": [cluster.workers[worker]], "master": [cluster.master]}
    return chosen.get(victim) or [cluster.master, cluster.workers[worker]]


def _kill(processes: Sequence[ServerProcess], delay: float) -> None:
    time.sleep(delay)
    for process in processes:
        process.kill()
    for process in processes:
        process.restart()


def _files(cluster: ClusterProcesses, app: str) -> list[Path]:
    return [
        path
        for worker in cluster.workers
        for path in (worker.data_dir / "worker").rglob("*")
        if path.is_file() and (app in path.parts or "trash" in path.parts)
    ]


def rounds(count: int, seed: int, workers: int = 2) -> list[Round]:
    """So many rounds, with seeds from `seed` on, of one cluster."""
    with tempfile.TemporaryDirectory(prefix="bench-cluster-faults-") as root:
        with ClusterProcesses(Path(root), workers) as cluster:
            return [run(cluster, seed + n, workers=workers) for n in range(count)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster_faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rounds there; default: standard output")
    given = parser.parse_args(arguments)
    done = rounds(given.rounds, given.seed, given.workers)
    failed = [each for each in done if each.wrong]
    report = {
        "rounds": len(done),
        "failed": len(failed),
        "kills": Counter(f"{each.victim} during {each.moment}" for each in done),
        "attempts_begun_anew": sum(each.new_attempts for each in done),
        "each": [asdict(each) for each in done],
    }
    text = json.dumps(report, indent=1)
    print(text) if given.json is None else given.json.write_text(text + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
