"""One process of a run, a source or an operator.

A source with a rate stamps each record with the time it was due, not with the time it was sent: waiting counts.
"""

from __future__ import annotations

import itertools
import resource
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np

from bench.streaming import words
from bench.streaming.checkpoint_store import CheckpointStore, KeyedState
from bench.streaming.identity import Maker, Operator
from bench.streaming.plan import WORDCOUNT, Case, OperatorResult, SourceResult, Task
from shuffle_api import MapAttempt
from shuffle_api.streaming import Barrier, Captured
from shuffle_plugins.pipelined import DataBlock, PipelinedShuffle, PipelinedWriter

SAMPLES = 20_000  # latencies that an operator reports
MEMORY_EVERY_S = 0.25
LATE_S = 0.25  # a barrier that is later than that is left out


def run_task(task: Task) -> SourceResult | OperatorResult:
    """All of it, with a plugin of its own."""
    with PipelinedShuffle(task.options) as plugin:
        return run_source(task, plugin) if task.role == "source" else run_operator(task, plugin)


class Barriers:
    """Emits the barriers of a source, the n-th n intervals after the common start, beside the thread that writes.

    A write may wait for room as long as it likes; the checkpoint does not wait for it.
    """

    def __init__(self, task: Task, writer: PipelinedWriter, store: CheckpointStore | None) -> None:
        self._writer, self._start, self._interval = writer, task.start, task.case.checkpoint_s
        self._store, self._timeout = store, task.case.timeout_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="barriers")
        self._active = task.case.guarantee != "at_most_once"

    def __enter__(self) -> Self:
        if self._active:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._active:
            self._thread.join()

    def _run(self) -> None:
        for checkpoint in itertools.count(1):
            due = self._start + checkpoint * self._interval
            if self._over.wait(max(0.0, due - time.monotonic())):
                return
            if time.monotonic() - due < LATE_S:  # this process may have come up late; others have gone on then
                self._writer.emit(Barrier(checkpoint))
                if self._store is not None:
                    self._store.put(checkpoint, self._writer.state(checkpoint, self._timeout))


class Watch:
    """The memory of a source, now and then."""

    def __init__(self) -> None:
        self.memory: list[int] = []
        self._next = 0.0

    def look(self) -> None:
        """Take a sample, if it is time."""
        if (now := time.monotonic()) >= self._next:
            self._next = now + MEMORY_EVERY_S
            self.memory.append(_resident_bytes())


def run_source(task: Task, plugin: PipelinedShuffle) -> SourceResult:
    """Write all records, with barriers meanwhile."""
    case, watch = task.case, Watch()
    with plugin.writer(task.handle, MapAttempt(task.index, 0)) as writer, _store(task) as store:
        _sleep_until(task.start)
        began = time.monotonic()
        with Barriers(task, writer, store):
            if case.workload == WORDCOUNT:
                number_sum = _send_lines(writer, case, watch)
            elif case.rate:
                number_sum = _send_at_rate(writer, case, task.index, watch)
            else:
                number_sum = _send_all(writer, case, task.index, watch)
        writer.commit()
        seconds = time.monotonic() - began
        writer.drain(case.timeout_s)
        statistics = writer.statistics()
    return SourceResult(
        case.records,
        number_sum,
        seconds,
        _cpu(),
        tuple(watch.memory),
        statistics.back_pressured_seconds,
        store.stored_ms if store is not None else {},
    )


def _send_all(writer: PipelinedWriter, case: Case, index: int, watch: Watch) -> int:
    maker = Maker(case.block_records, index, case.parallelism)
    left, partition = case.records, index
    while left:
        count = min(left, case.block_records)
        writer.write_block(partition % case.parallelism, maker.block(count, time.monotonic_ns()), count)
        partition += 1
        left -= count
        watch.look()
    return maker.number_sum


