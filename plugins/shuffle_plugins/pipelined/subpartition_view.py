"""A reader's hold on one writer's output."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol, TypeAlias

from shuffle_api.caretaker import Caretaker
from shuffle_api.clock import LOOK_SHARE, Silence
from shuffle_api.errors import AttemptSuperseded, BlockCorrupt, ShuffleError, StorageFailed, StreamBroken
from shuffle_api.ids import MapAttempt
from shuffle_api.streaming import Position
from shuffle_api.values import ShuffleSpec
from shuffle_plugins.pipelined.entries import RESTORE, Later, SequencedBlock, SequencedMarker, load_aside
from shuffle_plugins.pipelined.subpartition import Subpartition

log = logging.getLogger(__name__)

REPLAY_SECONDS = 30.0
"""After which a file that a reader waits for counts as one that cannot be read."""

Taken: TypeAlias = tuple[list[SequencedBlock], list[SequencedMarker]]


class SubscribablePartition(Protocol):
    """What a subscription and an endpoint need of a writer's output. Methods `locked_...` want `changed` held.

    :ivar changed: the lock, notified when there is room, or data, or an error.
    :ivar numbers: by partition, how many blocks were written.
    :ivar error: why nobody gets any more of it.
    :ivar committed: the end is among what its readers get.
    """

    spec: ShuffleSpec
    attempt: MapAttempt
    changed: threading.Condition
    numbers: list[int]
    error: ShuffleError | None
    committed: bool

    @property
    def connected(self) -> int:
        """Readers there are now."""

    @property
    def consumed(self) -> bool:
        """It was committed, and every partition was read to its end."""

    def subscribe(self, reader: str, epoch: int, partitions: range, position: Position | None) -> SubpartitionView:
        """Begin to read `partitions`. Raises ShuffleError: why that may not be."""

    def fail(self, error: ShuffleError) -> None:
        """Readers get `error` from now on; frees everything. Idempotent."""

    def locked_taken(self, subpartition: Subpartition) -> None:
        """Something went out of the subpartition."""

    def locked_acknowledged(self, subpartition: Subpartition, position: Position) -> None:
        """The reader will not ask again for what is before `position`."""

    def locked_resize(self) -> None:
        """A reader's window has changed."""

    def locked_left(self, view: SubpartitionView, *, finished: bool) -> None:
        """A reader has left; with `finished` it has all there was."""


class Replay:
    """Entries that were taken, while those of their blocks are read that are in files.

    :param later: has them read.
    :param changed: notified when they are.
    """

    def __init__(self, taken: Taken, later: Later, changed: threading.Condition) -> None:
        blocks, self._marks = taken
        self._changed = changed
        self._path = next(block.place.file.path for block in blocks if block.place is not None)
        self._silence = Silence(LOOK_SHARE * REPLAY_SECONDS)
        self._loaded = load_aside(blocks, later)
        self._loaded.add_done_callback(self._notify)

    @property
    def done(self) -> bool:
        return self._loaded.done()

    def taken(self) -> Taken | None:
        """The entries; None while they are read. To be asked LOOKS_PER_TIMEOUT times within REPLAY_SECONDS.

        :raises StorageFailed, BlockCorrupt: a block cannot be read, or the disk hangs.
        """
        if self.done:
            return self._loaded.result(), self._marks
        if self._silence.look(self._path) < REPLAY_SECONDS:
            return None
        raise StorageFailed(
            f"blocks cannot be replayed: {self._path} has not been read within {REPLAY_SECONDS:g} s", remedy=RESTORE
        )

    def _notify(self, loaded: Future[list[SequencedBlock]]) -> None:
        with self._changed:
            self._changed.notify_all()


