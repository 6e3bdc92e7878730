"""How long it takes to recover a registry."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

from bench.harness.apart import at_once
from bench.registry.load import MAPS, PARTITIONS, output
from bench.registry.master import WORKER
from shuffle_api.ids import ShuffleId
from shuffle_api.registry.operations import CommitMapOutput, Operation, RegisterApp, RegisterShuffle, RegisterWorker
from shuffle_api.values import ShuffleSpec
from shuffle_server.master.files import LocalDirectory
from shuffle_server.master.master import Master
from shuffle_server.master.recovery import recover

APP = "recovery"
GROUP = 16  # commits of one frame: what group commit makes of many clients
TIMEOUT_S = 300.0


def measure(directory: Path, operations: int) -> dict[str, Any]:
    """Write so many operations, then recover them from the log, and again from a snapshot."""
    directory.mkdir()
    master = Master(directory, snapshot_every=1 << 60)
    _fill(master, operations)
    master.close()
    log_bytes = _size(directory)
    from_log = [_in_a_fresh_process(directory) for _ in range(3)]
    master = Master(directory, snapshot_every=1 << 60)
    started = time.perf_counter()
    master.materialize()
    making = time.perf_counter() - started
    master.close()
    from_snapshot = [_in_a_fresh_process(directory) for _ in range(3)]
    return {
        "operations": operations,
        "operations_per_frame": GROUP,
        "log_bytes": log_bytes,
        "from_log": from_log,
        "from_snapshot": from_snapshot,
        "making_a_snapshot_s": round(making, 3),
    }


def _fill(master: Master, operations: int) -> None:
    begin: list[Operation] = [RegisterApp(APP, APP, ""), RegisterWorker(WORKER)]
    shuffles = -(-operations // MAPS)
    begin += [RegisterShuffle(ShuffleSpec(ShuffleId(APP, n), PARTITIONS, MAPS)) for n in range(shuffles)]
    master.apply_all(begin[:operations])
    commits = [divmod(n, MAPS) for n in range(max(0, operations - len(begin)))]
    for first in range(0, len(commits), GROUP):
        master.apply_all(
            [
                CommitMapOutput(ShuffleId(APP, shuffle), output(map_id, WORKER.id))
                for shuffle, map_id in commits[first : first + GROUP]
            ]
        )


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def _in_a_fresh_process(directory: Path) -> dict[str, float]:
    return at_once(recovered, [(directory,)], TIMEOUT_S)[0]


def recovered(directory: Path) -> dict[str, float]:
    """What it takes to recover the registry of a directory."""
    started, cpu = time.perf_counter(), time.process_time()
    recovered = recover(LocalDirectory(directory))
    return {
        "seconds": round(time.perf_counter() - started, 3),
        "cpu_s": round(time.process_time() - cpu, 3),
        "replayed": recovered.replayed,
        "lsn": recovered.lsn,
        "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
    }
