"""Facts and limits of a machine, printed beside every figure: figures of different machines don't compare."""

from __future__ import annotations

import os
import platform
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np

ROUNDS = 5
MEMCPY_BYTES, LOOPBACK_BYTES, FILE_BYTES = 256 << 20, 1 << 30, 512 << 20
PIECE = 1 << 20
GIB = 1 << 30


def facts() -> dict[str, str | int]:
    """Processor, memory, and the versions of what runs."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count() or 0,
        "memory_bytes": int(_field("/proc/meminfo", "MemTotal").split()[0]) << 10,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": _java(),
        "pyspark": version("pyspark"),
        "pyarrow": version("pyarrow"),
    }


def limits(scratch: Path) -> dict[str, float]:
    """GiB/s, medians of a few rounds: copying in memory, one loopback TCP stream, a new file into the page cache.

    Takes about five seconds.
    """
    source, target = (np.ones(MEMCPY_BYTES, np.uint8) for _ in range(2))
    return {
        "memcpy": _rate(MEMCPY_BYTES, lambda: np.copyto(target, source)),
        "loopback_tcp": _rate(LOOPBACK_BYTES, _loopback),
        "page_cache_write": _rate(FILE_BYTES, lambda: _write(scratch / "probe")),
    }


def load() -> float:
    """Processes that wanted to run, averaged over the last minute: what else the machine was busy with."""
    return os.getloadavg()[0]


def _rate(size: int, work: Callable[[], object]) -> float:
    seconds = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return round(size / statistics.median(seconds) / GIB, 2)


def _loopback() -> None:
    piece = bytes(PIECE)
    with socket.create_server(("127.0.0.1", 0)) as server:
        sender = socket.create_connection(server.getsockname())
        receiver, _ = server.accept()

        def send() -> None:
            for _ in range(LOOPBACK_BYTES // PIECE):
                sender.sendall(piece)
            sender.close()

        thread = threading.Thread(target=send, name="sender")
        thread.start()
        buffer = bytearray(PIECE)
        while receiver.recv_into(buffer):
            pass
        receiver.close()
        thread.join()


def _write(path: Path) -> None:
    piece = bytes(PIECE)
    with path.open("wb", buffering=0) as file:
        for _ in range(FILE_BYTES // PIECE):
            file.write(piece)
    path.unlink()


def _field(path: str, name: str) -> str:
    lines = Path(path).read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "unknown")


def _java() -> str:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, timeout=30, check=True).stderr
    return said.splitlines()[0]