class SubpartitionView:
    """A reader of some of an output's partitions. One thread takes; any may acknowledge and close.

    :ivar urgent: delivers a barrier that overtakes; set once the reader has what it needs for that.
    """

    def __init__(self, output: SubscribablePartition, subpartition: Subpartition, reader: str, epoch: int) -> None:
        self.output, self.subpartition, self.reader, self.epoch = output, subpartition, reader, epoch
        self.urgent: Callable[[SequencedMarker], None] | None = None
        self.window: int | None = None  # bytes that the reader wants to be on their way at most
        self._files = Caretaker("pipelined-replay")  # its thread reads them
        self._replay: Replay | None = None  # what was taken last, while files are read
        self._gone: ShuffleError | None = None

    def position(self) -> Position:
        """Numbers of what comes first: blocks by partition, and the next marker."""
        with self.output.changed:
            first = {partition: self.output.numbers[partition] for partition in self.subpartition.start}
            for entry in reversed(self.subpartition.unsent):
                if isinstance(entry, SequencedBlock):
                    first[entry.partition] = entry.number
            return Position(first, self.subpartition.markers)

    def take(self, limit: int, timeout: float) -> Taken:
        """What comes next, up to `limit` bytes; both empty if nothing comes within `timeout` seconds.

        :raises StorageFailed, BlockCorrupt: a block cannot be replayed from its file.
        :raises ShuffleError: why the output is broken, or who reads it now.
        """
        deadline = time.monotonic() + timeout
        with self.output.changed:
            if self._replay is None:
                if not self._something():
                    self.settle()
                    self.output.changed.wait_for(self._something, timeout)
                self.check()
                blocks, marks = self.subpartition.take(limit)
                if blocks or marks:
                    self.output.locked_taken(self.subpartition)
                if not any(block.stored for block in blocks):
                    return blocks, marks
                self._files.start()
                self._replay = Replay((blocks, marks), self._files.later, self.output.changed)
            self.output.changed.wait_for(self._replayed, deadline - time.monotonic())
            self.check()
            try:
                found = self._replay.taken()
            except (StorageFailed, BlockCorrupt) as error:
                error.shuffle, error.output = self.output.spec.id, self.output.attempt
                log.error("reader %s: %s", self.reader, error)
                raise
            if found is None:
                return [], []
            self._replay = None
            return found

    def settle(self) -> None:
        """What was taken last is where it belongs, unless it is still read. With the output's lock held."""
        if self._replay is not None:
            return
        if self.subpartition.markers_in_hand:  # somebody may wait until a barrier is out
            self.output.changed.notify_all()
        self.subpartition.in_hand, self.subpartition.markers_in_hand = [], []

    @property
    def at_mark(self) -> bool:
        """A marker comes next, which wants no room. With the output's lock held."""
        return bool(self.subpartition.unsent) and isinstance(self.subpartition.unsent[0], SequencedMarker)

    def check(self) -> None:
        """
        :raises ShuffleError: why the output is broken, or who reads it now.
        """
        if self._gone is not None:
            raise self._gone
        if self.output.error is not None:
            raise self.output.error

    def numbers(self) -> dict[int, int]:
        """By partition, how many blocks there are."""
        with self.output.changed:
            return {partition: self.output.numbers[partition] for partition in self.subpartition.start}

    def acknowledge(self, position: Position) -> None:
        """What is before `position` will not be asked for again."""
        with self.output.changed:
            if self._gone is None:
                self.output.locked_acknowledged(self.subpartition, position)

    def resize(self, window: int) -> None:
        """The reader is slow: no more than `window` bytes are to wait for it."""
        with self.output.changed:
            self.window = window
            self.output.locked_resize()

    def supersede(self, reader: str) -> None:
        self._gone = AttemptSuperseded(
            f"reader {reader} has taken the place of {self.reader}",
            shuffle=self.output.spec.id,
            output=self.output.attempt,
        )

    def close(self, *, finished: bool = False) -> None:
        """The reader has left; with `finished` it has all there was. Idempotent."""
        with self.output.changed:
            finished = finished and self._gone is None  # else another reads what this one has left
            self._gone = self._gone or StreamBroken("the reader has left", shuffle=self.output.spec.id)
            self.output.locked_left(self, finished=finished)
        self._files.stop(0.0)

    def _something(self) -> bool:
        return bool(self.subpartition.unsent) or self._ended()

    def _replayed(self) -> bool:
        return self._replay is None or self._replay.done or self._ended()

    def _ended(self) -> bool:
        return self._gone is not None or self.output.error is not None
