"""kill -9 in a cluster, with an oracle: ``python -m bench.cluster_faults --rounds N --seed S --json FILE``.

Each round is an application whose maps are written by several threads, while a worker, the master or both are killed at
a random moment of a write, a commit, a read, a merge or a snapshot, and started again. Then every committed output must
read back as it was written, by the attempt that was told it has won, nothing else may be visible, and when the
application ends no file may be left.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.cluster import ClusterProcesses, wait_until
from bench.cluster_writers import write_all
from bench.ending import unwind_when_told_to_end
from bench.files import files_below
from bench.server import ServerProcess
from shuffle_api.errors import MapOutputNotWritten
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.testing.oracle import Workload, problems, read
from shuffle_plugins.remote import RemoteShuffle

VICTIMS = ("worker", "master", "both")
MOMENTS = {
    "write": VICTIMS,
    "commit": VICTIMS,
    "read": VICTIMS,
    "merge": ("worker", "both"),
    "snapshot": ("master", "both"),
}
"""What a kill may come in the middle of, and of whom."""
MERGED_MAPS = 96  # small outputs enough that each of two workers merges its own


@dataclass(frozen=True, slots=True)
class Round:
    """What happened: who was killed during what, how many attempts had to begin anew, and what was wrong."""

    seed: int
    victim: str
    moment: str
    delay_s: float
    half_snapshot: bool
    """The kill left a snapshot that was not complete."""
    new_attempts: int
    wrong: list[str]
    seconds: float


def run(cluster: ClusterProcesses, seed: int, *, workers: int, records: int = 3000) -> Round:
    """One round. Everything random comes from the seed, but for the threads' order."""
    chance = random.Random(seed)
    moment = chance.choice(tuple(MOMENTS))
    victim, delay = chance.choice(MOMENTS[moment]), chance.uniform(0.0, 0.6)
    started = time.monotonic()
    maps = MERGED_MAPS if moment == "merge" else 12
    workload = Workload(seed, partitions=8, maps=maps, records=12 * records // maps, size=200)
    app = f"faults-{seed}"
    kill = Kill(cluster, _victims(cluster, victim, chance.randrange(workers)))
    wrong: list[str] = []
    options: dict[str, OptionValue] = {"server": cluster.master.control, "timeout": 240, "retry": 240}
    options["push_bytes"] = 64 << 10  # so that a kill finds half of an output at the worker
    options |= {"hand_over_from": 0} if seed % 2 else {"hand_over": "off"}  # by file and over the wire, in turn
    with RemoteShuffle(options) as plugin, plugin.master(app) as master:
        handle = master.register_shuffle(workload.partitions, maps)
        try:
            read(plugin, handle)
            wrong.append("a shuffle without a commit was read")
        except MapOutputNotWritten:
            pass
        doomed = MapAttempt(chance.randrange(maps), 0)
        if moment == "write":
            kill.after(delay)
        elif moment == "snapshot":
            kill.in_a_snapshot(delay)
        winners = write_all(
            plugin,
            handle,
            workload,
            lambda attempt: kill.after(delay / 20) if (moment, attempt) == ("commit", doomed) else None,
        )
        expected = workload.expected(winners, range(workload.partitions))
        if moment == "merge":  # the second pull of many small outputs has them merged
            wrong += problems(expected, read(plugin, handle))
            kill.after(delay / 4)
            wrong += problems(expected, read(plugin, handle))
        elif moment == "read":
            kill.after(delay / 4)
            wrong += problems(expected, read(plugin, handle))
        kill.wait()
        located = [output.output for output in master.map_outputs(handle)]
        if located != winners:
            wrong.append(f"committed are {located}, acknowledged were {winners}")
        wrong += problems(expected, read(plugin, handle))
    try:
        wait_until(lambda: not _files(cluster, app), f"no file of {app} is left")
    except TimeoutError:
        wrong.append(f"files are left: {', '.join(map(str, _files(cluster, app)))}")
    repeated = sum(winner.attempt for winner in winners)
    seconds = round(time.monotonic() - started, 2)
    return Round(seed, victim, moment, round(delay, 3), kill.half_snapshot, repeated, wrong, seconds)


class Kill:
    """One kill -9 of some processes, and their restart; in a thread of its own, once."""

    def __init__(self, cluster: ClusterProcesses, processes: Sequence[ServerProcess]) -> None:
        self._registry, self._processes = cluster.master.data_dir, processes
        self._thread: threading.Thread | None = None
        self.half_snapshot = False

    def after(self, seconds: float) -> None:
        """Kill so much later."""
        self._start(lambda: time.sleep(seconds))

    def in_a_snapshot(self, seconds: float) -> None:
        """So much later wait until the master is writing a snapshot, and kill then; after a second in any case."""

        def moment() -> None:
            time.sleep(seconds)
            give_up = time.monotonic() + 1.0
            while not self._snapshot_begun() and time.monotonic() < give_up:
                pass  # it takes a few milliseconds

        self._start(moment)

    def wait(self) -> None:
        """Until all run again."""
        assert self._thread is not None
        self._thread.join()

    def _start(self, wait: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=self._run, args=(wait,), name="killer")
        self._thread.start()

    def _run(self, wait: Callable[[], None]) -> None:
        wait()
        for process in self._processes:
            process.kill()
        self.half_snapshot = self._snapshot_begun()
        for process in self._processes:
            process.restart()

    def _snapshot_begun(self) -> bool:
        return any(path.name.startswith("snapshot-") and path.suffix == ".new" for path in files_below(self._registry))


def _victims(cluster: ClusterProcesses, victim: str, worker: int) -> list[ServerProcess]:
    chosen = {"worker": [cluster.workers[worker]], "master": [cluster.master]}
    return chosen.get(victim) or [cluster.master, cluster.workers[worker]]


def _files(cluster: ClusterProcesses, app: str) -> list[Path]:
    return [
        path
        for worker in cluster.workers
        for path in files_below(worker.data_dir / "worker")
        if app in path.parts or "trash" in path.parts
    ]


def rounds(count: int, seed: int, workers: int = 2) -> list[Round]:
    """So many rounds, with seeds from `seed` on, of one cluster."""
    with tempfile.TemporaryDirectory(prefix="bench-cluster-faults-") as root:
        # A snapshot after each operation: the registry of a round is small, and a kill is to find it at that.
        with ClusterProcesses(Path(root), workers, master=("--snapshot-every", "1")) as cluster:
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
        "half_snapshots": sum(each.half_snapshot for each in done),
        "attempts_begun_anew": sum(each.new_attempts for each in done),
        "each": [asdict(each) for each in done],
    }
    text = json.dumps(report, indent=1)
    print(text) if given.json is None else given.json.write_text(text + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    unwind_when_told_to_end()
    raise SystemExit(main())
