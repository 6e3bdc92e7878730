"""The servers of a schedule, each a process on an address of its own, and the proxies before them."""

from __future__ import annotations

import itertools
import json
import os
import random
import socket
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.harness.files import files_below
from tests.faults.explore.processes import Child
from tests.faults.explore.schedule import APP_TIMEOUT_S, DISK_TIMEOUT_S, WORKER_TIMEOUT_S, Schedule
from tests.faults.explore.serving import serve
from tests.faults.explore.stall import Stall
from tests.faults.fault_proxy import FaultProxy

READY_S, STOP_S = 90.0, 45.0
CONTROL, STANDBY, DATA = 9110, 9111, 9120
LOOK_S = 0.01
STALLED = 0.4
"""Of a timeout: if a process of the explorer stood still for so much of it, the silence may be nobody's fault."""


class DidNotStart(Exception):
    """A server ended before it was ready; the message has the end of its log."""


class Hung(Exception):
    """Something did not come to its end; the message says what."""


class Server:
    """A server's process and its directories, which outlive it. `lock` is for who changes whether it runs."""

    def __init__(
        self, name: str, root: Path, arguments: list[str], directories: int, bugs: tuple[str, ...] = ()
    ) -> None:
        self.name, self.root, self.bugs = name, root, bugs
        self.directories = [root / f"{name}-data{number or ''}" for number in range(directories)]
        self.log, self._ready, self._rules_file = root / f"{name}.log", root / f"{name}.ready", root / f"{name}.rules"
        given = ["--data-dir", ",".join(map(str, self.directories))]
        self._arguments = [*arguments, *given]
        self._rules: dict[str, Any] = {"clock": 0.0, "disk": []}
        self._ids = itertools.count(1)
        self._rules_lock = threading.Lock()
        self.lock = threading.Lock()
        self.child: Child | None = None
        self.began = 0.0

    def launch(self) -> None:
        """Start it and return at once."""
        self._ready.unlink(missing_ok=True)
        self.began = time.monotonic()
        arguments = (self._arguments, self.log, self._ready, self._rules_file, self.bugs)
        self.child = Child(serve, arguments, self.log)

    def await_ready(self) -> None:
        """:raises DidNotStart: it ended. :raises Hung: it is not ready in time."""
        while not self.ready:
            if not self.running:
                raise DidNotStart(f"{self.name} ended with status {self._status}: {self.tail()}")
            if time.monotonic() > self.began + READY_S:
                raise Hung(f"{self.name} is not ready after {READY_S:g} s: {self.stacks()}")
            time.sleep(LOOK_S)

    @property
    def ready(self) -> bool:
        return self._ready.exists() and self._ready.read_bytes().endswith(b"\n")

    @property
    def running(self) -> bool:
        return self.child is not None and self.child.alive

    @property
    def _status(self) -> int | None:
        return None if self.child is None else self.child.status

    def kill(self) -> None:
        if self.child is not None:
            self.child.kill()

    def stop(self) -> None:
        """SIGTERM. :raises Hung: it does not end."""
        assert self.child is not None
        if self.child.alive and not self.child.terminate(STOP_S):
            stacks = self.stacks()
            self.child.kill()
            raise Hung(f"{self.name} did not stop within {STOP_S:g} s: {stacks}")

    def set_clock(self, seconds: float) -> None:
        """Have its wall clock be so far ahead of the true one."""
        with self._rules_lock:
            self._rules["clock"] = seconds
            self._write_rules()

    def add_rule(self, **rule: Any) -> int:
        """See `tests.faults.explore.inject`; its number, for `remove_rule`."""
        with self._rules_lock:
            number = next(self._ids)
            self._rules["disk"].append({"id": number, **rule})
            self._write_rules()
            return number

    def remove_rule(self, number: int) -> None:
        with self._rules_lock:
            self._rules["disk"] = [rule for rule in self._rules["disk"] if rule["id"] != number]
            self._write_rules()

    def _write_rules(self) -> None:
        new = self._rules_file.with_suffix(".new")
        new.write_text(json.dumps(self._rules))
        new.replace(self._rules_file)

    def tail(self, lines: int = 6) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def stacks(self) -> str:
        return "" if self.child is None else self.child.stacks()


