"""Seeded faults: tasks and relays killed or frozen at random moments, the outcome compared with an oracle.

    python -m bench.streaming.faults --runs 300 --json faults.json

A run has two producers and two consumers in processes of their own. Whoever dies is started again from the last
complete checkpoint, as the guarantee wants it: see `Supervisor.recover`. In the `logged_` cases consumers store their
state at every fourth checkpoint only, and are replayed to from the producers' logs on disk. In the `relayed_` cases all
tasks, and the driver, reach each other through a worker only; it is struck too, and started again when it was killed.
The oracle: every number counts once (exactly_once), at least once (at_least_once), at most once (at_most_once); and the
run ends within its deadline.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pickle
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from bench.ending import unwind_when_told_to_end
from bench.streaming.faults_plan import CASES, CONSUMERS, PARTITIONS, PRODUCERS, Fault, case_of, faults_of
from bench.streaming.faults_task import RECORD, Task, run_task
from bench.streaming.relay_process import RelayProcess
from shuffle_api.interfaces import OptionValue
from shuffle_api.streaming import key_group_range
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.pipelined import PipelinedShuffle

MATERIALIZE_EVERY = 4
CHECKPOINT_EVERY, CHECKPOINT_WITHIN = 0.1, 2.0
FROZEN_IS_DEAD = 1.0  # seconds after which the supervisor gives a frozen task up
DEADLINE = 240.0

Name = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run. `wrong` is empty if the guarantee held."""

    case: str
    seed: int
    seconds: float
    faults: list[dict[str, object]]
    restarts: int
    global_restarts: int
    checkpoints: int
    lost: int
    repeated: int
    wrong: str


@dataclass(slots=True)
class Running:
    """A task's process."""

    process: ForkServerProcess
    orders: Connection
    frozen_at: float | None = None


