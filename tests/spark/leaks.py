"""What must not be left behind: in the driver's JVM, between it and the server, and at the server."""

import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from bench.harness.files import files_below, opened_by
from tests.spark.server import Server

GONE_TIMEOUT_S = 180.0
ESTABLISHED = "01"


def threads(spark: SparkSession) -> list[str]:
    """Names of the plugin's threads, and of those of the gRPC inside it, in this process's JVM."""
    found = spark._jvm.java.lang.Thread.getAllStackTraces().keySet().toArray()  # type: ignore[union-attr]
    names = sorted(thread.getName() for thread in found)
    return [name for name in names if name.startswith(("flight-shuffle", "grpc-"))]


def temporary_files(spark: SparkSession) -> list[str]:
    """Files below ``spark.local.dir`` that a task made for itself: spills, fetched blocks."""
    root = Path(spark.sparkContext.getConf().get("spark.local.dir", ""))
    return [str(path) for path in root.glob("blockmgr-*/*/temp_*")]


def fetched_blocks(spark: SparkSession) -> int:
    """Allocations out of Spark's pool for fetched blocks, in this process's JVM, that were not given back."""
    pool = spark._jvm.org.apache.spark.shuffle.flight.wire.FetchedMemory.POOL  # type: ignore[union-attr]
    return sum(arena.numActiveAllocations() for arena in pool.metric().directArenas())


def connections(*addresses: str) -> int:
    """Established TCP connections of this machine to these ``host:port``, seen from the client's end."""
    ports = {int(address.rpartition(":")[2]) for address in addresses}
    lines = [line for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    remote = [fields[2] for fields in map(str.split, lines) if fields[3] == ESTABLISHED]
    return sum(int(address.rpartition(":")[2], 16) in ports for address in remote)


def under_way(server: Server) -> list[str]:
    """Map outputs that are being written, and those that the server has open to serve them.

    Not those in its trash: their shuffle is gone, and the server deletes them every few seconds.
    """
    partial = [str(path) for path in files_below(server.data_dir / "worker" / "apps") if path.suffix == ".partial"]
    return partial + [path for path in opened_by(server.pid) if "/worker/apps/" in path]


def wait_until_none(left: Callable[[], object], what: str) -> None:
    """Wait until ``left()`` is empty or 0. Raises TimeoutError naming what is still there."""
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while found := left():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} after {GONE_TIMEOUT_S:.0f} s: {found}")
        time.sleep(0.1)
