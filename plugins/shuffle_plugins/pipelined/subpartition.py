"""A subpartition: the entries of one writer for one reader, in one order. Pure; the writer's lock guards it.

    spilled    log                        unsent
    [ likewise [ sent, not acknowledged ] [ waits for the reader ]
      in files ] ^ taken, perhaps not written yet: `in_hand`

A reader that comes back gets the log again from where it stands. The log in memory is bounded: entries that do not fit
are in files, if there is a log on disk; else they are forgotten: they cannot be replayed, and a reader that asks for
them gets an error.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from shuffle_api.errors import InvalidArgument, StorageFailed
from shuffle_api.streaming import EndOfPartition, Position
from shuffle_api.values import Totals
from shuffle_plugins.pipelined.entries import Entry, SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.progress import SubpartitionStatistics


class Subpartition:
    """The queue of some partitions.

    :param partitions: that it carries.
    :param start: by partition, the number of the first block there is or will be.
    :param markers: likewise of the markers.
    :param keep: sent entries stay in the log until they are acknowledged.
    :param begin: where a reader begins that does not say; None: at the start.
    :param damage: why there is nothing before the start, if that is not what was acknowledged or forgotten.
    :ivar unsent_bytes, log_bytes: payload in either half.
    :ivar memory_bytes: of both, without what is in files.
    """

    def __init__(
        self,
        partitions: Iterable[int],
        start: Mapping[int, int],
        *,
        keep: bool,
        markers: int = 0,
        begin: Position | None = None,
        damage: str = "",
    ) -> None:
        self.start = {partition: start[partition] for partition in partitions}
        # Where a reader begins that gives no position: forgotten blocks are missing then.
        begins = start if begin is None else begin.blocks
        self.acknowledged = {partition: begins[partition] for partition in self.start}
        self.first_marker = markers if begin is None else begin.markers
        self.markers = markers  # markers below this are acknowledged
        self.unsent: deque[Entry] = deque()
        self.log: deque[Entry] = deque()
        self.spilled: deque[Entry] = deque()
        self.in_hand: list[SequencedBlock] = []
        self.markers_in_hand: list[SequencedMarker] = []
        self.epoch = -1
        self.unsent_bytes = self.log_bytes = self.memory_bytes = 0
        self.forgotten = 0  # blocks dropped from the log before they were acknowledged
        self._keep, self.damage = keep, damage

    def acknowledges(self, block: SequencedBlock) -> bool:
        """The reader has acknowledged it."""
        return block.number < self.acknowledged[block.partition]

    def put(self, entry: Entry) -> None:
        """Append, behind everything."""
        self.unsent.append(entry)
        if isinstance(entry, SequencedBlock):
            self.unsent_bytes += entry.size
            self.memory_bytes += 0 if entry.stored else entry.size

    def restore(self, entry: Entry) -> None:
        """What a log on disk has kept, in order, before anything is put."""
        if isinstance(entry, SequencedMarker) or entry.partition in self.start:
            self.spilled.append(entry)

    def take(self, limit: int) -> tuple[list[SequencedBlock], list[SequencedMarker]]:
        """What goes out next: blocks of up to `limit` bytes (at least one), and the markers right behind them.

        What was taken before is out by now.
        """
        unsent, blocks, marks, size = self.unsent, list[SequencedBlock](), list[SequencedMarker](), 0
        while unsent:
            entry = unsent[0]
            if isinstance(entry, SequencedMarker):
                marks.append(entry)
            elif marks or (blocks and size + entry.size > limit):
                break
            else:
                blocks.append(entry)
                size += entry.size
            unsent.popleft()
            # The end is kept whatever was agreed: without it a reader that comes back would wait for ever.
            if self._keep or (isinstance(entry, SequencedMarker) and isinstance(entry.marker, EndOfPartition)):
                self.log.append(entry)
        self.unsent_bytes -= size
        if self._keep:
            self.log_bytes += size
        else:
            for block in blocks:
                self.memory_bytes -= block.size
                self.start[block.partition] = block.number + 1
        self.in_hand, self.markers_in_hand = blocks, marks
        return blocks, marks

    def waits(self, mark: SequencedMarker) -> bool:
        """The marker is not out for certain."""
        return mark in self.markers_in_hand or mark in self.unsent

    def overtake(self, mark: SequencedMarker) -> list[SequencedBlock]:
        """Put a barrier, perhaps a queued one, before all that is not out for certain; returns what it overtakes.

        It goes first even if the caller sends it beside the queue: later entries must not go out before it.
        A reader that gets it twice recognizes it by its number.
        """
        overtaken = list(self.in_hand)
        if not any(other.number == mark.number for other in self.markers_in_hand):
            for entry in self.unsent:
                if isinstance(entry, SequencedBlock):
                    overtaken.append(entry)
                elif entry.number == mark.number:
                    self.unsent.remove(entry)
                    break
            self.unsent.appendleft(mark)
        return overtaken

    def acknowledge(self, position: Position) -> None:
        """The reader will not ask again for what is behind `position`."""
        for partition, number in position.blocks.items():
            if partition in self.start:
                self.start[partition] = max(self.start[partition], number)
                self.acknowledged[partition] = max(self.acknowledged[partition], number)
        self.markers = max(self.markers, position.markers)
        self.first_marker = max(self.first_marker, position.markers)
        while self.spilled and self._behind(self.spilled[0]):
            self.spilled.popleft()
        if not self.spilled:
            while self.log and self._behind(self.log[0]):
                self._drop()

    def shed(self, limit: int, stored: Callable[[SequencedBlock], SequencedBlock | None]) -> None:
        """Leave the oldest of the log to the files, until it has at most `limit` bytes in memory.

        :param stored: the block with its payload in a file, or itself if that is still to come; None: it has to go.
        """
        while self.log_bytes > limit:
            entry = self.log[0]
            if isinstance(entry, SequencedMarker):
                self.spilled.append(self.log.popleft())
                continue
            found = stored(entry)
            if found is not None and not found.stored:
                return
            self._drop()
            if found is not None:
                self.spilled.append(found)
            else:
                self._forget_spilled(lambda block: True)
                self._forget(entry)

    def forget(self, last: Mapping[int, int]) -> None:
        """Files are deleted that hold blocks up to these numbers, by partition."""
        self._forget_spilled(lambda block: block.number <= last.get(block.partition, -1))

    def rewind(self, position: Position | None) -> None:
        """A reader connects: entries that it has not got are unsent again.

        :param position: where it stands; None: at what was acknowledged last.
        :raises InvalidArgument: some of it was forgotten.
        :raises StorageFailed: some of it was in files that are damaged.
        """
        want = position or Position(dict(self.acknowledged if self._keep else self.start), self.first_marker)
        self._check_kept(want)
        entries = self.entries()
        self.clear()
        for entry in entries:
            if isinstance(entry, SequencedBlock):
                again = entry.number >= want.blocks.get(entry.partition, 0)
            else:
                again = entry.number >= want.markers or isinstance(entry.marker, EndOfPartition)
            if again:
                self.put(entry)
            elif self._keep:  # a reader that has it has not acknowledged it: its successor may ask for it
                self._log(entry)

    def _check_kept(self, want: Position) -> None:
        for partition, first in self.start.items():
            number = want.blocks.get(partition, 0)
            if number < first and self.damage:
                raise self._damaged(
                    f"block {number} of partition {partition} cannot be replayed, only those from {first}"
                )
            if number < first:
                raise InvalidArgument(
                    f"block {number} of partition {partition} was dropped; the log begins at block {first}",
                    remedy="restore producers and consumers from the same checkpoint, raise option 'log_bytes', or set"
                    " 'log_dir' and 'log_disk_bytes'",
                )
        # Nobody asks for acknowledged markers; of those that an unaligned barrier overtook a log in memory has none.
        if want.markers < self.markers and self.damage:
            raise self._damaged(f"marker {want.markers} cannot be replayed, only those from {self.markers}")

    def _damaged(self, what: str) -> StorageFailed:
        return StorageFailed(
            f"{what}: {self.damage}",
            remedy="restore producers and consumers from a checkpoint that does not need it, and check this disk",
        )

    def clear(self) -> None:
        """Nobody will read any of it."""
        for queue in (self.spilled, self.log, self.unsent):
            queue.clear()
        self.in_hand, self.markers_in_hand = [], []
        self.unsent_bytes = self.log_bytes = self.memory_bytes = 0

    def entries(self) -> list[Entry]:
        """Everything there is, sent or not."""
        return [*self.spilled, *self.log, *self.unsent]

    def _behind(self, entry: Entry) -> bool:
        if isinstance(entry, SequencedBlock):
            return entry.number < self.start[entry.partition]
        return entry.number < self.markers and not isinstance(entry.marker, EndOfPartition)

    def _log(self, entry: Entry) -> None:
        self.log.append(entry)
        if isinstance(entry, SequencedBlock):
            self.log_bytes += entry.size
            self.memory_bytes += 0 if entry.stored else entry.size

    def _drop(self) -> None:
        entry = self.log.popleft()
        if isinstance(entry, SequencedBlock):
            self.log_bytes -= entry.size
            self.memory_bytes -= 0 if entry.stored else entry.size

    def _forget_spilled(self, gone: Callable[[SequencedBlock], bool]) -> None:
        """Drop the oldest blocks in files, as long as they are gone, and the markers before them."""
        count = 0
        for i, entry in enumerate(self.spilled):
            if isinstance(entry, SequencedBlock):
                if not gone(entry):
                    break
                count = i + 1
        for _ in range(count):
            entry = self.spilled.popleft()
            if isinstance(entry, SequencedBlock):
                self._forget(entry)
            else:
                self.markers = max(self.markers, entry.number + 1)

    def _forget(self, block: SequencedBlock) -> None:
        self.start[block.partition] = max(self.start[block.partition], block.number + 1)
        self.forgotten += 1


def first_blocks(subpartitions: Iterable[Subpartition]) -> dict[int, int]:
    """By partition, the number of the first block that is kept."""
    return {partition: number for subpartition in subpartitions for partition, number in subpartition.start.items()}


class Written:
    """Records and bytes that one writer has put, by partition; `since` is when it was opened (time.monotonic()).

    :param before: records that it goes on from.
    """

    def __init__(self, partitions: int, before: int = 0) -> None:
        self.records, self.bytes, self.since = [0] * partitions, [0] * partitions, time.monotonic()
        self._blocks, self._before = 0, before

    def put(self, partition: int, size: int, records: int) -> None:
        self._blocks += 1
        self.bytes[partition] += size
        self.records[partition] += records

    @property
    def totals(self) -> Totals:
        size = sum(self.bytes)
        return Totals(self._blocks, size, size, sum(self.records))

    @property
    def all_records(self) -> int:
        """With those before."""
        return self._before + sum(self.records)

    def progress(self, subpartitions: Iterable[Subpartition], now: float) -> tuple[SubpartitionStatistics, ...]:
        """By partition: the records written, and those of them that wait or are not acknowledged."""
        rows = [[0, 0, 0, 0] for _ in self.records]
        oldest = [now] * len(rows)
        for subpartition in subpartitions:
            for at, entries in ((0, subpartition.unsent), (2, subpartition.log), (2, subpartition.spilled)):
                for entry in entries:
                    if isinstance(entry, SequencedBlock) and not subpartition.acknowledges(entry):
                        row, partition = rows[entry.partition], entry.partition
                        row[at] += entry.records
                        row[at + 1] += entry.size
                        oldest[partition] = min(oldest[partition], entry.written_at or self.since)
        return tuple(
            SubpartitionStatistics(partition, records, size, queued, queued_bytes, sent, sent_bytes, now - since)
            for partition, (records, size, (queued, queued_bytes, sent, sent_bytes), since) in enumerate(
                zip(self.records, self.bytes, rows, oldest, strict=True)
            )
        )


def split(subpartitions: Iterable[Subpartition], partitions: Iterable[int], *, keep: bool) -> Subpartition:
    """A subpartition of `partitions` with all that `subpartitions` hold for them, in the order written, none of it
    sent."""
    subpartitions = list(subpartitions)
    starts = {partition: number for subpartition in subpartitions for partition, number in subpartition.start.items()}
    begin = {
        partition: number for subpartition in subpartitions for partition, number in subpartition.acknowledged.items()
    }
    subpartition = Subpartition(
        partitions,
        starts,
        keep=keep,
        markers=min((subpartition.markers for subpartition in subpartitions), default=0),
        begin=Position(begin, min((subpartition.first_marker for subpartition in subpartitions), default=0)),
        damage=next((subpartition.damage for subpartition in subpartitions if subpartition.damage), ""),
    )
    subpartition.epoch = max((each.epoch for each in subpartitions), default=-1)
    found = {entry.order: entry for each in subpartitions for entry in each.entries()}
    for order in sorted(found):
        entry = found[order]
        if isinstance(entry, SequencedMarker) or entry.partition in subpartition.start:
            subpartition.put(entry)
    return subpartition
