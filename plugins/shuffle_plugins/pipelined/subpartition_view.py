"""A reader's hold on one writer's output."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from shuffle_api.errors import AttemptSuperseded, BlockCorrupt, ShuffleError, StorageFailed, StreamBroken
from shuffle_api.ids import MapAttempt
from shuffle_api.streaming import Position
from shuffle_api.values import ShuffleSpec
from shuffle_plugins.pipelined.entries import SequencedBlock, SequencedMarker
from shuffle_plugins.pipelined.subpartition import Subpartition

log = logging.getLogger(__name__)


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


class SubpartitionView:
    """A reader of some of an output's partitions. One thread takes; any may acknowledge and close.

    :ivar urgent: delivers a barrier that overtakes; set once the reader has what it needs for that.
    """

    def __init__(self, output: SubscribablePartition, subpartition: Subpartition, reader: str, epoch: int) -> None:
        self.output, self.subpartition, self.reader, self.epoch = output, subpartition, reader, epoch
        self.urgent: Callable[[SequencedMarker], None] | None = None
        self.window: int | None = None  # bytes that the reader wants to be on their way at most
        self._gone: ShuffleError | None = None

    def position(self) -> Position:
        """Numbers of what comes first: blocks by partition, and the next marker."""
        with self.output.changed:
            first = {partition: self.output.numbers[partition] for partition in self.subpartition.start}
            for entry in reversed(self.subpartition.unsent):
                if isinstance(entry, SequencedBlock):
                    first[entry.partition] = entry.number
            return Position(first, self.subpartition.markers)

    def take(self, limit: int, timeout: float) -> tuple[list[SequencedBlock], list[SequencedMarker]]:
        """What comes next, up to `limit` bytes; both empty if nothing comes within `timeout` seconds.

        :raises StorageFailed, BlockCorrupt: a block cannot be replayed from its file.
        :raises ShuffleError: why the output is broken, or who reads it now.
        """
        with self.output.changed:
            if not self._something():
                self.settle()
                self.output.changed.wait_for(self._something, timeout)
            self.check()
            blocks, marks = self.subpartition.take(limit)
            if blocks or marks:
                self.output.locked_taken(self.subpartition)
        try:
            return [block.loaded() for block in blocks], marks
        except (StorageFailed, BlockCorrupt) as error:
            error.shuffle, error.output = self.output.spec.id, self.output.attempt
            log.error("reader %s: %s", self.reader, error)
            raise

    def settle(self) -> None:
        """What was taken last is where it belongs. With the output's lock held."""
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

    def _something(self) -> bool:
        return bool(self.subpartition.unsent) or self._gone is not None or self.output.error is not None
