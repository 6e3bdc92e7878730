"""One input of a reader: what came from one map and was not handed out. The input gate's lock guards it."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from shuffle_api.errors import InvalidArgument, ShuffleError, StreamBroken
from shuffle_api.ids import MapAttempt
from shuffle_api.streaming import Barrier, EndOfPartition, Position, ReaderState
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.progress import Counts, InputStatistics, new_counts, progress_of
from shuffle_plugins.pipelined.source import Source


class QueuedBlock(NamedTuple):
    """A block, and who is to be told when it was processed.

    :ivar numbering: the input's when it came.
    """

    block: SequencedBlock
    stored: int
    source: Source | None
    numbering: int


class QueuedMarker(NamedTuple):
    """A marker that waits behind blocks."""

    mark: SequencedMarker
    numbering: int


class MarkerNumbers:
    """Numbers of markers, of which a barrier may come before its turn."""

    __slots__ = ("_ahead", "below")

    def __init__(self, below: int) -> None:
        self.below = below  # all before this one are in
        self._ahead: set[int] = set()

    def add(self, number: int) -> bool:
        """Whether it is new."""
        if number < self.below or number in self._ahead:
            return False
        self._ahead.add(number)
        while self.below in self._ahead:
            self._ahead.remove(self.below)
            self.below += 1
        return True

    def skip(self, below: int) -> None:
        """Those before this one will not come."""
        self.below = max(self.below, below)
        self._ahead = {number for number in self._ahead if number >= self.below}
        while self.below in self._ahead:
            self._ahead.remove(self.below)
            self.below += 1


class StreamPosition:
    """A place in what one map sends that moves on.

    :ivar blocks: by partition, the number of the next one.
    """

    __slots__ = ("blocks", "markers")

    def __init__(self, start: Position) -> None:
        self.blocks: dict[int, int] = dict(start.blocks)
        self.markers = MarkerNumbers(start.markers)

    def now(self) -> Position:
        return Position(dict(self.blocks), self.markers.below)


class InputChannel:
    """
    :ivar numbering: counts the producers whose numbers are their own. What one of them numbered says nothing about
        where the task stands in the next one's output.
    :ivar foreign: checkpoints up to this one may hold positions in the numbers of an earlier producer.
    :ivar received: where the next entry to come is; `taken`: the next one for the task.
    :ivar origin: where it began, if that is what the producer said.
    :ivar ended: the end has come; `over`: the task has it.
    :ivar read: by partition, records and bytes that the task got.
    :ivar gone: what ended the connection to the last producer, while there is no other.
    """

    def __init__(self, map: int, restore: ReaderState | None) -> None:
        self.map = map
        self.items: deque[QueuedBlock | QueuedMarker] = deque()
        self.numbering, self.foreign = 0, -1
        self.source: Source | None = None
        self.attempt: MapAttempt | None = None
        self.gone: ShuffleError | None = None
        self.ended = self.over = False
        self.held = 0
        self.read: Counts = new_counts()
        position = restore.positions.get(map) if restore is not None else None
        self.known = position is not None  # where to begin; else wherever the producer does
        start = position or Position({}, 0)
        self.received, self.taken = StreamPosition(start), StreamPosition(start)
        self.origin: dict[int, int] = {}
        self.restored = restore is not None
        for found in restore.blocks if restore is not None else ():
            if found.map == map:
                self.taken.blocks[found.partition] = min(self.taken.blocks[found.partition], found.number)
                size = len(found.payload)
                block = SequencedBlock(0, found.partition, found.number, found.records, found.payload, size)
                self.append(QueuedBlock(block, 0, None, self.numbering))

    def where(self) -> Position | None:
        """What to ask the producer for; None: whatever it has."""
        return self.received.now() if self.known else None

    def position(self) -> Position:
        """What the task has."""
        return self.taken.now()

    def connect(self, source: Source, *, fresh: bool, lossy: bool) -> None:
        """
        :param fresh: the producer is another than before, with numbers of its own.
        :param lossy: blocks may be missing.
        :raises InvalidArgument: it does not begin where this input stands.
        """
        first = source.first
        self.numbering += fresh
        if self.known and not fresh and not lossy and dict(first.blocks) != self.received.blocks:
            raise InvalidArgument(
                f"the producer of map {self.map} goes on at blocks {dict(first.blocks)}, not at {self.received.blocks}",
                remedy="restore its consumers and itself from the same checkpoint",
            )
        if not self.known or fresh:
            # Numbers below what comes first belong to others, or were acknowledged.
            self.received, self.taken = StreamPosition(first), StreamPosition(first)
            self.origin = dict(first.blocks)
        # A producer that was restored goes on with its own numbers; those before were before the checkpoint.
        self.received.markers.skip(first.markers)
        self.taken.markers.skip(first.markers)
        self.received.blocks, self.known, self.source = dict(first.blocks), True, source

    def is_new(self, mark: SequencedMarker) -> bool:
        """It did not come before. (A barrier that overtook is in the log as well.)"""
        return self.received.markers.add(mark.number)

    def append(self, item: QueuedBlock | QueuedMarker) -> None:
        self.items.append(item)
        if isinstance(item, QueuedBlock):
            self.held += item.block.size
            self.received.blocks[item.block.partition] = item.block.number + 1

    def took(self, item: QueuedBlock) -> None:
        """The task has it."""
        if item.numbering == self.numbering:
            self.taken.blocks[item.block.partition] = item.block.number + 1
        self.held -= item.block.size
        counts = self.read[item.block.partition]
        counts[0] += item.block.records
        counts[1] += item.block.size

    def passed(self, queued: QueuedMarker) -> None:
        """The task has gone past it."""
        if queued.numbering == self.numbering:
            self.taken.markers.add(queued.mark.number)

    def check_end(self, totals: dict[int, int], *, lossy: bool) -> None:
        """
        :raises StreamBroken: blocks have not come.
        """
        if not lossy and any(
            self.received.blocks.get(partition, number) != number for partition, number in totals.items()
        ):
            raise StreamBroken(f"map {self.map} ends with blocks {totals}, received were {self.received.blocks}")
        self.ended = True

    def progress(self, watermark: int | None) -> list[InputStatistics]:
        """By partition: what the task got, and what waits for it."""
        waiting = (item.block for item in self.items if isinstance(item, QueuedBlock))
        return progress_of(self.map, self.received.blocks, self.read, waiting, watermark)

    def before(self, checkpoint: int) -> tuple[list[SequencedBlock], bool]:
        """The blocks in the queue before the barrier of `checkpoint`, or before the end; and whether that is there.

        Takes the barrier out of the queue.
        """
        blocks: list[SequencedBlock] = []
        for item in self.items:
            if isinstance(item, QueuedBlock):
                blocks.append(item.block)
            elif isinstance(item.mark.marker, EndOfPartition):
                return blocks, True
            elif isinstance(item.mark.marker, Barrier) and item.mark.marker.checkpoint == checkpoint:
                self.items.remove(item)
                self.passed(item)
                return blocks, True
        return blocks, self.over
