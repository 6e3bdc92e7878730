"""A streaming job: tasks and relays killed, frozen or cut off, and the numbers counted that come out.

Two producers and two consumers are processes of their own. A task that dies is started again from the last complete
checkpoint, as the guarantee wants it: see `Supervisor.recover`. In the `logged_` cases consumers store their state at
every fourth checkpoint only, and are replayed to from the producers' logs on disk. In the `relayed_` cases all tasks,
and the driver, reach each other through a worker only.
The law: every number counts once (exactly_once), at least once (at_least_once), at most once (at_most_once); and the
run ends within its deadline.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from bench.harness.files import files_below
from shuffle_api.interfaces import OptionValue
from shuffle_api.streaming import key_group_range
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.pipelined import PipelinedShuffle
from tests.faults.explore.ledger import Finding
from tests.faults.explore.processes import CONTEXT
from tests.faults.explore.schedule import Fault, Schedule
from tests.faults.explore.stall import Patience
from tests.faults.explore.streaming_cases import CONSUMERS, PARTITIONS, PRODUCERS, case_of
from tests.faults.explore.streaming_task import DAMAGED, FAILED, RECORD, Task, run_task
from tests.faults.explore.strikes import flip
from tests.faults.fault_proxy import FaultProxy
from tests.relay_process import RelayProcess

MATERIALIZE_EVERY = 4
CHECKPOINT_EVERY, CHECKPOINT_WITHIN = 0.1, 2.0
FROZEN_IS_DEAD = 1.0  # seconds after which the supervisor gives a frozen task up
DEADLINE = 120.0

Name = tuple[str, int]


class TaskCrashed(Exception):
    """A task's process ended by a signal that nobody sent."""


@dataclass(slots=True)
class Running:
    """A task's process."""

    process: ForkServerProcess
    orders: Connection
    frozen_at: float | None = None


