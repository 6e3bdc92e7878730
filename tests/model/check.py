"""The model against the program: the same job on four workers, once simulated and once real.

Compared are bytes, blocks, and calls to the master by method, as the processes count them. The time that map tasks took
is measured in the real run and given to the model; what depends on it (an answer of the master to where outputs go is
good for five seconds) can be compared then.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.harness.cluster import ClusterProcesses, wait_until
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import OptionValue
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle
from shuffle_server.store import page_cache
from shuffle_server.store.pending_outputs import LEAST_OUTPUTS
from tests.model.cluster import simulated
from tests.model.parameters import MIB, Parameters
from tests.shuffle_server.observe.helpers import Scrape

WITHIN = 0.2
CALLS = 3  # threads that begin at once ask where to push, each for itself, before the first has its answer
SETTLE_SECONDS = 15.0  # in which compaction ends
STEADY = (
    *(f"calls of {method}" for method in ("RegisterApp", "RegisterShuffle", "Locate", "UnregisterApp", "Join")),
    *("pushed_bytes", "pushed_blocks", "pulled_bytes", "pulled_blocks", "rewritten_bytes", "compacted_outputs"),
)
"""Figures that do not depend on how fast the machine is."""
METHODS = ("RegisterApp", "RegisterShuffle", "Place", "Commits", "Locate", "UnregisterApp", "Join")
JOB = Parameters(
    workers=4,
    apps=1,
    maps=96,
    partitions=50,
    block=16 << 10,
    slots=8,
    executor_slots=8,
    map_seconds=0.2,
    device="1000:150",
    page_cache=1,
    kill=0,
    stragglers=0.0,
    locate=1,
    linger=20.0,
)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one side counted; `calls` by method, `beats` per second and worker."""

    calls: Mapping[str, float]
    beats: float
    pushed_bytes: float
    pushed_blocks: float
    pulled_bytes: float
    pulled_blocks: float
    rewritten_bytes: float
    compacted_outputs: float
    compacted_files: float

    def rows(self) -> dict[str, float]:
        named = {f"calls of {method}": self.calls.get(method, 0.0) for method in METHODS}
        others = {name: getattr(self, name) for name in self.__slots__ if name not in ("calls", "beats")}
        named["calls of these methods"] = sum(named.values())
        return {**named, "heartbeats per worker and second": self.beats, **others}


def compare(scratch: Path | None, job: Parameters = JOB) -> dict[str, Any]:
    """Both sides, and whether all figures are within 20 %."""
    with tempfile.TemporaryDirectory(prefix="model-check-", dir=scratch) as folder:
        real, seconds = _real(job, Path(folder))
        model = _model(replace(job, map_seconds=seconds), Path(folder))
    rows = {}
    for name, value in real.rows().items():
        simulated_value = model.rows()[name]
        most = max(WITHIN * max(value, simulated_value), CALLS if name.startswith("calls") else 0)
        equal = abs(simulated_value - value) <= most
        rows[name] = {"real": round(value, 3), "model": round(simulated_value, 3), "equal": equal}
    return {"workers": job.workers, "figures": rows, "equal": all(row["equal"] for row in rows.values())}


def table(found: Mapping[str, Any]) -> str:
    """For people."""
    lines = [f"{'':36} {'real':>14} {'model':>14}"]
    for name, row in found["figures"].items():
        verdict = "" if row["equal"] else f"  more than {WITHIN:.0%} apart"
        lines.append(f"{name:36} {row['real']:14,.6g} {row['model']:14,.6g}{verdict}")
    return "\n".join(lines)


# ------------------------------------------------------------------ the program


