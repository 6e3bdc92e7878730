"""Runs one case: a driver with the master, a process per task; checks that what was written is what was read."""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bench.harness.apart import at_once
from bench.streaming import words
from bench.streaming.plan import WORDCOUNT, Case, OperatorResult, SourceResult, Task
from bench.streaming.task import run_task
from shuffle_api.errors import ShuffleError
from shuffle_plugins.pipelined import PipelinedShuffle

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
        try:
            results = at_once(run_task, [(task,) for task in tasks], case.timeout_s)
        except multiprocessing.TimeoutError:
            raise SystemExit(f"{case.workload}: a task has not ended within {case.timeout_s:g} s") from None
        except ShuffleError as error:
            raise SystemExit(f"{case.workload}: {error}") from error
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
