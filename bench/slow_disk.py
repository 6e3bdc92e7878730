"""Reading the small blocks of a shuffle from a slow disk: ``python -m bench.slow_disk --json FILE``.

A server takes a shuffle of many map outputs. Then it and the process of the readers are allowed so many reads and bytes
per second of the disk that holds the current folder, and so much page cache; the cache is dropped, and the partitions
are read in random order, eight at a time, over the wire and by file: with outputs as they were written (``--merge-below
0``; `sample` partitions of them), and with a worker that has been given these figures, and so compacts a shuffle of
more than half of that cache.

Reads and bytes are those that the kernel counted. `cpu_seconds` are those of server and readers. `written_mib` is what
the server's process has written, without what was deleted before the kernel wrote it back. Needs root, and the control
groups `blkio` and `memory` (version 1).
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.harness import process, program
from bench.harness.limits import Limits
from bench.harness.server import ServerProcess
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShufflePlugin
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.remote import RemoteShuffle

THREADS = 8
MOST_SETTLE = 120.0  # seconds that a compaction may take


@dataclass(frozen=True, slots=True)
class Parameters:
    maps: int = 200
    partitions: int = 1000
    mib: int = 1024
    reads: int = 1000  # per second
    rate: int = 150  # MiB per second
    cache: int = 128  # MiB of page cache
    writes: int = 0  # MiB per second of the disk while the map stage writes, with that page cache; 0: no limit
    sample: int = 40  # partitions that are read of outputs as they were written

    @property
    def block(self) -> int:
        return (self.mib << 20) // (self.maps * self.partitions)


def _really_written(pid: int) -> int:
    """Bytes that a process has had written, without pages that were dropped before."""
    return process.figure(pid, "io", "write_bytes") - process.figure(pid, "io", "cancelled_write_bytes")


def _write(plugin: ShufflePlugin, handle: ShuffleHandle, parameters: Parameters) -> None:
    """A random record of each map for each partition."""

    def write(map_id: int) -> None:
        payload = random.Random(map_id).randbytes(parameters.block)
        with plugin.writer(handle, MapAttempt(map_id, 0)) as writer:
            for partition in range(parameters.partitions):
                writer.write(partition, payload)
            writer.commit()

    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(write, range(parameters.maps)))


def _read(plugin: ShufflePlugin, handle: ShuffleHandle, partition: int) -> int:
    with plugin.reader(handle, range(partition, partition + 1)) as reader:
        return sum(len(record) for _, record in reader)


def _reader(pipe: Any, handle: ShuffleHandle, by_file: bool, order: list[int]) -> None:
    """The process of the readers: each message starts a reading, whose bytes and seconds are the answer."""
    how = {"hand_over_from": 0} if by_file else {"hand_over": "off"}
    with RemoteShuffle({"timeout": 600, **how}) as plugin:
        pipe.send(None)
        while pipe.recv():
            began = time.monotonic()
            with ThreadPoolExecutor(THREADS) as threads:
                got = sum(threads.map(lambda partition: _read(plugin, handle, partition), order))
            pipe.send((got, time.monotonic() - began))


@dataclass(frozen=True, slots=True)
class Side:
    """One way to serve and to read."""

    arguments: tuple[str, ...]
    compacts: bool
    by_file: bool


def _settle(data: Path, compacts: bool) -> float:
    """Wait until all is compacted; how long that took."""
    began = time.monotonic()
    while compacts and next(data.rglob("*.out"), None) is not None and time.monotonic() - began < MOST_SETTLE:
        time.sleep(0.1)
    return time.monotonic() - began


def measure(parameters: Parameters, scratch: Path, side: Side) -> dict[str, Any]:
    """Seconds, reads and MiB of one reading of all partitions, or of a sample of them."""
    order = random.Random(7).sample(range(parameters.partitions), parameters.partitions)
    order = order if side.compacts else order[: parameters.sample]
    with (
        ExitStack() as ending,
        ServerProcess(scratch / "data", scratch / "log", side.arguments) as server,
        RemoteShuffle({"server": server.control, "hand_over": "off", "codec": "none", "timeout": 600}) as plugin,
        plugin.master("slow-disk") as master,
    ):
        handle = master.register_shuffle(parameters.partitions, parameters.maps)
        limits = Limits(server.pid, scratch)
        ending.callback(limits.remove)
        if parameters.writes:
            limits.writes(parameters.writes << 20)
            limits.page_cache(parameters.cache << 20)
        began = time.monotonic()
        _write(plugin, handle, parameters)
        map_stage = time.monotonic() - began
        _read(plugin, handle, 0)  # outputs of a shuffle that is read are compacted soon
        settle = _settle(scratch / "data", side.compacts)
        limits.writes(0)
        written = _really_written(server.pid)
        ours, theirs = get_context("spawn").Pipe()
        reader = get_context("spawn").Process(target=_reader, args=(theirs, handle, side.by_file, order))
        reader.start()
        ours.recv()
        assert reader.pid is not None
        pids = [server.pid, reader.pid]
        limits.add(reader.pid)
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        limits.reads(parameters.reads, parameters.rate << 20)
        limits.page_cache(parameters.cache << 20)
        reads, size = limits.counted("io_serviced"), limits.counted("io_service_bytes")
        cpu = sum(map(process.cpu_seconds, pids))
        ours.send(True)
        got, seconds = ours.recv()
        cpu = sum(map(process.cpu_seconds, pids)) - cpu
        reads, size = limits.counted("io_serviced") - reads, limits.counted("io_service_bytes") - size
        ours.send(False)
        reader.join()
        assert got == parameters.maps * len(order) * parameters.block
    return {
        "partitions_read": len(order),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "reads": reads,
        "reads_per_task": round(reads / len(order), 1),
        "read_mib": size >> 20,
        "read_kib_per_task": (size >> 10) // len(order),
        "map_stage_s": round(map_stage, 1),
        "compaction_after_map_stage_s": round(settle, 1),
        "written_mib": written >> 20,
    }


def _run(parameters: Parameters, folder: Path) -> dict[str, Any]:
    """All sides, on a disk of so many reads."""
    device = f"{parameters.reads}:{parameters.rate}"
    plain, compacting = ("--merge-below", "0"), ("--device", device, "--page-cache", str(parameters.cache << 20))
    sides = {
        "as written": Side(plain, compacts=False, by_file=False),
        "compacted": Side(compacting, compacts=True, by_file=False),
        "as written, by file": Side(plain, compacts=False, by_file=True),
        "compacted, by file": Side(compacting, compacts=True, by_file=True),
    }
    run: dict[str, Any] = {"reads": parameters.reads, "load_before": round(os.getloadavg()[0], 2)}
    for name, side in sides.items():
        with tempfile.TemporaryDirectory(prefix="bench-slow-disk-", dir=folder) as scratch:
            run[name] = measure(parameters, Path(scratch).absolute(), side)
    return run


def main(arguments: list[str] | None = None) -> None:
    parser = program.parser("slow_disk", __doc__)
    known = {name: ([value] if name == "reads" else value, name) for name, value in asdict(Parameters()).items()}
    program.add_options(parser, **known)
    given = vars(parser.parse_args(arguments))
    path, scratch, rates = given.pop("json"), given.pop("scratch") or Path(), given.pop("reads")
    report = program.heading("slow_disk", given)
    report |= {
        "sequential_s": round(given["mib"] / given["rate"], 1),
        "task_kib": (given["mib"] << 10) // given["partitions"],
        "runs": [_run(Parameters(**given, reads=reads), scratch) for reads in rates],
    }
    program.publish(report, path)


if __name__ == "__main__":
    program.run(main)