class Supervisor:
    """One run: starts tasks, coordinates checkpoints, strikes, recovers."""

    def __init__(
        self, schedule: Schedule, directory: Path, relay: RelayProcess | None, proxy: FaultProxy | None
    ) -> None:
        self.schedule, self.directory, self.records = schedule, directory, schedule.records
        chance = random.Random(f"{schedule.case} {schedule.seed}")
        parts = case_of(schedule.case)
        self.guarantee, self.relay, self.proxy = parts.guarantee, relay, proxy
        self.options: dict[str, OptionValue] = {
            "guarantee": parts.guarantee,
            "alignment": parts.alignment,
            "alignment_timeout": 0.05,
            "keepalive": 1.0,  # dead after 3 s
            "timeout": 60.0,
            "block_bytes": chance.choice([64, 256, 2048]),
            "queue_bytes": chance.choice([4 << 10, 64 << 10]),
            "log_bytes": chance.choice([64 << 10, 8 << 20]),
            "flush_timeout": 0.005,
        }
        self.pause = chance.choice([0.004, 0.008])
        self.every = 1
        if relay is not None:
            self.options["relay"] = relay.address if proxy is None else proxy.address
        if parts.logged:
            self.every = MATERIALIZE_EVERY
            self.options |= {"log_dir": str(directory / "log"), "log_bytes": chance.choice([0, 4 << 10, 64 << 10])}
        self.attempts: Counter[Name] = Counter()
        self.running: dict[Name, Running] = {}
        self.zombies: list[ForkServerProcess] = []
        self.later: list[tuple[float, Callable[[], object]]] = []
        self.finished: dict[int, int] = {}
        self.complete = self.materialized = -1
        self.pending: dict[int, set[Name]] = {}
        self.last, self.triggered_at = -1, 0.0
        self.restarts = self.global_restarts = 0
        self.events: Counter[str] = Counter()
        self.damaged = False

    def run(self) -> list[Finding]:
        """To its end, or its deadline."""
        patience = Patience(DEADLINE)
        name = f"stream-{os.getpid()}-{self.schedule.seed}"
        with PipelinedShuffle(self.options) as plugin, plugin.master(name) as master:
            self.handle = master.register_shuffle(PARTITIONS, PRODUCERS)
            try:
                self.start_all()
                while len(self.finished) < CONSUMERS:
                    self.step()
                    if patience.is_over():
                        return [Finding("hang", f"not finished within {DEADLINE:g} s; {self.restarts} restarts")]
                    time.sleep(0.01)
            finally:
                self.end_all()
        lost, repeated, strange = self.compare()
        found = {"lost": lost, "repeated": repeated, "foreign": strange}
        if self.guarantee in ("at_most_once", "at_least_once"):
            found[{"at_most_once": "lost", "at_least_once": "repeated"}[self.guarantee]] = 0
        return [Finding(kind, f"{count} records of {self.schedule.case}") for kind, count in found.items() if count]

    def step(self) -> None:
        """Look at everything once."""
        now = time.monotonic()
        for due in [each for each in self.later if each[0] <= now]:
            self.later.remove(due)
            due[1]()
        for name, task in list(self.running.items()):
            self.hear(name, task)
        for name, task in list(self.running.items()):
            if self.running.get(name) is not task:
                continue
            if task.frozen_at is not None and time.monotonic() - task.frozen_at > FROZEN_IS_DEAD:
                self.recover(name, status=0)
            elif not task.process.is_alive() and not (name[0] == "consumer" and name[1] in self.finished):
                self.hear(name, task)
                if not (name[0] == "consumer" and name[1] in self.finished):
                    self.recover(name, status=task.process.exitcode or 0)
        self.checkpoint()

    def reached(self, event: str) -> None:
        """What is to strike at this moment strikes, or will."""
        number = self.events[event]
        self.events[event] += 1
        for fault in self.schedule.faults:
            if (fault.event, fault.nth) == (event, number):
                self.later.append((time.monotonic() + fault.after, partial(STRIKES[fault.kind], self, fault)))

    def hear(self, name: Name, task: Running) -> None:
        try:
            while task.orders.poll():
                what, number = task.orders.recv()
                if what == "wrote":
                    self.reached("wrote")
                elif what == "finished":
                    self.finished[name[1]] = number
                elif number in self.pending:
                    self.pending[number].discard(name)
                    if not self.pending[number]:
                        self.completed(number)
        except (EOFError, OSError):
            pass  # it is dead, which shows elsewhere

    def checkpoint(self) -> None:
        """Begin one, if none is under way, or that has taken too long."""
        if self.guarantee == "at_most_once":
            return
        now = time.monotonic()
        if now - self.triggered_at < (CHECKPOINT_WITHIN if self.pending else CHECKPOINT_EVERY):
            return
        if self.finished:
            return  # a consumer that has ended takes part in no more
        self.last, self.triggered_at = self.last + 1, now
        self.pending = {self.last: set(self.running)}
        for name, task in self.running.items():
            if name[0] == "producer":
                _order(task.orders, self.last)

    def completed(self, number: int) -> None:
        self.complete, self.pending = number, {}
        self.reached("checkpoint")
        if number % self.every:
            return  # no consumer has stored its state
        self.materialized = number
        for name, task in self.running.items():
            if name[0] == "consumer":
                _order(task.orders, number)

    def thaw_later(self, seconds: float, pid: int) -> None:
        self.later.append((time.monotonic() + seconds, lambda: _signal(pid, signal.SIGCONT)))

    def strike_task(self, fault: Fault) -> None:
        """Kill it, or stop it for a while (`amount`)."""
        count = PRODUCERS if fault.detail == "producer" else CONSUMERS
        task = self.running.get((fault.detail, fault.victim % count))
        if task is None or not task.process.is_alive() or task.frozen_at is not None:
            return
        pid = task.process.pid
        assert pid is not None
        if fault.amount:
            _signal(pid, signal.SIGSTOP)
            self.thaw_later(fault.amount, pid)
            task.frozen_at = time.monotonic() if fault.amount > FROZEN_IS_DEAD else None
        else:
            _signal(pid, signal.SIGKILL)

    def strike_relay(self, fault: Fault) -> None:
        assert self.relay is not None
        if not fault.amount:
            self.relay.strike()
        elif (stopped := self.relay.freeze()) is not None:
            self.thaw_later(fault.amount, stopped)

    def strike_network(self, fault: Fault) -> None:
        assert self.proxy is not None
        if fault.detail == "reset":
            self.proxy.reset()
        else:
            self.proxy.freeze()
            self.later.append((time.monotonic() + fault.amount, self.proxy.thaw))
            self.later.append((time.monotonic() + fault.amount, self.proxy.reset))

    def strike_log(self, fault: Fault) -> None:
        """A bit of each file of the logs flips, or a file is cut short; a consumer dies, so that it is replayed to."""
        found = sorted(path for path in files_below(self.directory / "log") if path.stat().st_size)
        chance = random.Random(fault.amount)
        if fault.detail == "flip":
            for path in found:
                flip(path, chance)
        elif found:
            path = chance.choice(found)
            os.truncate(path, int(path.stat().st_size * fault.amount))
        self.strike_task(Fault("task", detail="consumer", victim=fault.victim))

    def recover(self, name: Name, *, status: int) -> None:
        """Start again whom the guarantee wants started again.

        A producer of exactly_once takes everything with it: all go back to the last complete checkpoint. A consumer
        goes back alone, and is replayed to; if it cannot be, all go back.
        """
        if status < 0 and status not in (-signal.SIGKILL, -signal.SIGTERM):
            raise TaskCrashed(f"{name} ended with signal {-status}")
        everything = status in (FAILED, DAMAGED) and self.guarantee != "at_most_once"
        if status == DAMAGED:
            self.forget_logs()
        if everything or (self.guarantee == "exactly_once" and name[0] == "producer"):
            self.global_restarts += 1
            self.pending = {}
            for other in list(self.running):
                self.leave(other)
            self.finished.clear()
            self.start_all()
        else:
            self.restarts += 1
            self.pending = {}
            self.leave(name)
            self.start(name)

    def forget_logs(self) -> None:
        """A log that consumers are replayed to from is damaged: all goes back to where they have stored their state."""
        for other in list(self.running):
            self.leave(other)
        shutil.rmtree(self.directory / "log", ignore_errors=True)
        self.complete = self.materialized

    def start_all(self) -> None:
        for index in range(PRODUCERS):
            self.start(("producer", index))
        for index in range(CONSUMERS):
            self.start(("consumer", index))

    def start(self, name: Name) -> None:
        kind, index = name
        attempt = self.attempts[name]
        self.attempts[name] += 1
        checkpoint = self.complete if kind == "producer" else self.materialized
        partitions = key_group_range(PARTITIONS, CONSUMERS, index) if kind == "consumer" else range(PARTITIONS)
        handle: ShuffleHandle = self.handle
        task = Task(
            handle,
            self.options,
            self.directory,
            index,
            attempt,
            checkpoint,
            self.records,
            partitions,
            self.pause,
            self.every,
        )
        log = self.directory / f"{kind}-{index}-{attempt}.log"
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=run_task, args=(kind, task, theirs, log, self.schedule.bugs), daemon=True)
        process.start()
        theirs.close()
        self.running[name] = Running(process, ours)

    def leave(self, name: Name) -> None:
        """The task does not count any more. One that is frozen stays, to come back as a ghost."""
        task = self.running.pop(name)
        if task.frozen_at is None:
            task.process.kill()
        task.orders.close()
        self.zombies.append(task.process)

    def end_all(self) -> None:
        for name in list(self.running):
            self.leave(name)
        for process in self.zombies:
            process.kill()
            process.join(10)

    def compare(self) -> tuple[int, int, int]:
        """How many numbers were lost, repeated, and never written by anybody."""
        seen: Counter[tuple[int, int]] = Counter()
        if self.guarantee == "at_most_once":
            for path in self.directory.glob("sink-*"):
                data = path.read_bytes()
                seen.update(RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size]))
        else:
            for index, attempt in self.finished.items():
                seen.update(pickle.loads((self.directory / f"result-{index}-{attempt}").read_bytes()))
        expected = {(map, number) for map in range(PRODUCERS) for number in range(self.records)}
        strange = sum(1 for key in seen if key not in expected)
        return len(expected - seen.keys()), sum(1 for count in seen.values() if count > 1), strange


def run_streaming(schedule: Schedule, directory: Path) -> list[Finding]:
    """What was wrong in one run."""
    with ExitStack() as stack:
        relay = stack.enter_context(RelayProcess(directory)) if case_of(schedule.case).relayed else None
        proxy = None
        if relay is not None and any(fault.kind == "network" for fault in schedule.faults):
            proxy = stack.enter_context(FaultProxy(relay.address))
        try:
            return Supervisor(schedule, directory, relay, proxy).run()
        except TaskCrashed as crashed:
            return [Finding("error", str(crashed))]


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _order(orders: Connection, what: int) -> None:
    try:
        orders.send(what)
    except OSError:
        pass  # it is dead, which shows elsewhere


STRIKES: dict[str, Callable[[Supervisor, Fault], None]] = {
    "task": Supervisor.strike_task,
    "relay": Supervisor.strike_relay,
    "network": Supervisor.strike_network,
    "log": Supervisor.strike_log,
}
