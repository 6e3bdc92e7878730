"""A lane: what one reader gets of one writer, in one order. Pure; the writer's lock guards it.

    log                        unsent
    [ sent, not acknowledged ] [ waits for the reader ]
      ^ taken, perhaps not written yet: `in_hand`

A reader that comes back gets the log again from where it stands. The log is bounded: what is forgotten cannot be
replayed, and a reader that asks for it is told so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from shuffle_api.errors import InvalidArgument
from shuffle_api.streaming import EndOfPartition, Position
from shuffle_plugins.pipelined.entries import Block, Entry, Mark


class Lane:
    """The queue of some partitions.

    :param partitions: that it carries.
    :param start: by partition, the number of the first block there is or will be.
    :param keep: sent entries stay in the log until they are acknowledged.
    :ivar unsent_bytes, log_bytes: payload in either half.
    """

    def __init__(self, partitions: Iterable[int], start: Mapping[int, int], *, keep: bool, markers: int = 0) -> None:
        self.start = {partition: start[partition] for partition in partitions}
        # Where a reader begins that does not say: what is forgotten is missing then.
        self.acknowledged = dict(self.start)
        self.markers = markers  # markers below this are acknowledged
        self.unsent: deque[Entry] = deque()
        self.log: deque[Entry] = deque()
        self.in_hand: list[Block] = []
        self.marks_in_hand: list[Mark] = []
        self.epoch = -1
        self.unsent_bytes = self.log_bytes = 0
        self.forgotten = 0  # blocks dropped from the log before they were acknowledged
        self._keep = keep

    def put(self, entry: Entry) -> None:
        """Append, behind everything."""
        self.unsent.append(entry)
        if isinstance(entry, Block):
            self.unsent_bytes += entry.size

    def take(self, limit: int) -> tuple[list[Block], list[Mark]]:
        """What goes out next: blocks of up to `limit` bytes (at least one), and the markers right behind them.

        What was taken before is out by now.
        """
        unsent, blocks, marks, size = self.unsent, list[Block](), list[Mark](), 0
        while unsent:
            entry = unsent[0]
            if isinstance(entry, Mark):
                marks.append(entry)
            elif marks or (blocks and size + entry.size > limit):
                break
            else:
                blocks.append(entry)
                size += entry.size
            unsent.popleft()
            # The end is kept whatever was agreed: without it a reader that comes back would wait for ever.
            if self._keep or (isinstance(entry, Mark) and isinstance(entry.marker, EndOfPartition)):
                self.log.append(entry)
        self.unsent_bytes -= size
        if self._keep:
            self.log_bytes += size
        else:
            for block in blocks:
                self.start[block.partition] = block.number + 1
        self.in_hand, self.marks_in_hand = blocks, marks
        return blocks, marks

    def waits(self, mark: Mark) -> bool:
        """The marker is not out for certain."""
        return mark in self.marks_in_hand or mark in self.unsent

    def overtake(self, mark: Mark) -> list[Block]:
        """Put a barrier, perhaps a queued one, before all that is not out for certain; returns what it overtakes.

        It goes first even if the caller sends it beside the queue: what is put after it must not go out before it.
        Who gets it twice knows it by its number.
        """
        overtaken = list(self.in_hand)
        if not any(other.number == mark.number for other in self.marks_in_hand):
            for entry in self.unsent:
                if isinstance(entry, Block):
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
        while self.log and self._behind(self.log[0]):
            self._drop()

    def forget(self, limit: int) -> None:
        """Drop the oldest of the log until it has at most `limit` bytes."""
        while self.log_bytes > limit:
            entry = self.log[0]
            if isinstance(entry, Block):
                self.start[entry.partition] = max(self.start[entry.partition], entry.number + 1)
                self.forgotten += 1
            self._drop()

    def rewind(self, position: Position | None) -> None:
        """A reader connects: what it has not got is unsent again.

        :param position: where it stands; None: at what was acknowledged last.
        :raises InvalidArgument: some of it was forgotten.
        """
        want = position or Position(dict(self.acknowledged if self._keep else self.start), self.markers)
        for partition, first in self.start.items():
            if want.blocks.get(partition, 0) < first:
                raise InvalidArgument(
                    f"block {want.blocks.get(partition, 0)} of partition {partition} is no longer kept, only those "
                    f"from {first}",
                    remedy="restore producers and consumers from the same checkpoint, or raise option 'log_bytes'",
                )
        kept, unsent = list(self.log), list(self.unsent)
        self.log.clear()
        self.unsent.clear()
        self.in_hand, self.marks_in_hand = [], []
        self.unsent_bytes = self.log_bytes = 0
        for entry in (*kept, *unsent):
            if isinstance(entry, Block):
                if entry.number >= want.blocks.get(entry.partition, 0):
                    self.put(entry)
            elif entry.number >= want.markers or isinstance(entry.marker, EndOfPartition):
                self.put(entry)

    def clear(self) -> None:
        """Nobody will read any of it."""
        self.unsent.clear()
        self.log.clear()
        self.in_hand, self.marks_in_hand = [], []
        self.unsent_bytes = self.log_bytes = 0

    def entries(self) -> list[Entry]:
        """Everything there is, sent or not."""
        return [*self.log, *self.unsent]

    def _behind(self, entry: Entry) -> bool:
        if isinstance(entry, Block):
            return entry.number < self.start[entry.partition]
        return entry.number < self.markers and not isinstance(entry.marker, EndOfPartition)

    def _drop(self) -> None:
        entry = self.log.popleft()
        if isinstance(entry, Block):
            self.log_bytes -= entry.size


def split(lanes: Iterable[Lane], partitions: Iterable[int], *, keep: bool) -> Lane:
    """A lane of `partitions` with all that `lanes` hold for them, in the order written, none of it sent."""
    lanes = list(lanes)
    starts = {partition: number for lane in lanes for partition, number in lane.start.items()}
    lane = Lane(partitions, starts, keep=keep, markers=min((lane.markers for lane in lanes), default=0))
    for each in lanes:
        lane.acknowledged.update({p: number for p, number in each.acknowledged.items() if p in lane.start})
    lane.epoch = max((each.epoch for each in lanes), default=-1)
    found = {entry.order: entry for each in lanes for entry in each.entries()}
    for order in sorted(found):
        entry = found[order]
        if isinstance(entry, Mark) or entry.partition in lane.start:
            lane.put(entry)
    return lane
