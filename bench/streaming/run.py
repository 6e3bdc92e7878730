"""Runs one case: a driver with the master, a process per task; checks that what was written is what was read."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from bench.streaming import words
from bench.streaming.plan import WORDCOUNT, Case, OperatorResult, SourceResult, Task
from shuffle_plugins.pipelined import PipelinedShuffle

ROOT = Path(__file__).parents[2]
ROOTS = (".", "shuffle_api", "transport", "plugins", "remote_service")
START_S = 1.5  # from here until all processes are up; one that is late only starts late


@dataclass(frozen=True)
class Outcome:
    """What a case came to, over all its tasks."""

    case: Case
    sources: tuple[SourceResult, ...]
    operators: tuple[OperatorResult, ...]

    @cached_property
    def records_s(self) -> float:
        """Records per second that all operators together took, after the first third."""
        return sum(each.steady_records / each.steady_s for each in self.operators if each.steady_s)

    @cached_property
    def latencies_ms(self) -> np.ndarray:
        return np.sort(np.concatenate([np.asarray(each.latencies_ms) for each in self.operators]))

    @property
    def tasks(self) -> list[SourceResult | OperatorResult]:
        """Of all of them."""
        return [*self.sources, *self.operators]

    @cached_property
    def stored_ms(self) -> list[float]:
        """Ascending: from when a checkpoint was due until all tasks had stored their parts; of those that all have.

        Without the first third, in which tasks start and connect, and the last two, which meet their end.
        """
        parts = [each.stored_ms for each in self.tasks]
        whole = sorted(set(parts[0]).intersection(*parts[1:]))
        steady = whole[len(whole) // 3 : -2] if len(whole) > 3 else whole
        return sorted(max(part[checkpoint] for part in parts) for checkpoint in steady)

    def latency_ms(self, quantile: float) -> float | None:
        """A quantile of the sample; None without one."""
        if not len(self.latencies_ms):
            return None
        return float(self.latencies_ms[int(quantile * (len(self.latencies_ms) - 1))])

    def as_json(self) -> dict[str, object]:
        """What the report keeps."""
        checkpoints = [ms for each in self.operators for ms in each.checkpoints_ms]
        return {
            "records_s": round(self.records_s),
            "latency_ms": {
                name: round(found, 3)
                for name, quantile in (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
                if (found := self.latency_ms(quantile)) is not None
            },
            "checkpoint_ms": {
                "count": len(checkpoints),
                "median": round(float(np.median(checkpoints)), 2) if checkpoints else None,
                "max": round(max(checkpoints), 2) if checkpoints else None,
            },
            "cpu_s": {
                "sources": round(sum(each.cpu_s for each in self.sources), 2),
                "operators": round(sum(each.cpu_s for each in self.operators), 2),
            },
            "source_memory_bytes": [list(each.memory) for each in self.sources],
            "back_pressured_s": [round(each.back_pressured_s, 3) for each in self.sources],
        }


def run(case: Case) -> Outcome:
    """Run it in processes of its own.

    :raises SystemExit: a task failed, did not end in time, or what arrived is not what was sent.
    """
    options = {"guarantee": case.guarantee, "alignment": case.alignment, "timeout": str(case.timeout_s), **case.options}
    with PipelinedShuffle(options) as plugin, plugin.master(f"bench-{os.getpid()}-{time.monotonic_ns()}") as master:
        handle = master.register_shuffle(case.parallelism, case.parallelism)
        start = time.monotonic() + START_S
        tasks = [
            Task(role, index, case, handle, options, start)
            for role in ("operator", "source")
            for index in range(case.parallelism)
        ]
        results = _run(tasks, case.timeout_s)
    outcome = Outcome(
        case,
        tuple(each for each in results if isinstance(each, SourceResult)),
        tuple(each for each in results if isinstance(each, OperatorResult)),
    )
    check(outcome)
    return outcome


def check(outcome: Outcome) -> None:
    """:raises SystemExit: records are missing, or came twice, or windows are wrong."""
    case = outcome.case
    sent, got = case.records * case.parallelism, sum(each.records for each in outcome.operators)
    if sent != got:
        raise SystemExit(f"{case.workload}: {got} of {sent} records arrived")
    numbers = sum(each.number_sum for each in outcome.sources), sum(each.number_sum for each in outcome.operators)
    if numbers[0] != numbers[1]:
        raise SystemExit(
            f"{case.workload}: the numbers that arrived add up to {numbers[1]}, those sent to {numbers[0]}"
        )
    if case.workload == WORDCOUNT:
        windows = sum(each.windows for each in outcome.operators)
        expected = words.expected_windows(case.records, case.parallelism, case.words)
        if windows != expected:
            raise SystemExit(f"{case.workload}: {windows} windows instead of {expected}")


def _run(tasks: list[Task], timeout: float) -> list[object]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(ROOT / root) for root in ROOTS)}
    running: list[subprocess.Popen[bytes]] = []
    deadline = time.monotonic() + timeout
    try:
        for task in tasks:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.streaming.task"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                env=environment,
            )
            running.append(process)
            assert process.stdin is not None
            process.stdin.write(pickle.dumps(task))
            process.stdin.close()
        return [_result(process, task, deadline) for process, task in zip(running, tasks, strict=True)]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _result(process: subprocess.Popen[bytes], task: Task, deadline: float) -> object:
    process.stdin = None  # closed above; communicate would flush it
    try:
        said, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{task.role} {task.index} has not ended within {task.case.timeout_s:g} s") from None
    if process.returncode:
        raise SystemExit(f"{task.role} {task.index} ended with status {process.returncode}")
    return pickle.loads(said)
