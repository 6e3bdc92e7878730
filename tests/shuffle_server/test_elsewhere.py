"""A server where calls of Linux are missing, as on macOS: it starts, and a job goes through it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.harness.server import ServerProcess
from shuffle_plugins.remote import RemoteShuffle
from tests.shuffle_server.helpers import read_all, write_map
from tests.shuffle_server.test_server import run_cli

# What macOS lacks, of what Python has on Linux. Read by Python before anything else, as it is called sitecustomize.
MISSING = """
import builtins, io, os, select, socket, time

for module, names in {
    os: "fdatasync posix_fadvise posix_fallocate copy_file_range sched_getaffinity memfd_create eventfd O_TMPFILE"
    " O_DIRECT O_PATH POSIX_FADV_RANDOM POSIX_FADV_WILLNEED POSIX_FADV_DONTNEED pidfd_open splice",
    select: "epoll", socket: "TCP_INFO TCP_KEEPIDLE TCP_USER_TIMEOUT AF_NETLINK", time: "CLOCK_BOOTTIME",
}.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

def without_proc(call):
    def checked(path, *rest, **more):
        if isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "No such file or directory", path)
        return call(path, *rest, **more)
    return checked

builtins.open = io.open = without_proc(io.open)
os.listdir, os.scandir = without_proc(os.listdir), without_proc(os.scandir)
"""


def test_a_job_goes_through_a_server_without_the_calls_of_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(MISSING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    options = ["--durability", "fsynced", "--http-listen", "127.0.0.1:0"]
    with (
        ServerProcess(tmp_path / "data", tmp_path / "server.log", options) as server,
        RemoteShuffle({"server": server.control, "timeout": 120, "hand_over": "off"}) as plugin,
        plugin.master("app") as master,
    ):
        handle = master.register_shuffle(4, 2)
        expected = [record for n in range(2) for record in write_map(plugin, handle, n)]
        assert read_all(plugin, handle) == sorted(expected)
        demo = run_cli("demo", "--server", server.control)
        assert "All counts are right." in demo.stdout, demo.stderr
    assert "Traceback" not in (tmp_path / "server.log").read_text()
