"""What a writer offers to live readers: the blocks that it also sends to the store, a bounded subpartition per reader.

Nobody ever waits for a reader here. Each partition is offered from its first block on. When there is no room, or a
subpartition waits for too long, it is **cut**: its blocks are dropped, and none of its partitions is offered any more.
The blocks that a reader has are therefore always a prefix of the partition's; the store has the same blocks, in the
same order, so that their number is the place where the reader goes on there.

A reader that comes too late, or beside another one of the same partition, subscribes all the same: it gets no blocks,
but receives the commit of the attempt, or its failure.
"""

from __future__ import annotations

import threading
import time

from shuffle_api.errors import MapOutputLost, ShuffleError
from shuffle_api.ids import MapAttempt
from shuffle_api.streaming import EndOfPartition, Position
from shuffle_api.values import ShuffleSpec
from shuffle_plugins.hybrid.statistics import HybridWriterStatistics
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.subpartition import Subpartition, Written
from shuffle_plugins.pipelined.subpartition_view import SubpartitionView
from shuffle_transport.pool import BufferPool

STEP = 256 << 10
"""Bytes in which the pool is asked for memory."""


class OfferMemory:
    """Memory for the blocks that wait: reserved in steps, of a pool that is not pressed, up to `limit` bytes.

    :ivar queued: bytes of these blocks.
    """

    def __init__(self, pool: BufferPool, limit: int) -> None:
        self._pool, self.limit, self.queued = pool, limit, 0
        self._reservation = pool.reserve(0, 0.0)

    @property
    def reserved(self) -> int:
        return self._reservation.size

    def has_room(self, size: int) -> bool:
        need = self.queued + size
        if need > self.limit:
            return False
        if need <= self._reservation.size:
            return True
        return not self._pool.pressed and self._reservation.try_resize(-(-need // STEP) * STEP)

    def settle(self) -> None:
        """Give back what is not needed any more."""
        need = -(-self.queued // STEP) * STEP
        if need < self._reservation.size:
            self._reservation.try_resize(need)

    def close(self) -> None:
        self._reservation.close()


class OfferCounters(Written):
    """What was written, and what became of it: blocks and bytes that live readers got, and that were cut."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.live, self.spilled = [0, 0], [0, 0]


class HybridResultPartition:
    """The subpartitions of one attempt. Methods whose names begin with `locked_` want `changed` held.

    :param pool: blocks that wait are reserved here; when it is pressed no more are taken in.
    :param limit: most bytes that wait.
    :param wait: seconds after which a subpartition is cut of which nothing was taken.
    :ivar over: nobody reads any more, nor will.
    """

    def __init__(self, spec: ShuffleSpec, attempt: MapAttempt, *, pool: BufferPool, limit: int, wait: float) -> None:
        self.spec, self.attempt = spec, attempt
        self.changed = threading.Condition()
        self.numbers = [0] * spec.partitions
        self.error: ShuffleError | None = None
        self.committed = False
        self._memory, self._wait = OfferMemory(pool, limit), wait
        # Until a reader says which partitions it reads, each has a subpartition of its own, once it has a block.
        self._of: dict[int, Subpartition] = {}
        self._left_out: set[int] = set()
        self._readers: dict[Subpartition, SubpartitionView] = {}
        # subpartitions with blocks: when something was taken last, or the first one put
        self._since: dict[Subpartition, float] = {}
        self._end: SequencedMarker | None = None
        self._order = 0
        self._written = OfferCounters(spec.partitions)

    # -------------------------------------------------------------------------------------- the writer

    def offer(self, partition: int, data: memoryview, records: int, foreign: bool) -> None:
        """The next block of a partition. Does not wait.

        :param foreign: `data` may change later.
        """
        size = data.nbytes
        with self.changed:
            number = self.numbers[partition]
            self.numbers[partition] = number + 1
            self._written.put(partition, size, records)
            if not self._make_room(partition, size):
                _add(self._written.spilled, 1, size)
                return
            subpartition = self._of.get(partition)
            if subpartition is None:
                subpartition = self._of[partition] = _subpartition(range(partition, partition + 1))
            now, payload = time.monotonic(), bytes(data) if foreign else data
            self._since.setdefault(subpartition, now)
            subpartition.put(SequencedBlock(self._next(), partition, number, records, payload, size, written_at=now))
            self._memory.queued += size
            self.changed.notify_all()

    def commit(self) -> None:
        """The attempt has won. Readers get the end behind what waits for them; subpartitions without a reader are
        cut."""
        with self.changed:
            if self.error is not None:
                return
            self.committed = True
            self._end = SequencedMarker(self._next(), 0, EndOfPartition(self.attempt.map))
            for subpartition in set(self._of.values()) - self._readers.keys():
                self._spill_subpartition(subpartition)
            for subpartition in self._readers:
                subpartition.put(self._end)
            self.changed.notify_all()

    def fail(self, error: ShuffleError) -> None:
        """Readers get `error` from now on; frees everything. Idempotent."""
        with self.changed:
            self.error = self.error or error
            for subpartition in {*self._of.values(), *self._readers}:
                self._spill_subpartition(subpartition)
            self._memory.close()
            self.changed.notify_all()

    def spill_late(self, now: float) -> None:
        """Cut the subpartitions of which nothing was taken for too long."""
        with self.changed:
            for subpartition in [
                subpartition for subpartition, since in self._since.items() if now - since >= self._wait
            ]:
                self._spill_subpartition(subpartition)

    @property
    def wanted(self) -> frozenset[int]:
        """Partitions that a reader gets live."""
        with self.changed:
            return (
                frozenset(p for p, subpartition in self._of.items() if subpartition in self._readers) - self._left_out
            )

    @property
    def over(self) -> bool:
        with self.changed:
            return self.error is not None or (self.committed and not self._readers)

    def statistics(self) -> HybridWriterStatistics:
        """What became of the blocks, and who is there."""
        with self.changed:
            now, present = time.monotonic(), set(self._of.values())
            waiting = sum(isinstance(entry, SequencedBlock) for each in present for entry in each.unsent)
            return HybridWriterStatistics(
                open_seconds=now - self._written.since,
                live_blocks=self._written.live[0],
                live_bytes=self._written.live[1],
                queued_blocks=waiting,
                queued_bytes=self._memory.queued,
                spilled_blocks=self._written.spilled[0],
                spilled_bytes=self._written.spilled[1],
                cuts=len(self._left_out),
                reserved_bytes=0 if self.error is not None else self._memory.reserved,
                readers=len(self._readers),
                subpartitions=self._written.progress(present, now),
            )

    # ------------------------------------------------------------------------------------- the readers

    def subscribe(self, reader: str, epoch: int, partitions: range, position: Position | None) -> SubpartitionView:
        """Begin to read `partitions`. What cannot be had from its first block on does not come at all.

        :raises MapOutputLost: the attempt has committed: the store has it.
        :raises ShuffleError: why nobody gets anything of it.
        """
        with self.changed:
            if self.error is not None:
                raise self.error.with_traceback(None)
            if self.committed:
                raise MapOutputLost(
                    "it has committed, which ended the offer",
                    remedy="read it from the store",
                    shuffle=self.spec.id,
                    output=self.attempt,
                )
            touched = {self._of[partition] for partition in partitions if partition in self._of}
            subpartition = _subpartition(partitions)
            if not any(other in self._readers for other in touched):  # else it carries the end, and no blocks
                self._join(touched, subpartition)
            view = self._readers[subpartition] = SubpartitionView(self, subpartition, reader, epoch)
            self.changed.notify_all()
            return view

    @property
    def connected(self) -> int:
        return len(self._readers)

    @property
    def consumed(self) -> bool:
        return self.committed and not self._readers

    def locked_taken(self, subpartition: Subpartition) -> None:
        size = sum(block.size for block in subpartition.in_hand)
        _add(self._written.live, len(subpartition.in_hand), size)
        self._memory.queued -= size
        self._since.pop(subpartition, None)
        if subpartition.unsent_bytes:
            self._since[subpartition] = time.monotonic()
        self._settle()
        self.changed.notify_all()

    def locked_acknowledged(self, subpartition: Subpartition, position: Position) -> None:
        """Nothing is kept for that: the store has it."""

    def locked_resize(self) -> None:
        """How much waits here depends on memory alone."""

    def locked_left(self, view: SubpartitionView, *, finished: bool) -> None:
        if self._readers.get(view.subpartition) is view:
            del self._readers[view.subpartition]
            self._spill_subpartition(view.subpartition)  # whoever comes next cannot begin at its beginning
        self.changed.notify_all()

    # --------------------------------------------------------------------------------- within, with the lock held

    def _join(self, touched: set[Subpartition], subpartition: Subpartition) -> None:
        """`subpartition` takes the place of these, which are of its partitions and have no reader."""
        blocks = [entry for old in touched for entry in old.unsent]
        for block in sorted(blocks, key=lambda entry: entry.order):
            subpartition.put(block)
        since = [self._since.pop(old) for old in touched if old in self._since]
        if since:
            self._since[subpartition] = min(since)
        self._of.update(dict.fromkeys(subpartition.start, subpartition))

    def _make_room(self, partition: int, size: int) -> bool:
        """Whether a block of the partition may be queued; subpartitions are cut for it, those without a reader
        first."""
        while self.error is None and partition not in self._left_out:
            if self._memory.has_room(size):
                return True
            if size > self._memory.limit:
                self._drop_partition(partition)
                break
            waiting = [subpartition for subpartition in self._since if subpartition.unsent_bytes]
            least = max(
                waiting,
                key=lambda subpartition: (subpartition not in self._readers, subpartition.unsent_bytes),
                default=None,
            )
            if least is None:  # others hold the memory
                self._drop_partition(partition)
            else:
                self._drop(least)  # its memory goes to the new block
        self._settle()
        return False

    def _spill_subpartition(self, subpartition: Subpartition) -> None:
        self._drop(subpartition)
        self._settle()

    def _drop(self, subpartition: Subpartition) -> None:
        """Nothing more is offered of its partitions (of which one that only carries the end has none)."""
        blocks, size = (
            sum(isinstance(entry, SequencedBlock) for entry in subpartition.unsent),
            subpartition.unsent_bytes,
        )
        subpartition.clear()
        if self._end is not None and subpartition in self._readers:
            subpartition.put(self._end)
        self._since.pop(subpartition, None)
        for partition in [partition for partition in subpartition.start if self._of.get(partition) is subpartition]:
            self._left_out.add(partition)
            if subpartition not in self._readers:
                del self._of[partition]
        self._memory.queued -= size
        _add(self._written.spilled, blocks, size)

    def _drop_partition(self, partition: int) -> None:
        """Nothing more is offered of it, nor of what its reader gets besides."""
        self._left_out.add(partition)
        if partition in self._of:
            self._drop(self._of[partition])

    def _settle(self) -> None:
        """Give memory back that is not needed any more."""
        if self.error is None:
            self._memory.settle()

    def _next(self) -> int:
        self._order += 1
        return self._order


def _subpartition(partitions: range) -> Subpartition:
    return Subpartition(partitions, dict.fromkeys(partitions, 0), keep=False)


def _add(sums: list[int], blocks: int, size: int) -> None:
    sums[0] += blocks
    sums[1] += size
