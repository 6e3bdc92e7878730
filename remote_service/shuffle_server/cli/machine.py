"""Checks of this machine: versions, open files, data directories, ports."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import statistics
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version

from shuffle_api.tables import size_shown
from shuffle_server import __version__
from shuffle_server.options import CONTROL_PORT, DATA_PORT, HTTP_PORT
from shuffle_transport.command_line import Finding

LEAST_FILES = 65_536
LEAST_SHARE = 0.05  # of a file system that is to be free
SYNCS = 5
SLOW_SYNC_SECONDS = 0.1


def check_versions() -> Finding:
    """The versions that a report of an error should name."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyarrow", "grpcio", "protobuf"))
    seen = f"flight-shuffle {__version__}, Python {platform.python_version()}, {packages}, {platform.platform()}"
    return Finding("versions", "ok", seen)


def check_descriptors() -> Finding:
    """The limit of open files."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= LEAST_FILES:
        return Finding("open files", "ok", f"a process may open {'any number' if hard < 0 else hard}")
    fix = f"raise the hard limit to {LEAST_FILES}: LimitNOFILE= of a systemd unit, or /etc/security/limits.conf"
    return Finding("open files", "warning", f"a process may open {hard}; a server has one per attempt and pull", fix)


def check_directory(path: str) -> Iterator[Finding]:
    """Whether it can be written, its room, and how long a sync takes."""
    there = os.path.abspath(path)
    while not os.path.isdir(there) and there != os.path.dirname(there):
        there = os.path.dirname(there)
    try:
        times = [_sync(there) for _ in range(SYNCS)]
        usage = shutil.disk_usage(there)
    except OSError as error:
        fix = "give a directory that the server's user may create files in, on a disk that works"
        yield Finding(f"directory {path}", "failed", f"{there} cannot be written: {error.strerror}", fix)
        return
    free = f"{size_shown(usage.free)} of {size_shown(usage.total)} are free"
    if usage.free < LEAST_SHARE * usage.total:
        fix = "make room, or give a further data directory: outputs go where most room is"
        yield Finding(f"room in {path}", "warning", free, fix)
    else:
        yield Finding(f"room in {path}", "ok", free)
    median = statistics.median(times)
    seen = f"a sync of 4 KiB takes {1000 * median:.1f} ms (median of {SYNCS})"
    if median > SLOW_SYNC_SECONDS:
        fix = "put the registry's journal on a faster disk: the first directory of --data-dir"
        yield Finding(f"disk of {path}", "warning", seen, fix)
    else:
        yield Finding(f"disk of {path}", "ok", seen)


def _sync(directory: str) -> float:
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b"\0" * 4096)
        file.flush()
        began = time.monotonic()
        os.fsync(file.fileno())
        return time.monotonic() - began


def check_ports() -> Iterator[Finding]:
    """Whether the default ports are free."""
    for option, port in (("--listen", CONTROL_PORT), ("--data-listen", DATA_PORT), ("--http-listen", HTTP_PORT)):
        try:
            with socket.create_server(("127.0.0.1", port)):
                pass
        except OSError as error:
            fix = f"give another {option}, or end what listens there, unless that is this server: ss -ltnp"
            yield Finding(f"port {port}", "warning", f"it cannot be listened on: {error.strerror}", fix)
        else:
            yield Finding(f"port {port}", "ok", f"it is free, for {option}")