class Supervisor:
    """One run: starts tasks, coordinates checkpoints, strikes, recovers."""

    def __init__(
        self, case: str, seed: int, directory: Path, *, records: int = 12_000, relay: RelayProcess | None = None
    ) -> None:
        self.case, self.seed, self.directory, self.records = case, seed, directory, records
        chance = random.Random(f"{case} {seed}")
        self.faults = faults_of(case, seed)
        parts = case_of(case)
        self.guarantee, self.relay = parts.guarantee, relay
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
            self.options["relay"] = relay.address
        if parts.logged:
            self.every = MATERIALIZE_EVERY
            self.options |= {"log_dir": str(directory / "log"), "log_bytes": chance.choice([0, 4 << 10, 64 << 10])}
        self.attempts: Counter[Name] = Counter()
        self.running: dict[Name, Running] = {}
        self.zombies: list[ForkServerProcess] = []
        self.thaw: list[tuple[float, int]] = []
        self.finished: dict[int, int] = {}
        self.complete = self.materialized = -1
        self.pending: dict[int, set[Name]] = {}
        self.last, self.triggered_at = -1, 0.0
        self.restarts = self.global_restarts = 0
        self.due = list(self.faults)

    def run(self) -> Outcome:
        """To its end, or its deadline."""
        began = time.monotonic()
        wrong = ""
        with PipelinedShuffle(self.options) as plugin, plugin.master(f"faults-{os.getpid()}-{self.seed}") as master:
            self.handle = master.register_shuffle(PARTITIONS, PRODUCERS)
            try:
                self.start_all()
                while len(self.finished) < CONSUMERS and not wrong:
                    self.step(time.monotonic() - began)
                    if time.monotonic() - began > DEADLINE:
                        wrong = f"not finished within {DEADLINE:g} s"
                    time.sleep(0.01)
            finally:
                self.end_all()
        lost, repeated, strange = self.compare()
        bad = {
            "at_most_once": repeated,
            "at_least_once": lost,
        }.get(self.guarantee, lost + repeated)
        if not wrong and (bad or strange):
            wrong = f"{lost} lost, {repeated} repeated, {strange} never written"
        seconds = time.monotonic() - began
        faults = [asdict(fault) for fault in self.faults]
        counts = (self.restarts, self.global_restarts, self.complete + 1, lost, repeated)
        return Outcome(self.case, self.seed, round(seconds, 2), faults, *counts, wrong)

    def step(self, now: float) -> None:
        """Look at everything once."""
        while self.due and self.due[0].at <= now:
            self.strike(self.due.pop(0))
        for at, pid in list(self.thaw):
            if time.monotonic() >= at:
                self.thaw.remove((at, pid))
                _signal(pid, signal.SIGCONT)
        for name, task in list(self.running.items()):
            self.hear(name, task)
        for name, task in list(self.running.items()):
            if self.running.get(name) is not task:
                continue
            if task.frozen_at is not None and time.monotonic() - task.frozen_at > FROZEN_IS_DEAD:
                self.recover(name, failed=False)
            elif not task.process.is_alive() and not (name[0] == "consumer" and name[1] in self.finished):
                self.hear(name, task)
                if not (name[0] == "consumer" and name[1] in self.finished):
                    self.recover(name, failed=task.process.exitcode == 2)
        self.checkpoint()

    def hear(self, name: Name, task: Running) -> None:
        try:
            while task.orders.poll():
                what, number = task.orders.recv()
                if what == "finished":
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
        if number % self.every:
            return  # no consumer has stored its state
        self.materialized = number
        for name, task in self.running.items():
            if name[0] == "consumer":
                _order(task.orders, number)

    def strike(self, fault: Fault) -> None:
        if self.relay is not None and fault.kind == "relay":
            if not fault.frozen:
                self.relay.strike()
            elif (stopped := self.relay.freeze()) is not None:
                self.thaw.append((time.monotonic() + fault.frozen, stopped))
            return
        task = self.running.get((fault.kind, fault.index))
        if task is None or not task.process.is_alive() or task.frozen_at is not None:
            return
        pid = task.process.pid
        assert pid is not None
        if fault.frozen:
            _signal(pid, signal.SIGSTOP)
            self.thaw.append((time.monotonic() + fault.frozen, pid))
            task.frozen_at = time.monotonic() if fault.frozen > FROZEN_IS_DEAD else None
        else:
            _signal(pid, signal.SIGKILL)

    def recover(self, name: Name, *, failed: bool) -> None:
        """Start again whom the guarantee wants started again.

        A producer of exactly_once takes everything with it: all go back to the last complete checkpoint. A consumer
        goes back alone, and is replayed to; if it cannot be, all go back.
        """
        everything = failed and self.guarantee != "at_most_once"
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
        ours, theirs = CONTEXT.Pipe()
        process = CONTEXT.Process(target=run_task, args=(kind, task, theirs), daemon=True)
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


def run(case: str, seed: int, *, records: int = 12_000) -> Outcome:
    """One run, in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="faults-") as directory, ExitStack() as stack:
        relay = stack.enter_context(RelayProcess(Path(directory))) if case_of(case).relayed else None
        return Supervisor(case, seed, Path(directory), records=records, relay=relay).run()


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


CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["bench.streaming.faults_task"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 1 if a guarantee did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="in all, spread over the cases")
    parser.add_argument("--seed", type=int, default=0, help="of the first run of each case")
    parser.add_argument("--case", choices=CASES, action="append", help="only this; may be repeated")
    parser.add_argument("--json", type=Path, help="write the outcomes there")
    parser.add_argument("--records", type=int, default=12_000, help="of each producer")
    chosen = parser.parse_args(arguments)
    cases = chosen.case or CASES
    outcomes = []
    for number in range(chosen.runs):
        case, seed = cases[number % len(cases)], chosen.seed + number // len(cases)
        outcome = run(case, seed, records=chosen.records)
        outcomes.append(outcome)
        print(f"{number + 1}/{chosen.runs} {outcome}", flush=True)
        if chosen.json:
            chosen.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n")
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    print(f"{len(outcomes)} runs, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    unwind_when_told_to_end()
    sys.exit(main())
