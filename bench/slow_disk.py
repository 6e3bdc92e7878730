"""Reading the small blocks of a shuffle from a slow disk: ``python -m bench.slow_disk --json FILE``.

A server takes a shuffle of many map outputs, then its process is allowed so many reads and bytes per second of the disk
that holds the current folder, and so much page cache; the cache is dropped, and readers pull all partitions over the
wire, in random order, eight at a time: once with outputs as they were written (``--merge-below 0``), once with a worker
that has been given these figures, and so compacts a shuffle of more than half of that cache.

Reads and bytes are those that the kernel counted. Needs root, and the control groups `blkio` and `memory` (version 1).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench import machine
from bench.ending import unwind_when_told_to_end
from bench.server import ServerProcess
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShufflePlugin
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle

GROUPS = Path("/sys/fs/cgroup")
NAME = "flight-shuffle-bench"
THREADS = 8
SETTLE_SECONDS = 3.0  # more than a worker waits for further outputs of a shuffle that is read


@dataclass(frozen=True, slots=True)
class Parameters:
    maps: int = 200
    partitions: int = 1000
    mib: int = 1024
    reads: int = 1000  # per second
    rate: int = 150  # MiB per second
    cache: int = 128  # MiB of page cache

    @property
    def block(self) -> int:
        return (self.mib << 20) // (self.maps * self.partitions)


class SlowDisk:
    """What one process may read of a disk. Made with no limits, which `remove` lifts again."""

    def __init__(self, pid: int, folder: Path) -> None:
        """Raises OSError: there are no such control groups, or no right to make one."""
        self._pid = pid
        device = folder.stat().st_dev
        self._disk = f"{os.major(device)}:{os.minor(device)}"
        self._io, self._memory = GROUPS / "blkio" / f"{NAME}-{pid}", GROUPS / "memory" / f"{NAME}-{pid}"
        for group in (self._io, self._memory):
            group.mkdir(exist_ok=True)
            (group / "cgroup.procs").write_text(str(pid))

    def limit(self, reads: int, size: int, cache: int) -> None:
        """So many reads and bytes a second, and bytes of page cache beside what the process has now."""
        for name, value in (("iops", reads), ("bps", size)):
            (self._io / f"blkio.throttle.read_{name}_device").write_text(f"{self._disk} {value}")
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        own = next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))
        (self._memory / "memory.limit_in_bytes").write_text(str(own + (200 << 20) + cache))

    def counted(self, name: str) -> int:
        """What it has read: io_serviced or io_service_bytes."""
        lines = (self._io / f"blkio.throttle.{name}").read_text().splitlines()
        return sum(int(line.split()[2]) for line in lines if line.startswith(f"{self._disk} Read"))

    def remove(self) -> None:
        """The process has ended."""
        for group in (self._io, self._memory):
            group.rmdir()


@contextmanager
def _shuffle(server: ServerProcess, parameters: Parameters) -> Iterator[tuple[ShufflePlugin, ShuffleHandle]]:
    """One that has been written, with a random record of each map for each partition."""
    with (
        RemoteShuffle({"server": server.control, "hand_over": "off", "codec": "none", "timeout": 600}) as plugin,
        plugin.master("slow-disk") as master,
    ):
        handle = master.register_shuffle(parameters.partitions, parameters.maps)

        def write(map_id: int) -> None:
            payload = random.Random(map_id).randbytes(parameters.block)
            with plugin.writer(handle, MapAttempt(map_id, 0)) as writer:
                for partition in range(parameters.partitions):
                    writer.write(partition, payload)
                writer.commit()

        with ThreadPoolExecutor(THREADS) as threads:
            list(threads.map(write, range(parameters.maps)))
        yield plugin, handle


def _read(plugin: ShufflePlugin, handle: ShuffleHandle, partition: int) -> int:
    with plugin.reader(handle, range(partition, partition + 1)) as reader:
        return sum(len(record) for _, record in reader)


def measure(parameters: Parameters, scratch: Path, arguments: list[str]) -> dict[str, Any]:
    """Seconds, reads and MiB of one reading of all partitions."""
    with ServerProcess(scratch / "data", scratch / "log", arguments) as server:
        disk = SlowDisk(server.pid, scratch)
        with _shuffle(server, parameters) as (plugin, handle):
            _read(plugin, handle, 0)  # outputs of a shuffle that is read are compacted soon
            time.sleep(SETTLE_SECONDS)
            os.sync()
            Path("/proc/sys/vm/drop_caches").write_text("3")
            disk.limit(parameters.reads, parameters.rate << 20, parameters.cache << 20)
            reads, size = disk.counted("io_serviced"), disk.counted("io_service_bytes")
            order = random.Random(7).sample(range(parameters.partitions), parameters.partitions)
            began = time.monotonic()
            with ThreadPoolExecutor(THREADS) as threads:
                got = sum(threads.map(lambda partition: _read(plugin, handle, partition), order))
            seconds = time.monotonic() - began
            assert got == parameters.maps * parameters.partitions * parameters.block
            reads, size = disk.counted("io_serviced") - reads, disk.counted("io_service_bytes") - size
    disk.remove()
    return {
        "seconds": round(seconds, 1),
        "reads": reads,
        "reads_per_partition": round(reads / parameters.partitions, 1),
        "read_mib": size >> 20,
    }


def main(arguments: list[str] | None = None) -> None:
    unwind_when_told_to_end()
    parser = argparse.ArgumentParser(prog="python -m bench.slow_disk", description=__doc__)
    parser.add_argument("--json", type=Path, help="default: standard output")
    for name, value in asdict(Parameters()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    given = vars(parser.parse_args(arguments))
    path = given.pop("json")
    parameters = Parameters(**given)
    device = f"{parameters.reads}:{parameters.rate}"
    sides = {
        "as written": ["--merge-below", "0"],
        "compacted": ["--device", device, "--page-cache", str(parameters.cache << 20)],
    }
    report: dict[str, Any] = {
        "benchmark": "slow_disk",
        "machine": {**machine.facts(), "load_before": machine.load()},
        "parameters": asdict(parameters),
        "sequential_s": round(parameters.mib / parameters.rate, 1),
    }
    for name, options in sides.items():
        with tempfile.TemporaryDirectory(prefix="bench-slow-disk-", dir=".") as scratch:
            report[name] = measure(parameters, Path(scratch).absolute(), options)
    text = json.dumps(report, indent=1)
    print(text) if path is None else path.write_text(text + "\n")


if __name__ == "__main__":
    main()
