"""The servers of a schedule: the product's own, each in a simulated process that a supervisor starts again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from shuffle_api.errors import ShuffleError
from shuffle_server.options import ServerOptions
from tests.faults.simulate.disk import Disk, Disks, close_all
from tests.faults.simulate.locks import Here
from tests.faults.simulate.schedule import DISK_TIMEOUT, Shape
from tests.faults.simulate.scheduler import Crash, Process

RESTART_SECONDS = 1.0
PROBE_SECONDS = 2.0
CONTROL = "127.0.0.1:9110"


class Node:
    """One server program and its machine: disks that outlive it, and a supervisor.

    :param make: starts the server; returns it once it serves.
    """

    def __init__(self, name: str, disks: list[Disk], make: Callable[[], Any], trace: Callable[[str], None]) -> None:
        self.name, self.disks, self._make, self._trace = name, disks, make, trace
        self.process: Process | None = None
        self.server: Any = None
        self.wall_offset = 0.0
        self.down = False  # kept down by the schedule
        self.refusals: list[str] = []  # why it did not start
        self.when_serving: Callable[[Node], None] = lambda node: None
        self.when_ended: Callable[[Node], None] = lambda node: None
        self.damage: list[tuple[Disk, str, int, int, int]] = []  # flipped: file, offset, mask, byte then

    def start(self) -> None:
        """Begin a life."""
        self.process = Process(self.name, wall_offset=self.wall_offset)
        process = self.process
        process.when_killed.append(lambda: self._ended(process))
        Here.scheduler.spawn(process, lambda: self._main(process), f"{self.name} main")

    def _main(self, process: Process) -> None:
        try:
            self.server = self._make()
            self._trace(f"{self.name} serves")
            self.when_serving(self)
            Here.scheduler.spawn(process, lambda: self._probe(process), f"{self.name} probe")
        except (ShuffleError, OSError) as error:
            self._trace(f"{self.name} does not start: {error}")
            self.refusals.append(str(error))
            self.mend()
            Here.scheduler.kill(process)
            raise Crash from None

    def _probe(self, process: Process) -> None:
        """The liveness probe: a server whose /health says 503 is ended, and so started again."""
        failed = 0
        while failed < 2:
            Here.scheduler.sleep(PROBE_SECONDS)
            failed = failed + 1 if self.server._observation._alive("").status != 200 else 0
        self._trace(f"{self.name} is not healthy")
        Here.scheduler.kill(process)
        raise Crash

    def mend(self) -> None:
        """The operator puts back undamaged copies of the files, unless the server has begun them anew."""
        for disk, path, offset, mask, damaged in self.damage:
            disk.flip(path, offset, mask, damaged)
        self.damage.clear()

    def _ended(self, process: Process) -> None:
        close_all(process)
        self.server = None
        if process is self.process:
            self.process = None
            self.when_ended(self)
            Here.scheduler.after(RESTART_SECONDS, self._again)

    def _again(self) -> None:
        if self.process is None and not self.down:
            self.start()

    @property
    def serving(self) -> bool:
        return self.server is not None and self.process is not None and not self.process.paused

    def kill(self, steps: int) -> None:
        """End it at its step number `steps` from now, and start it again after a moment."""
        if self.process is not None:
            if steps <= 0:
                Here.scheduler.kill(self.process)
            else:
                self.process.fuse = steps

    def cut_power(self, rng: random.Random) -> None:
        if self.process is not None:
            Here.scheduler.kill(self.process)
        for disk in self.disks:
            disk.cut_power(rng)

    def pause(self) -> None:
        if self.process is not None:
            self.process.paused = True

    def resume(self, asleep: float = 0.0) -> None:
        if self.process is not None:
            self.process.paused = False
            self.process.asleep += asleep

    def stop_down(self) -> None:
        """End it, and do not start it again before `revive`."""
        self.down = True
        if self.process is not None:
            Here.scheduler.kill(self.process)

    def revive(self) -> None:
        self.down = False
        self._again()

    def step_clock(self, seconds: float) -> None:
        self.wall_offset += seconds
        if self.process is not None:
            self.process.wall_offset = self.wall_offset


class Cluster:
    """A master and workers, or one server that is both."""

    def __init__(self, disks: Disks, shape: Shape, trace: Callable[[str], None]) -> None:
        self.disks, self.shape, self._trace = disks, shape, trace
        self.nodes: dict[str, Node] = {}
        if shape.workers == 0:
            self._add("server", 1 + (shape.directories > 1), self._server)
            return
        self._add("master", 1, self._master)
        for number in range(shape.workers):
            self._add(f"worker{number}", shape.directories, self._worker)

    def _add(self, name: str, directories: int, make: Callable[[list[Disk]], Any]) -> None:
        disks = [self.disks.add(f"{self.disks.root}/{name}.{at}") for at in range(directories)]
        self.nodes[name] = Node(name, disks, lambda: make(disks), self._trace)

    @property
    def master(self) -> Node:
        """The node that has the registry."""
        return self.nodes.get("master") or self.nodes["server"]

    @property
    def workers(self) -> list[Node]:
        return [node for name, node in self.nodes.items() if name != "master"]

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def _options(self, disks: list[Disk], **more: Any) -> ServerOptions:
        shape = self.shape
        return ServerOptions(
            data_dir=",".join(disk.path for disk in disks),
            listen=CONTROL,
            data_listen="127.0.0.1:0",
            durability="fsynced" if shape.fsynced else "written",
            app_timeout=shape.app_timeout,
            worker_timeout=shape.worker_timeout,
            snapshot_every=shape.snapshot_every,
            staged_timeout=60.0,
            disk_timeout=DISK_TIMEOUT,
            recycle=0,
            device="1000:150",  # with a page cache that holds nothing: outputs are compacted
            page_cache=1,
            overload_timeout=5.0,
            **more,
        )

    def _server(self, disks: list[Disk]) -> Any:
        from shuffle_server.server import Server

        return Server(self._options(disks))

    def _master(self, disks: list[Disk]) -> Any:
        from shuffle_server.server import MasterServer

        return MasterServer(self._options(disks))

    def _worker(self, disks: list[Disk]) -> Any:
        from shuffle_server.server import WorkerServer

        return WorkerServer(self._options(disks, master=CONTROL))
