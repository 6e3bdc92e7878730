"""Everything that one writer has written and its readers have not got: queues per reader, room, back-pressure.

One lock guards it; what waits, waits on that lock's condition, and I/O happens outside.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from shuffle_api.buffer import Buffer
from shuffle_api.errors import Overloaded, ShuffleError, UnknownShuffle
from shuffle_api.ids import MapAttempt
from shuffle_api.streaming import Alignment, Barrier, EndOfPartition, Marker, Position, WriterState
from shuffle_api.values import ShuffleSpec, Totals
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.in_flight_log import InFlightLog, NoInFlightLog
from shuffle_plugins.pipelined.producer_registry import StreamConfig
from shuffle_plugins.pipelined.queue_memory import QueueMemory, QueueRoom, StallClock
from shuffle_plugins.pipelined.statistics import PipelinedWriterStatistics
from shuffle_plugins.pipelined.subpartition import Subpartition, Written, first_blocks
from shuffle_plugins.pipelined.subpartition_view import SubpartitionView
from shuffle_plugins.pipelined.subpartitions import Captures, StateParts, Subpartitions


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
        self._room = QueueRoom(memory)
        restored = restore or WriterState(-1, attempt.map, (0,) * spec.partitions, 0)
        self.numbers = list(restored.numbers)
        self._markers, self._order = restored.markers, 0
        begin = restored.begin
        self._disk = disk or NoInFlightLog(begin)
        log = self._disk.recovered
        self._subpartitions = Subpartitions(spec, attempt, keep=config.keeps, begin=begin, log=log)
        late = config.alignment is Alignment.ALIGNED_WITH_TIMEOUT
        self._captures = Captures(self._subpartitions, late=late)
        self._written = Written(spec.partitions, restored.records)
        self._stalls = StallClock()
        self.error: ShuffleError | None = None
        self.committed = self._acknowledged = False
        for block in restored.blocks:
            self._put(block.partition, block.number, block.payload, block.records)
        self._written = Written(spec.partitions, restored.records)  # those were counted when they were written

    @property
    def log_path(self) -> str:
        """Where its log is on disk."""
        return self._disk.path

    @property
    def limit(self) -> int:
        """Bytes unsent from which on writes wait."""
        return self._room.limit

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
        self._stalls.begin()
        try:
            while not self._has_room(size):
                self._check()
                if not self.changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                    raise self._no_room(size)
        finally:
            self._stalls.end()

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
        if isinstance(marker, Barrier):
            self._captures.begin(self._state(marker.checkpoint), mark)
            if self.config.overtakes_at_once or marker.unaligned:
                calls = self._captures.overtake(marker.checkpoint, self._subpartitions.all)
                self.changed.notify_all()
                return calls
        for subpartition in self._subpartitions.all:
            subpartition.put(mark)
        self.committed |= isinstance(marker, EndOfPartition)
        self.changed.notify_all()
        return []

    def locked_overtake_late(self) -> list[Callable[[], None]]:
        """The time of barriers that are being aligned is up: those that still wait overtake."""
        calls = self._captures.overtake_late()
        self.changed.notify_all()
        return calls

    def locked_state(self, checkpoint: int) -> StateParts | None:
        """The writer at the barrier of this checkpoint; None while it may still overtake something, or is not logged.

        :raises StorageFailed: it can't be logged.
        """
        if not self.locked_logged(checkpoint):
            return None
        return self._captures.settle(checkpoint) if checkpoint in self._captures else (self._state(checkpoint), [])

    def locked_logged(self, checkpoint: int) -> bool:
        """What the barrier's state relies on is in the log. Raises as `locked_state`."""
        order = self._captures.order(checkpoint) if checkpoint in self._captures else self._order
        return self._disk.holds(order)

    def knows(self, checkpoint: int) -> bool:
        """Its barrier was emitted, and no later one since it went out; or the end, which passes every barrier."""
        return checkpoint in self._captures or self.committed

    @property
    def stalled(self) -> bool:
        """Somebody waits for room."""
        return self._stalls.since is not None

    @property
    def totals(self) -> Totals:
        """All that was put. Partitions are stored nowhere, so there is no digest."""
        return self._written.totals

    @property
    def consumed(self) -> bool:
        """It was committed, and every partition was read to its end."""
        return self.committed and self._subpartitions.consumed

    @property
    def connected(self) -> int:
        """Readers there are now."""
        return len(self._subpartitions.views)

    def fail(self, error: ShuffleError) -> None:
        """Readers and the writer get `error` from now on; frees everything. Never waits for a disk. Idempotent."""
        with self.changed:
            if self.error is None:  # nobody will go on from a log of which all was acknowledged
                kept = first_blocks(self._subpartitions.all)
                self._acknowledged = self.committed and all(kept[p] >= self.numbers[p] for p in kept)
            self.error = self.error or error
            self._subpartitions.clear()
            self._captures.clear()
            self._count()
            self._room.close()
            self.changed.notify_all()
        unregistered = isinstance(error, UnknownShuffle)
        self._disk.end(delete=self._acknowledged or unregistered, shuffle=unregistered)

    def statistics(self) -> PipelinedWriterStatistics:
        """Queues, log and back-pressure."""
        with self.changed:
            now, all_ = time.monotonic(), self._subpartitions.all
            return PipelinedWriterStatistics(
                open_seconds=now - self._written.since,
                queued_bytes=self._room.unsent,
                queue_limit=self.limit,
                logged_bytes=self._room.log,
                log_disk_bytes=self._disk.size,
                reserved_bytes=self._room.reserved,
                blocks=self._written.totals.blocks,
                bytes=sum(self._written.bytes),
                records=sum(self._written.records),
                forgotten_blocks=sum(subpartition.forgotten for subpartition in all_),
                back_pressured_seconds=self._stalls.seconds(now),
                subpartitions=self._written.progress(all_, now),
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
            subpartition = self._subpartitions.claim(reader, epoch, partitions)
            subpartition.rewind(position if self.config.keeps else None)
            subpartition.epoch = epoch
            self._count()
            view = SubpartitionView(self, subpartition, reader, epoch)
            self._subpartitions.views[subpartition] = view
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
        self._room.follow([each.window for each in self._subpartitions.views.values()])
        self.changed.notify_all()

    def locked_left(self, view: SubpartitionView, *, finished: bool) -> None:
        if self._subpartitions.left(view, finished=finished):
            self.locked_resize()
        if finished and self.consumed and self.error is None:
            self._room.give_back()
        self.changed.notify_all()

    # ------------------------------------------------------------------------------------------- within

    def _state(self, checkpoint: int) -> WriterState:
        numbers, records, log = tuple(self.numbers), self._written.all_records, self._disk.path
        return WriterState(checkpoint, self.attempt.map, numbers, self._markers, records, log=log)

    def _shed(self, subpartition: Subpartition) -> None:
        if self.config.keeps:
            subpartition.shed(self._room.log_limit * len(subpartition.start) // self.spec.partitions, self._disk.stored)

    def _logged(self, gone: Mapping[int, int]) -> tuple[dict[int, int], int]:
        """The log on disk has written, and is about to delete `gone`; returns what it must keep. By its thread."""
        with self.changed:
            all_ = self._subpartitions.all
            for subpartition in all_:
                subpartition.forget(gone)
                self._shed(subpartition)
            self._count()
            self.changed.notify_all()
            return first_blocks(all_), min((each.markers for each in all_), default=0)

    def _put(self, partition: int, number: int, payload: Buffer, records: int) -> None:
        size = memoryview(payload).nbytes
        order, checksum = self._next_order(), self._disk.checksum(payload)
        block = SequencedBlock(order, partition, number, records, payload, size, checksum, None, time.monotonic())
        self._subpartitions.of[partition].put(block)
        self._disk.put(block)
        room = self._room
        room.unsent += size
        room.memory += size
        self._written.put(partition, size, records)

    def _next_order(self) -> int:
        self._order += 1
        return self._order

    def _has_room(self, size: int) -> bool:
        self._check()
        room = self._room
        if room.unsent and room.unsent + size > room.limit:
            return False
        if self._log_is_full(size):
            return False
        if room.reserve(size):
            return True
        for subpartition in self._subpartitions.all:  # memory is short: what waits comes before the log
            subpartition.shed(0, self._disk.stored)
        self._count()
        return room.cover(size)

    def _no_room(self, size: int) -> Overloaded:
        room, pending, remedy = self._room, self._disk.pending, "raise option 'timeout' or 'queue_bytes'"
        if self._log_is_full(size):
            why = f"{pending} of {room.most} wait for the in-flight log in {self._disk.path}"
            remedy = f"see whether its disk is busy, {remedy}"
        else:
            why = f"{room.unsent} of {self.limit} wait for {self._subpartitions.readers}"
            remedy = f"see whether the reader is stuck, {remedy}"
        what = f"no room for {size} bytes: {why}"
        return Overloaded(what, remedy=remedy, shuffle=self.spec.id, output=self.attempt)

    def _log_is_full(self, size: int) -> bool:
        """The disk is what is slow."""
        return self._disk.pending > 0 and self._disk.pending + size > self._room.most

    def _count(self) -> None:
        self._room.count(self._subpartitions.all)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)