def _send_at_rate(writer: PipelinedWriter, case: Case, index: int, watch: Watch) -> int:
    most = max(1, int(case.rate * case.tick_s * 50))  # a source that was held up catches up in pieces
    maker = Maker(most, index, case.parallelism)
    began, sent, partition = time.monotonic(), 0, index
    while sent < case.records:
        wanted = min(case.records, int((time.monotonic() - began) * case.rate))
        if wanted == sent:
            time.sleep(case.tick_s)
            continue
        count = min(most, wanted - sent)
        due = ((began + np.arange(sent, sent + count) / case.rate) * 1e9).astype(np.int64)
        writer.write_block(partition % case.parallelism, maker.block(count, due), count)
        partition += 1
        sent += count
        watch.look()
        time.sleep(case.tick_s)
    return maker.number_sum


def _send_lines(writer: PipelinedWriter, case: Case, watch: Watch) -> int:
    lines, left = words.Lines(case.words, min(case.block_records, words.TABLE)), case.records
    while left:
        batch = words.parse(lines.next(left))
        for partition, payload in words.by_partition(batch, case.parallelism).items():
            if payload:
                writer.write_block(partition, payload, len(payload) // words.FRAMED)
        left -= batch.num_rows
        watch.look()
    return 0


def run_operator(task: Task, plugin: PipelinedShuffle) -> OperatorResult:
    """Process everything; snapshot at barriers, acknowledge what a checkpoint covers."""
    case, share = task.case, task.case.records // 3
    operator: Any = words.Counter() if case.workload == WORDCOUNT else Operator()
    pace = Pace(case.consume_rate)
    begun: dict[int, float] = {}
    took: list[float] = []
    warm_at = warm_records = 0.0
    kept, snapshot = KeyedState(case.state_bytes), None
    with plugin.reader(task.handle, range(task.index, task.index + 1)) as reader, _store(task) as store:
        for event in reader.events():
            if isinstance(event, DataBlock):
                count = operator.take(event.payload)
                kept.update(count)
                pace.wait(count)
                if not warm_at and operator.records >= share:
                    warm_at, warm_records = time.monotonic(), operator.records
            elif isinstance(event, Barrier):
                begun[event.checkpoint] = task.start + event.checkpoint * case.checkpoint_s
                operator.snapshot()
                snapshot = kept.snapshot() if store is not None and store.whole(event.checkpoint) else None
            elif isinstance(event, Captured):
                took.append((time.monotonic() - begun[event.checkpoint]) * 1e3)
                if store is None:
                    reader.acknowledge(event.checkpoint)
                else:
                    store.put(event.checkpoint, event.state, snapshot)
            for checkpoint in store.materialized() if store is not None else ():
                reader.acknowledge(checkpoint)
        ended = time.monotonic()
    latencies = operator.latencies_ms()
    latencies = latencies[len(latencies) // 3 :]
    return OperatorResult(
        records=operator.records,
        number_sum=operator.number_sum,
        windows=operator.windows,
        steady_records=operator.records - int(warm_records),
        steady_s=ended - (warm_at or ended),
        cpu_s=_cpu(),
        latencies_ms=tuple(latencies[:: max(1, len(latencies) // SAMPLES)].tolist()),
        checkpoints_ms=tuple(took),
        stored_ms=store.stored_ms if store is not None else {},
        stored_bytes=store.stored_bytes if store is not None else 0,
    )


def _store(task: Task) -> AbstractContextManager[CheckpointStore | None]:
    return CheckpointStore(task) if task.case.stored else nullcontext()


class Pace:
    """Lets a slow operator be as slow as it is to be."""

    def __init__(self, rate: float) -> None:
        self._rate, self._next = rate, time.monotonic()

    def wait(self, records: int) -> None:
        """So many records were processed."""
        if self._rate:
            self._next = max(self._next, time.monotonic() - 1.0) + records / self._rate
            _sleep_until(self._next)


def _sleep_until(when: float) -> None:
    if (left := when - time.monotonic()) > 0:
        time.sleep(left)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