class _Processes:
    """A master and workers that count what they do."""

    def __init__(self, job: Parameters, folder: Path, stack: ExitStack) -> None:
        metrics = ("--metrics-listen", "127.0.0.1:0")
        disk = ("--device", job.device, "--page-cache", str(job.page_cache * MIB))
        self.cluster = stack.enter_context(ClusterProcesses(folder, 0, master=metrics))
        for _ in range(job.workers):
            self.cluster.workers.append(self.cluster.add_worker("", *metrics, *disk))
        self.begun = time.monotonic()
        self._beats = self.master.get("Beat", 0.0)

    @property
    def master(self) -> dict[str, float]:
        """Calls by method."""
        scrape = Scrape(self.cluster.master.metrics)
        name = "control_seconds_count"
        return {method: scrape(name, method=method) for method in scrape.labels(name, "method")}

    def figures(self, files: int) -> Figures:
        calls = self.master
        scrapes = [Scrape(worker.metrics) for worker in self.cluster.workers]
        beats = (calls.get("Beat", 0.0) - self._beats) / (time.monotonic() - self.begun) / len(scrapes)

        def total(name: str, **labels: str) -> float:
            return sum(scrape(name, **labels) for scrape in scrapes)

        return Figures(
            calls,
            beats,
            pushed_bytes=total("pushed_bytes_total"),
            pushed_blocks=total("pushed_blocks_total"),
            pulled_bytes=total("pulled_bytes_total"),
            pulled_blocks=total("pulled_blocks_total"),
            rewritten_bytes=total("rewritten_bytes_total"),
            compacted_outputs=total("compaction_outputs_total", decision="compacted"),
            compacted_files=files,
        )


def _real(job: Parameters, folder: Path) -> tuple[Figures, float]:
    """What the processes count, and the seconds of a map task."""
    with ExitStack() as stack:
        processes = _Processes(job, folder, stack)
        server = processes.cluster.master.control
        options: dict[str, OptionValue] = {"server": server, "hand_over": "off", "codec": "none", "timeout": 240}
        plugin = stack.enter_context(RemoteShuffle(options))
        with plugin.master("large") as master:
            handle = master.register_shuffle(job.partitions, job.maps)
            with ThreadPoolExecutor(job.slots) as threads:
                begun = time.monotonic()
                list(threads.map(lambda map_id: _write(plugin, handle, job, map_id), range(job.maps)))
                seconds = (time.monotonic() - begun) * job.slots / job.maps
                list(threads.map(lambda partition: _read(plugin, handle, partition), range(job.partitions)))
            wait_until(lambda: _compacted(folder), "all map outputs are compacted, but for lone ones")
            time.sleep(job.linger)
            files = len(list(folder.rglob("*.compacted")))
        return processes.figures(files), seconds


def _compacted(folder: Path) -> bool:
    return all(len(list(each.rglob("*.out"))) < LEAST_OUTPUTS for each in folder.glob("worker-*"))


def _write(plugin: RemoteShuffle, handle: ShuffleHandle, job: Parameters, map_id: int) -> None:
    drawn = random.Random(map_id)
    time.sleep(job.map_seconds * drawn.uniform(0.8, 1.2))
    payload = drawn.randbytes(job.block)
    with plugin.writer(handle, MapAttempt(map_id, 0)) as writer:
        for partition in range(job.partitions):
            writer.write(partition, payload)
        writer.commit()


def _read(plugin: RemoteShuffle, handle: ShuffleHandle, partition: int) -> int:
    with plugin.reader(handle, range(partition, partition + 1)) as reader:
        return sum(len(record) for _, record in reader)


# ------------------------------------------------------------------ the model


def _model(job: Parameters, folder: Path) -> Figures:
    memory = page_cache.available() // MIB
    with simulated(replace(job, memory=memory, linger=job.linger + SETTLE_SECONDS), folder / "model") as cluster:
        cluster.run()
        calls = {method: float(calls.count) for method, calls in cluster.master.calls.items()}
        beats = calls["Beat"] / cluster.clock.now / len(cluster.workers)
        machines = cluster.machines
        pushed, pulled = float(machines.pushed_bytes.sum()), float(machines.pulled_bytes.sum())
        decided: Sequence[Mapping[str, int]] = [each.compaction.statistics().decisions for each in cluster.workers]
        return Figures(
            calls,
            beats,
            pushed,
            pushed / job.block,
            pulled,
            pulled / job.block,
            float(sum(each.rewritten for each in cluster.workers)),
            float(sum(each["compacted"] for each in decided)),
            float(sum(each.files_made for each in cluster.workers)),
        )
