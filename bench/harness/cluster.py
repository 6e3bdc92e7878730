"""A master and workers as processes of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from bench.harness.server import ServerProcess
from shuffle_transport.control_client import ControlClient
from shuffle_transport.proto import flight_shuffle_pb2 as pb

DEADLINE_S = 240.0


class ClusterProcesses:
    """A context manager. Its processes may be killed and restarted; those that run at the end are stopped.

    :param master: options of the master.
    """

    def __init__(self, root: Path, workers: int, *, worker_timeout: int = 120, master: Sequence[str] = ()) -> None:
        self.root = root
        self._stack = ExitStack()
        try:
            self.master = self._start("master", ("--worker-timeout", str(worker_timeout), *master), "master")
            self.workers = [self.add_worker() for _ in range(workers)]
        except BaseException:
            self._stack.close()
            raise

    def add_worker(self, name: str = "", *options: str) -> ServerProcess:
        name = name or f"worker-{len(list(self.root.glob('worker-*.log')))}"
        return self._start(name, ("--master", self.master.control, *options), "worker")

    def _start(self, name: str, options: Sequence[str], role: str) -> ServerProcess:
        process = ServerProcess(self.root / name, self.root / f"{name}.log", options, role=role)
        self._stack.callback(end, process)
        return process

    def worker(self, id: str) -> ServerProcess:
        """The process of worker `id`."""
        [found] = [each for each in self.workers if each.worker == id]
        return found

    def worker_ids(self) -> set[str]:
        """Those that the master counts on."""
        return {worker.id for worker in self.master.status().workers}

    def __enter__(self) -> ClusterProcesses:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def holders(master: str, app: str, shuffle: int) -> dict[int, str]:
    """The worker of each committed map output of a shuffle, by map id, as the master at this address knows it."""
    with closing(ControlClient(master, client="flight-shuffle-bench", timeout=60)) as client:
        request = pb.LocateRequest(shuffle=pb.ShuffleKey(app=app, shuffle=shuffle))
        reply: pb.LocateReply = client.call("Locate", request)
    return {output.output.map: output.worker for output in reply.outputs}


def wait_until(condition: Callable[[], bool], what: str, seconds: float = DEADLINE_S) -> None:
    """Raises TimeoutError naming `what` when it does not come true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not after {seconds:g} s")
        time.sleep(0.05)


def end(process: ServerProcess) -> None:
    """Stop it, unless it was killed."""
    if process.running:
        process.stop()
