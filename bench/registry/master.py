"""A master and nothing else, with the log as asked for: ``python -m bench.registry.master DIRECTORY --log synced``.

It prints its address and runs until its standard input ends. The endpoint is that of a server; a whole server
has no option to do without its log.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from shuffle_api.registry.operations import RegisterWorker
from shuffle_api.values import WorkerInfo
from shuffle_server.master.cluster import Cluster
from shuffle_server.master.control import ControlService
from shuffle_server.master.endpoint import Limits, start_control
from shuffle_server.master.master import Master
from shuffle_server.master.membership import Membership

ROOT = Path(__file__).parents[2]
LOGS = ("synced", "written", "none")
WORKER = WorkerInfo("w-benchmark", "127.0.0.1", 1)
STOP_S = 30.0


@dataclass(frozen=True, slots=True)
class MasterProcess:
    address: str
    pid: int


@contextmanager
def master_process(directory: Path, log: str) -> Iterator[MasterProcess]:
    """A master in a process of its own, its log one of `LOGS`."""
    command = [sys.executable, "-m", "bench.registry.master", str(directory), "--log", log]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield MasterProcess(process.stdout.readline().strip(), process.pid)
        finally:
            process.stdin.close()
            process.wait(STOP_S)


def open_master(directory: Path, log: str) -> Master:
    """A master with a worker."""
    master = Master(None if log == "none" else directory, sync=log == "synced")
    master.apply(RegisterWorker(WORKER))
    return master


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.registry.master", description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--log", choices=LOGS, default="synced")
    given = parser.parse_args(arguments)
    master = open_master(given.directory, given.log)
    membership = Membership(master, 60)
    service = ControlService(master, Cluster(membership, None), "bench", 60)
    server, port = start_control(service, membership, "127.0.0.1", 0, Limits())
    print(f"127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    server.stop(1).wait()
    master.close()


if __name__ == "__main__":
    main()
