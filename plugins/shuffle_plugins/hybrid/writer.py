"""The writer: all goes to the store by the remote plugin's writer; its blocks are offered to live readers as they are
made."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple
from weakref import ReferenceType, ref

from shuffle_api.buffer import Buffer
from shuffle_api.columnar.partitioners import Partitioner
from shuffle_api.errors import AttemptSuperseded, ShuffleError, StreamBroken
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShuffleWriter
from shuffle_api.periodic import PeriodicTask, guarded
from shuffle_api.values import MapOutput, ShuffleSpec
from shuffle_plugins.hybrid.result_partition import HybridResultPartition
from shuffle_plugins.hybrid.statistics import HybridWriterStatistics
from shuffle_plugins.remote.writer import RemoteWriter

_LEAST = 0.001  # seconds between looks
_LONG = 3600.0  # while there is nothing to look after; what is added wakes the task


class HybridWriter(ShuffleWriter):
    """One attempt of one map. It waits for the store, as the remote plugin's writer does, and for no reader.

    :param store: its tap is the subpartitions' `offer`.
    :param result_partition: None: readers get it from the store alone.
    :param leave: reports to the driver that readers cannot get the attempt, and why; may raise ShuffleError.
    :param flush_timeout: seconds that a record may wait for its block while a live reader waits for it.
    """

    def __init__(
        self,
        spec: ShuffleSpec,
        attempt: MapAttempt,
        store: RemoteWriter,
        result_partition: HybridResultPartition | None,
        leave: Callable[[ShuffleError], None],
        flush_timeout: float,
    ) -> None:
        self._spec, self._attempt, self._store, self._result_partition, self._leave = (
            spec,
            attempt,
            store,
            result_partition,
            leave,
        )
        self._flush_timeout = flush_timeout
        self._write = store.write
        self._lock = threading.Lock()  # the store's writer belongs to one thread at a time: the task's or the flusher's
        self._dirty_since: float | None = None  # the time from which records may wait for their block
        self._failure: ShuffleError | None = None  # of a flush that nobody called: the next call raises it
        self._closed = False

    def write(self, partition: int, record: Buffer) -> None:
        with self._lock:
            if self._failure is not None:
                raise self._failure
            self._write(partition, record)
            if self._dirty_since is None:
                self._dirty_since = time.monotonic()

    def write_block(self, partition: int, payload: Buffer, records: int) -> None:
        """See `RemoteWriter.write_block`."""
        with self._lock:
            self._check()
            self._store.write_block(partition, payload, records)

    def write_batch(self, batch: Any, partitioner: Partitioner) -> None:
        """See `shuffle_api.columnar.SupportsWriteBatch`."""
        with self._lock:
            self._check()
            self._store.write_batch(batch, partitioner)
            if self._dirty_since is None:
                self._dirty_since = time.monotonic()

    def flush(self) -> None:
        """Let live readers have all that was written so far. Does not wait for them."""
        with self._lock:
            self._check()
            self._flush(range(self._spec.partitions))

    def flush_late(self, now: float) -> None:
        """The plugin's: flush if a live reader waits and it is time; not while the task is in a call."""
        since = self._dirty_since
        if since is None or now - since < self._flush_timeout or not self._lock.acquire(blocking=False):
            return
        try:
            if not self._closed and self._failure is None and self._result_partition is not None:
                self._flush(self._result_partition.wanted)
        finally:
            self._lock.release()

    def fail(self, error: ShuffleError) -> None:
        """The plugin's: what was written cannot be sent, so that every call but `abort` raises `error` from now on."""
        with self._lock:
            self._failure = self._failure or error
            self._dirty_since = None

    def commit(self) -> MapOutput:
        with self._lock:
            self._check()
            winner = self._store.commit()
            if self._closed:
                return winner
            self._closed = True
        if self._result_partition is not None:
            if winner.output == self._attempt:
                self._result_partition.commit()
            else:
                self._give_up(
                    AttemptSuperseded(
                        f"attempt {winner.output.attempt} of map {winner.output.map} has committed first",
                        worker=winner.worker,
                        shuffle=self._spec.id,
                        output=winner.output,
                    )
                )
        return winner

    def abort(self) -> None:
        with self._lock:
            self._store.abort()
            if self._closed:
                return
            self._closed = True
        if self._result_partition is not None:
            self._give_up(
                StreamBroken(
                    f"the writer of {self._attempt} gave up before its end",
                    remedy="wait for its next attempt",
                    shuffle=self._spec.id,
                    output=self._attempt,
                )
            )

    def statistics(self) -> HybridWriterStatistics:
        """What live readers got, and what they did not."""
        if self._result_partition is None:
            return HybridWriterStatistics(0.0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ())
        return self._result_partition.statistics()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _flush(self, partitions: Collection[int]) -> None:
        if partitions and self._store.finish_blocks(partitions):
            self._dirty_since = None

    def _give_up(self, error: ShuffleError) -> None:
        assert self._result_partition is not None
        self._result_partition.fail(error)  # readers hear why before they find that there is nothing here
        try:
            self._leave(error)
        except ShuffleError:
            pass  # whoever reads has heard it from the subpartitions


class _Flushed(NamedTuple):
    result_partition: HybridResultPartition
    writer: ReferenceType[HybridWriter]
    leave: Callable[[], None]


class HybridOutputFlusher:
    """One task per plugin that does what is due: cuts subpartitions that wait too long, flushes what live readers wait
    for. It sleeps while there is nothing to look after. What fails for one writer fails that writer, with its reason,
    and no other. Close it.

    :param pause: seconds between looks.
    """

    def __init__(self, pause: float) -> None:
        self._lock = threading.Lock()
        self._entries: list[_Flushed] = []
        self._task = PeriodicTask("hybrid-flusher", self._look, max(_LEAST, pause))

    def add(self, result_partition: HybridResultPartition, writer: HybridWriter, leave: Callable[[], None]) -> None:
        """Look after the subpartitions of `writer` until they are over, then call `leave`."""
        with self._lock:
            self._entries.append(_Flushed(result_partition, ref(writer), leave))
        self._task.start()
        self._task.wake()

    def close(self) -> None:
        """End the thread. Idempotent."""
        self._task.close()

    def _look(self) -> float | None:
        with self._lock:
            entry = list(self._entries)
        now = time.monotonic()
        for each in entry:
            name = f"the flush of {each.result_partition.attempt} of {each.result_partition.spec.id}"
            guarded(name, partial(_flush, each, now), partial(_fail_writer, each))
        over = [each for each in entry if each.result_partition.over]
        with self._lock:
            self._entries = [each for each in self._entries if each not in over]
        for each in over:
            each.leave()
        return None if len(entry) > len(over) else _LONG


def _flush(entry: _Flushed, now: float) -> None:
    entry.result_partition.spill_late(now)
    writer = entry.writer()
    if writer is not None:
        writer.flush_late(now)


def _fail_writer(entry: _Flushed, error: ShuffleError) -> None:
    """The writer raises it with its next call. Its subpartitions carry no gap: what was not flushed was not offered."""
    writer = entry.writer()
    if writer is not None:
        writer.fail(error)
