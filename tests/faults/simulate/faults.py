"""What befalls the nodes of a cluster, by its kind."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from shuffle_api.errors import ShuffleError
from tests.faults.simulate.cluster import Cluster, Node
from tests.faults.simulate.locks import Here
from tests.faults.simulate.oracle import Oracle
from tests.faults.simulate.schedule import DISK_TIMEOUT, Fault
from tests.faults.simulate.scheduler import Process

OUTPUTS = (".out", ".compacted")  # names of files that hold map outputs end so


class Faults:
    """Makes the faults of a schedule happen, and ends them."""

    def __init__(self, cluster: Cluster, oracle: Oracle, seed: int, trace: Callable[[str], None]) -> None:
        self._cluster, self._oracle, self._trace = cluster, oracle, trace
        self._random = random.Random(f"faults/{seed}")
        self._over = False
        self._draining: set[str] = set()  # workers that have not left yet

    def arrange(self, fault: Fault) -> None:
        Here.scheduler.after(fault.at, lambda: self._begin(fault))

    def _begin(self, fault: Fault) -> None:
        node = self._cluster.nodes.get(fault.node)
        if node is None or self._over:
            return
        self._trace(f"FAULT {fault.kind} {fault.node} {fault.seconds:.2f} s {fault.number} {fault.text}")
        getattr(self, f"_{fault.kind}")(node, fault)
        self._look()

    def _look(self) -> None:
        """Whether the master serves now."""
        self._oracle.master_stands(not self._cluster.master.serving)

    def heal(self, *, for_good: bool = False) -> None:
        """Everything works from now on; `for_good`: whatever the schedule says."""
        self._over = self._over or for_good
        Here.network.cut.clear()
        Here.network.trouble = Here.network.late = 0.0
        for node in self._cluster.nodes.values():
            for disk in node.disks:
                disk.state, disk.fuse = "", None
            if node.process is not None:
                node.process.fuse = None
                if node.process.paused:
                    node.resume()
            node.revive()
        self._look()

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        def run() -> None:
            call()
            self._look()

        Here.scheduler.after(seconds, run)

    def _kill(self, node: Node, fault: Fault) -> None:
        node.kill(fault.number)

    def _power(self, node: Node, fault: Fault) -> None:
        node.cut_power(self._random)

    def _down(self, node: Node, fault: Fault) -> None:
        node.stop_down()
        self._later(fault.seconds, node.revive)

    def _stop(self, node: Node, fault: Fault) -> None:
        """SIGTERM."""
        server, process = node.server, node.process
        if server is None or process is None:
            return

        def end() -> None:
            _stop(server, process)

        Here.scheduler.spawn(process, end, f"{node.name} stops")

    def _drain(self, node: Node, fault: Fault) -> None:
        """SIGTERM with --drain: it hands over what it holds, leaves, ends, and joins anew. One worker stays."""
        server, process = node.server, node.process
        draining = self._draining | {node.name}
        if server is None or process is None or len(draining) == len(self._cluster.workers):
            return
        self._draining = draining

        def left() -> None:
            self._trace(f"{node.name} has left")
            self._draining.discard(node.name)
            Here.scheduler.spawn(process, end, f"{node.name} stops")

        def end() -> None:
            with suppress(OSError):  # its disk fails
                server.stop()
            Here.scheduler.kill(process)

        def begin() -> None:
            server.when_left(left)
            server.begin_drain()

        Here.scheduler.spawn(process, begin, f"{node.name} drains")

    def _pause(self, node: Node, fault: Fault) -> None:
        node.pause()
        self._later(fault.seconds, node.resume)

    def _suspend(self, node: Node, fault: Fault) -> None:
        node.pause()
        self._later(fault.seconds, lambda: node.resume(fault.seconds))

    def _clock(self, node: Node, fault: Fault) -> None:
        node.step_clock(fault.seconds)

    def _cut(self, node: Node, fault: Fault) -> None:
        Here.network.cut.add(node.name)
        self._later(fault.seconds, lambda: Here.network.cut.discard(node.name))

    def _disk(self, node: Node, fault: Fault) -> None:
        disk = node.disks[fault.number % len(node.disks)]
        disk.state = fault.text
        if fault.text == "failing" or (fault.text == "hung" and fault.seconds > DISK_TIMEOUT):
            self._oracle.excuse(node, "its disk failed")
        self._later(fault.seconds, lambda: setattr(disk, "state", ""))

    def _fuse(self, node: Node, fault: Fault) -> None:
        disk = node.disks[fault.number % len(node.disks)]
        disk.fuse, disk.fused = 1 + fault.number // 2, fault.text

    def _flip(self, node: Node, fault: Fault) -> None:
        """A bit of a file flips."""
        files = sorted(
            (os.path.join(base, name), at)
            for at, disk in enumerate(node.disks)
            for base, _, names in os.walk(disk.path)
            for name in names
            if name.endswith(OUTPUTS) or name.startswith(("log-", "snapshot-"))
        )
        if not files:
            return
        path, at = self._random.choice(files)
        size = os.path.getsize(path)
        if not size:
            return
        offset, mask = self._random.randrange(size), 1 << self._random.randrange(8)
        self._trace(f"a bit of {path} flips at {offset} of {size}")
        damaged = node.disks[at].flip(path, offset, mask)
        self._oracle.excuse(node, "a bit flipped")
        if not path.endswith(OUTPUTS):
            node.damage.append((node.disks[at], path, offset, mask, damaged))


def _stop(server: Any, process: Process) -> None:
    with suppress(OSError, ShuffleError):  # its disk fails, or its log is not trusted any more
        server.stop()
    Here.scheduler.kill(process)