class Scene:
    """All servers of a schedule; a context manager that ends them.

    `may_lose` and `may_end_run`: a fault has struck after which that is right. `server` is what clients are given.
    """

    def __init__(self, schedule: Schedule, root: Path, metadata: str = "") -> None:
        self.schedule, self.root = schedule, root
        self._may_lose = self._may_end_run = False
        self.stalled = 0.0
        self._stack = ExitStack()
        self.watch = self._stack.enter_context(closing(Stall()))
        near = _free_host()
        self.host = near
        self.proxies: dict[str, list[FaultProxy]] = {}
        try:
            if any(fault.kind == "network" for fault in schedule.faults):
                self.host = near[:-1] + "2"
                self._stand_between(near)
            controls = [CONTROL, STANDBY] if schedule.topology == "standby" else [CONTROL]
            self.server = ",".join(f"{self.host}:{port}" for port in controls)
            self.servers = self._made(near, metadata)
            for server in self.servers:
                self._stack.callback(server.kill)
                server.launch()
                if server.name != "standby":
                    server.await_ready()
        except BaseException:
            self._stack.close()
            raise

    @property
    def may_lose(self) -> bool:
        return self._may_lose or self.stood_still > STALLED * WORKER_TIMEOUT_S

    @may_lose.setter
    def may_lose(self, value: bool) -> None:
        self._may_lose = value

    @property
    def may_end_run(self) -> bool:
        return self._may_end_run or self.stood_still > STALLED * APP_TIMEOUT_S

    @may_end_run.setter
    def may_end_run(self, value: bool) -> None:
        self._may_end_run = value

    @property
    def stood_still(self) -> float:
        """For how long of a few seconds a process did not get to run, at most, because the machine was busy."""
        return max(self.stalled, self.watch.longest)

    @property
    def unchecked(self) -> tuple[str, ...]:
        """What was not checked in this schedule, and why."""
        found = []
        for what, by_fault, timeout in (
            ("lost outputs", self._may_lose, WORKER_TIMEOUT_S),
            ("ended runs", self._may_end_run, APP_TIMEOUT_S),
        ):
            if by_fault:
                found.append(f"{what}: a fault allows them")
            elif self.stood_still > STALLED * timeout:
                found.append(f"{what}: a process stood still for more than {STALLED * timeout:g} s")
        return tuple(found)

    def note_downtime(self, seconds: float) -> None:
        """All were away for so long."""
        if self.schedule.topology != "server" and seconds > STALLED * WORKER_TIMEOUT_S:
            self._may_lose = True

    @property
    def masters(self) -> list[Server]:
        return [server for server in self.servers if not server.name.startswith("worker")]

    @property
    def workers(self) -> list[Server]:
        return [server for server in self.servers if server.name.startswith(("worker", "server"))]

    def _stand_between(self, near: str) -> None:
        controls = [CONTROL, STANDBY] if self.schedule.topology == "standby" else [CONTROL]
        for kind, ports in (("control", controls), ("data", [DATA])):
            proxies = [FaultProxy(f"{near}:{port}", f"{self.host}:{port}") for port in ports]
            self.proxies[kind] = [self._stack.enter_context(proxy) for proxy in proxies]

    def _made(self, near: str, metadata: str) -> list[Server]:
        schedule = self.schedule
        given = dict(schedule.server)
        both = ["--durability", given.get("durability", "written"), "--advertise", self.host]
        both += ["--disk-timeout", str(DISK_TIMEOUT_S)]
        snapshots = ["--snapshot-every", given["snapshot-every"]] if "snapshot-every" in given else []
        mastering = ["--app-timeout", str(APP_TIMEOUT_S), "--worker-timeout", str(WORKER_TIMEOUT_S), *snapshots]
        working = ["--free-floor", "0", "--overload-timeout", "5"]
        if "tier-after" in given:
            working += ["--tier", f"file://{self.root}/tier", "--tier-after", given["tier-after"]]

        def listen(port: int) -> list[str]:
            return ["--listen", f"{near}:{port}"]

        def data(number: int) -> list[str]:
            # Only the first worker is reached through a proxy, if there is one.
            return ["--data-listen", f"{near if number == 0 else self.host}:{DATA + number}"]

        def make(name: str, role: str, *options: str) -> Server:
            return Server(name, self.root, [role, *both, *options], schedule.directories, schedule.bugs)

        if schedule.topology == "server":
            return [make("server", "server", *listen(CONTROL), *mastering, *working, *data(0))]
        workers = [
            make(f"worker-{number}", "worker", "--master", self.server, *working, *data(number)) for number in range(2)
        ]
        if schedule.topology == "cluster":
            return [make("master", "master", *listen(CONTROL), *mastering), *workers]
        masters = [
            make(name, "master", *listen(port), *mastering, "--metadata", metadata)
            for name, port in (("master", CONTROL), ("standby", STANDBY))
        ]
        return [*masters, *workers]

    def heal(self) -> None:
        """Whatever is wrong with disks and connections is no more, and all servers run."""
        for proxy in (each for some in self.proxies.values() for each in some):
            proxy.thaw()
        for server in self.servers:
            with server.lock:
                if server.child is not None and server.child.frozen:
                    server.child.thaw()
                if not server.running:
                    server.launch()
        if self.schedule.topology == "standby":
            deadline = time.monotonic() + READY_S
            while not any(master.ready and master.running for master in self.masters):
                if time.monotonic() > deadline:
                    raise Hung("no master leads: " + "\n".join(master.stacks() for master in self.masters))
                time.sleep(LOOK_S)
        for server in self.servers:
            if server.name not in ("master", "standby") or self.schedule.topology != "standby":
                server.await_ready()

    def files(self) -> list[str]:
        """Those of map outputs, whatever run they are of."""
        found = []
        for server in self.workers:
            for root in server.directories:
                found += [str(path.relative_to(self.root)) for path in files_below(root / "worker" / "apps")]
        return found

    def stacks(self) -> str:
        return "\n".join(server.stacks() for server in self.servers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def _free_host() -> str:
    """An address of this machine for one schedule, so that its ports are always free: 127.x.y.1."""
    chance = random.Random(f"{os.getpid()} {time.monotonic_ns()} {threading.get_ident()}")
    while True:
        host = f"127.{chance.randrange(1, 255)}.{chance.randrange(1, 255)}.1"
        try:
            for port in (CONTROL, STANDBY, DATA):
                socket.create_server((host, port)).close()
            return host
        except OSError:
            continue  # another run has it
