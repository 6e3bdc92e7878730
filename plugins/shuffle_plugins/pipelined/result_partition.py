"""Everything that one writer has written and its readers have not got: queues per reader, room, back-pressure.

One lock guards it; what waits, waits on that lock's condition, and I/O happens outside.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from shuffle_api.buffer import Buffer
from shuffle_api.errors import AttemptSuperseded, Overloaded, ShuffleError, UnknownShuffle
from shuffle_api.ids import MapAttempt
from shuffle_api.streaming import Alignment, Barrier, EndOfPartition, Marker, Position, WriterState
from shuffle_api.values import ShuffleSpec, Totals
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.in_flight_log import InFlightLog, NoInFlightLog
from shuffle_plugins.pipelined.queue_memory import QueueMemory
from shuffle_plugins.pipelined.statistics import PipelinedWriterStatistics
from shuffle_plugins.pipelined.stream_config import StreamConfig
from shuffle_plugins.pipelined.subpartition import Subpartition, Written, first_blocks, split
from shuffle_plugins.pipelined.subpartition_view import SubpartitionView

FIRST_RESERVATION = 1 << 20
MIN_LIMIT = 64 << 10
"""Bytes that may wait unsent however slow the readers are."""


class ResultPartition:
    """A writer's queues. Methods whose names begin with `locked_` want `changed` held.

    :param restore: go on from here.
    :param disk: the log on disk; not started.
    :ivar changed: the lock, notified when there is room, or data, or an error.
    """

    def __init__(
        self,
        spec: ShuffleSpec,
        attempt: MapAttempt,
        config: StreamConfig,
        memory: QueueMemory,
        *,
        restore: WriterState | None = None,
        disk: InFlightLog | None = None,
    ) -> None:
        self.spec, self.attempt, self.config = spec, attempt, config
        self.changed = threading.Condition()
        self.limit = self._most = memory.limit
        self._log_limit = memory.log_limit
        self._reservation = memory.pool.reserve(min(FIRST_RESERVATION, memory.limit), memory.timeout)
        restored = restore or WriterState(-1, attempt.map, (0,) * spec.partitions, 0)
        self.numbers = list(restored.numbers)
        self._markers, self._order = restored.markers, 0
        begin = restored.begin
        self._disk = disk or NoInFlightLog(begin)
        log = self._disk.recovered
        # Until a reader says which partitions it reads, each has a subpartition of its own.
        self._of = [
            Subpartition([p], log.start, keep=config.keeps, markers=log.markers, begin=begin, damage=log.damage)
            for p in range(spec.partitions)
        ]
        for entry in log.entries:
            for subpartition in self._of if isinstance(entry, SequencedMarker) else (self._of[entry.partition],):
                subpartition.restore(entry)
        self._subpartitions = list(self._of)
        self._subscriptions: dict[Subpartition, SubpartitionView] = {}
        self._captures: dict[int, tuple[WriterState, SequencedMarker, list[SequencedBlock]]] = {}
        self._settled: set[int] = set()  # checkpoints whose state somebody has, perhaps: it stays as it is
        self._unsent = self._log = self._memory = 0
        self._written = Written(spec.partitions)
        self._stalled = 0.0
        self._stalled_since: float | None = None
        self.error: ShuffleError | None = None
        self.committed = self._acknowledged = False
        self._consumed: set[int] = set()
        for block in restored.blocks:
            self._put(block.partition, block.number, block.payload, block.records)
        self._written = Written(spec.partitions)  # those were counted when they were written
        self._restored_records = restored.records

    def start_log(self) -> None:
        """This attempt counts: its blocks go to disk, and it owns the log that it goes on from."""
        self._disk.start(self._logged)

    # -------------------------------------------------------------------------------------- the writer

    def locked_wait_for_room(self, size: int, deadline: float) -> None:
        """Wait until `size` bytes may be put.

        :raises Overloaded: nobody took anything until `deadline` (time.monotonic).
        :raises ShuffleError: why this output is broken.
        """
        if self._has_room(size):
            return
        began = self._stalled_since = time.monotonic()
        try:
            while not self._has_room(size):
                self._check()
                if not self.changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    raise Overloaded(
                        f"no room for {size} bytes: {self._unsent} of {self.limit} wait for {self._readers()}",
                        remedy="see whether the reader is stuck, raise option 'timeout' or 'queue_bytes'",
                        shuffle=self.spec.id,
                        output=self.attempt,
                    )
        finally:
            self._stalled += time.monotonic() - began
            self._stalled_since = None

    def locked_put(self, partition: int, payload: Buffer, records: int) -> None:
        """Append a block, whether there is room or not."""
        self._check()
        number = self.numbers[partition]
        self.numbers[partition] = number + 1
        self._put(partition, number, payload, records)
        self.changed.notify_all()

    def locked_emit(self, marker: Marker) -> list[Callable[[], None]]:
        """Append a marker to every queue, or before everything in them. Returns what the caller is to call unlocked."""
        self._check()
        mark = SequencedMarker(self._next_order(), self._markers, marker)
        self._markers += 1
        self._disk.put(mark)
        calls: list[Callable[[], None]] = []
        if isinstance(marker, Barrier):
            state = self._state(marker.checkpoint)
            self._captures = {checkpoint: c for checkpoint, c in self._captures.items() if self._waits(c[1])}
            self._settled &= self._captures.keys() - {marker.checkpoint}
            self._captures[marker.checkpoint] = (state, mark, [])
            if self.config.overtakes_at_once or marker.unaligned:
                return self._overtake(marker.checkpoint, self._subpartitions)
        for subpartition in self._subpartitions:
            subpartition.put(mark)
        self.committed |= isinstance(marker, EndOfPartition)
        self.changed.notify_all()
        return calls

    def locked_overtake_late(self) -> list[Callable[[], None]]:
        """The time of barriers that are being aligned is up: those that still wait overtake."""
        calls: list[Callable[[], None]] = []
        for checkpoint, (_, mark, _) in self._captures.items():
            if checkpoint not in self._settled and self._waits(mark):
                calls += self._overtake(checkpoint, [each for each in self._subpartitions if each.waits(mark)])
            self._settled.add(checkpoint)
        return calls

    def locked_state(self, checkpoint: int) -> WriterState | None:
        """The writer at the barrier of this checkpoint; None while it may still overtake something, or is not logged.

        :raises StorageFailed: it can't be logged.
        """
        if checkpoint not in self._captures:
            return self._state(checkpoint) if self._disk.holds(self._order) else None
        state, mark, blocks = self._captures[checkpoint]
        if not self._disk.holds(mark.order):
            return None
        late = self.config.alignment is Alignment.ALIGNED_WITH_TIMEOUT and checkpoint not in self._settled
        if late and self._waits(mark):
            return None
        # A reader that connects again may queue the barrier again: it overtakes nothing any more.
        self._settled.add(checkpoint)
        return replace(state, blocks=tuple(block.in_flight(self.attempt.map) for block in blocks))

    def knows(self, checkpoint: int) -> bool:
        """Its barrier was emitted, and no later one since it went out; or the end, which passes every barrier."""
        return checkpoint in self._captures or self.committed

    @property
    def stalled(self) -> bool:
        """Somebody waits for room."""
        return self._stalled_since is not None

    @property
    def totals(self) -> Totals:
        """All that was put. Partitions are stored nowhere, so there is no digest."""
        return self._written.totals

    @property
    def consumed(self) -> bool:
        """It was committed, and every partition was read to its end."""
        return self.committed and len(self._consumed) == self.spec.partitions

    @property
    def connected(self) -> int:
        """Readers there are now."""
        return len(self._subscriptions)

    def fail(self, error: ShuffleError) -> None:
        """Readers and the writer get `error` from now on; frees everything. Idempotent."""
        with self.changed:
            if self.error is None:  # nobody will go on from a log of which all was acknowledged
                kept = first_blocks(self._subpartitions)
                self._acknowledged = self.committed and all(kept[p] >= self.numbers[p] for p in kept)
            self.error = self.error or error
            for subpartition in self._subpartitions:
                subpartition.clear()
            self._subpartitions = []
            self._captures.clear()
            self._count()
            self._reservation.close()
            self.changed.notify_all()
        self._disk.close()
        if self._acknowledged or isinstance(error, UnknownShuffle):
            self._disk.delete(shuffle=isinstance(error, UnknownShuffle))

    def statistics(self) -> PipelinedWriterStatistics:
        """Queues, log and back-pressure."""
        with self.changed:
            now = time.monotonic()
            waits = now - self._stalled_since if self._stalled_since is not None else 0.0
            return PipelinedWriterStatistics(
                open_seconds=now - self._written.since,
                queued_bytes=self._unsent,
                queue_limit=self.limit,
                logged_bytes=self._log,
                log_disk_bytes=self._disk.size,
                reserved_bytes=self._reservation.size,
                blocks=self._written.totals.blocks,
                bytes=sum(self._written.bytes),
                records=sum(self._written.records),
                forgotten_blocks=sum(subpartition.forgotten for subpartition in self._subpartitions),
                back_pressured_seconds=self._stalled + waits,
                subpartitions=self._written.progress(self._subpartitions, now),
            )

    # ------------------------------------------------------------------------------------- the readers

    def subscribe(self, reader: str, epoch: int, partitions: range, position: Position | None) -> SubpartitionView:
        """Begin to read `partitions`, from `position`.

        :param reader: a name that no other reader has.
        :param epoch: the reader task's attempt. A higher one takes the place of who reads now.
        :raises AttemptSuperseded: a reader of a higher epoch is there, or was; or another one of this epoch is.
        :raises InvalidArgument: blocks at the position were forgotten.
        :raises ShuffleError: why this output is broken.
        """
        with self.changed:
            self._check()
            touched = [each for each in self._subpartitions if any(p in partitions for p in each.start)]
            for subpartition in touched:
                self._check_free(subpartition, reader, epoch)
            for subpartition in touched:
                if (present := self._subscriptions.pop(subpartition, None)) is not None:
                    present.supersede(reader)
            if len(touched) == 1 and list(touched[0].start) == list(partitions):
                [subpartition] = touched
            else:
                subpartition = self._resubscribe(touched, partitions)
            subpartition.rewind(position if self.config.keeps else None)
            subpartition.epoch = epoch
            self._count()
            view = self._subscriptions[subpartition] = SubpartitionView(self, subpartition, reader, epoch)
            self.locked_resize()
            return view

    def locked_taken(self, subpartition: Subpartition) -> None:
        """Something went out of the subpartition."""
        self._shed(subpartition)
        self._count()
        self.changed.notify_all()

    def locked_acknowledged(self, subpartition: Subpartition, position: Position) -> None:
        subpartition.acknowledge(position)
        self._disk.look()
        self._count()

    def locked_resize(self) -> None:
        """The readers' windows have changed: more than they want need not wait either."""
        windows = [each.window for each in self._subscriptions.values()]
        wanted = [window for window in windows if window is not None]
        whole = wanted if wanted and len(wanted) == len(windows) else [self._most]
        self.limit = max(min(self._most, MIN_LIMIT), min(self._most, sum(whole)))
        self.changed.notify_all()

    def locked_left(self, view: SubpartitionView, *, finished: bool) -> None:
        if self._subscriptions.get(view.subpartition) is view:
            del self._subscriptions[view.subpartition]
            self.locked_resize()
        if finished:
            self._consumed.update(view.subpartition.start)
            if self.consumed and self.error is None:
                self._reservation.try_resize(0)
        self.changed.notify_all()

    # ------------------------------------------------------------------------------------------- within

    def _check_free(self, subpartition: Subpartition, reader: str, epoch: int) -> None:
        present, held = self._subscriptions.get(subpartition), subpartition.epoch
        if held > epoch or (present is not None and held == epoch and present.reader != reader):
            raise AttemptSuperseded(
                f"reader {present.reader if present else 'that has left'} of attempt {held} has this partition",
                remedy="a partition has one reader; open the next with a higher attempt",
                shuffle=self.spec.id,
                output=self.attempt,
            )

    def _resubscribe(self, touched: list[Subpartition], partitions: range) -> Subpartition:
        keep = self.config.keeps
        subpartition = split(touched, partitions, keep=keep)
        rest = sorted(p for old in touched for p in old.start if p not in partitions)
        others = [split(touched, [p], keep=keep) for p in rest]
        self._subpartitions = [old for old in self._subpartitions if old not in touched] + [subpartition, *others]
        for new in (subpartition, *others):
            for partition in new.start:
                self._of[partition] = new
        return subpartition

    def _overtake(self, checkpoint: int, subpartitions: list[Subpartition]) -> list[Callable[[], None]]:
        state, mark, blocks = self._captures[checkpoint]
        now = mark.overtaking()
        calls: list[Callable[[], None]] = []
        for subpartition in subpartitions:
            view = self._subscriptions.get(subpartition)
            urgent = view.urgent if view is not None else None
            blocks += subpartition.overtake(now)
            subpartition.markers_in_hand = [m for m in subpartition.markers_in_hand if m.number != mark.number]
            if urgent is not None:
                calls.append(lambda urgent=urgent: urgent(now))  # type: ignore[misc]
        self._captures[checkpoint] = (state, now, blocks)
        self.changed.notify_all()
        return calls

    def _state(self, checkpoint: int) -> WriterState:
        records = self._restored_records + sum(self._written.records)
        numbers, log = tuple(self.numbers), self._disk.path
        return WriterState(checkpoint, self.attempt.map, numbers, self._markers, records, log=log)

    def _waits(self, mark: SequencedMarker) -> bool:
        return any(subpartition.waits(mark) for subpartition in self._subpartitions) and not (
            isinstance(mark.marker, Barrier) and mark.marker.unaligned
        )

    def _shed(self, subpartition: Subpartition) -> None:
        if self.config.keeps:
            subpartition.shed(self._log_limit * len(subpartition.start) // self.spec.partitions, self._disk.stored)

    def _logged(self, gone: Mapping[int, int]) -> tuple[dict[int, int], int]:
        """The log on disk has written, and is about to delete `gone`; returns what it must keep. By its thread."""
        with self.changed:
            for subpartition in self._subpartitions:
                subpartition.forget(gone)
                self._shed(subpartition)
            self._count()
            self.changed.notify_all()
            return first_blocks(self._subpartitions), min((each.markers for each in self._subpartitions), default=0)

    def _put(self, partition: int, number: int, payload: Buffer, records: int) -> None:
        size = memoryview(payload).nbytes
        order, checksum = self._next_order(), self._disk.checksum(payload)
        block = SequencedBlock(order, partition, number, records, payload, size, checksum, None, time.monotonic())
        self._of[partition].put(block)
        self._disk.put(block)
        self._unsent += size
        self._memory += size
        self._written.put(partition, size, records)

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _has_room(self, size: int) -> bool:
        self._check()
        if self._unsent and self._unsent + size > self.limit:
            return False
        if self._disk.pending and self._disk.pending + size > self._most:
            return False  # the disk is what is slow
        need = self._memory + size
        if (
            need <= self._reservation.size
            or self._reservation.try_resize(2 * need)
            or self._reservation.try_resize(need)
        ):
            return True
        for subpartition in self._subpartitions:  # memory is short: what waits comes before the log
            subpartition.shed(0, self._disk.stored)
        self._count()
        if self._memory == 0:  # one block passes, whatever its size and however short memory is
            self._reservation.cover(size)
        return self._memory + size <= self._reservation.size

    def _count(self) -> None:
        self._unsent = sum(subpartition.unsent_bytes for subpartition in self._subpartitions)
        self._log = sum(subpartition.log_bytes for subpartition in self._subpartitions)
        self._memory = sum(subpartition.memory_bytes for subpartition in self._subpartitions)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def _readers(self) -> str:
        names = sorted({view.reader for view in self._subscriptions.values()})
        return f"reader {', '.join(names)}" if names else "a reader, of which there is none"
