"""A consumer group that is rescaled while the stream goes on.

A partition of the shuffle is a key group (`shuffle_api.streaming.key_groups`); a task of the group reads a contiguous
range of them. A barrier may say a new parallelism. At this barrier each task puts a snapshot where the others find it,
and leaves its key groups; when the snapshots of all key groups are there, each task of the new parallelism takes up its
own: the state from the snapshots, the records behind the barrier from the producers, which have kept them.

So a task reads behind a rescaling only when all of the group can begin there. A task begins at the last checkpoint with
snapshots of all key groups, the first time, after a fault, and after a rescaling; or at a later one of which an earlier
attempt of the task has put its own. A snapshot that was put is never changed: others may have gone on from it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from shuffle_api.backoff import Backoff
from shuffle_api.errors import AttemptSuperseded, DeadlineExceeded, InvalidArgument, StorageFailed
from shuffle_api.streaming import Barrier, Captured, ReaderState, key_group_range, redistribute
from shuffle_api.values import ShuffleHandle
from shuffle_plugins.pipelined.reader import Event, PipelinedReader
from shuffle_plugins.pipelined.snapshots import Snapshot, SnapshotStore
from shuffle_plugins.pipelined.statistics import PipelinedReaderStatistics

ATTEMPT_BITS = 20
"""Attempts of a reader are those of the task, and above these bits the generation of the group."""

_FIRST_LOOK, _LONGEST_LOOK = 0.01, 0.2


class KeyedState(Protocol):
    """What a task keeps by key group. Its methods are called by the thread that polls."""

    def snapshot(self, key_groups: range) -> Mapping[int, bytes]:
        """The state of these key groups, at this moment; those without state may be missing."""

    def assign(self, states: Mapping[int, bytes | None]) -> None:
        """These key groups are the task's from now on, with this state (None: with none). Those that it has stay."""

    def revoke(self, key_groups: frozenset[int]) -> None:
        """These key groups are another task's from now on."""


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """What its tasks have to know; pickle it, as the handle.

    :ivar parallelism: the number of tasks with which the group begins.
    """

    handle: ShuffleHandle
    parallelism: int
    snapshots: SnapshotStore

    def __post_init__(self) -> None:
        key_group_range(self.handle.spec.partitions, self.parallelism, 0)

    def latest(self) -> int | None:
        """The last checkpoint with snapshots of all key groups; None: there is none."""
        return self.latest_of(self.snapshots.list())

    def latest_of(self, there: Mapping[int, list[range]]) -> int | None:
        """As `latest`, if these are the snapshots that there are."""
        return max((n for n, found in there.items() if self.is_complete(found)), default=None)

    def is_complete(self, found: Iterable[range]) -> bool:
        """Whether these are all key groups."""
        return set[int]().union(*found) == {*range(self.handle.spec.partitions)}


class PipelinedConsumer:
    """A task of a group; see `PipelinedShuffle.consumer`.

    :ivar key_groups: that it has now.
    :ivar generation: of its assignment.
    """

    def __init__(
        self,
        group: ConsumerGroup,
        subtask: int,
        state: KeyedState,
        open_reader: Callable[[range, int, ReaderState | None], PipelinedReader],
        timeout: float,
    ) -> None:
        self._group, self._subtask, self._state = group, subtask, state
        self._open, self._timeout = open_reader, timeout
        self.key_groups, self.parallelism, self.generation = range(0), group.parallelism, 0
        self._from = -1  # the checkpoint that it went on from last
        self._barrier: Barrier | None = None  # whose snapshot is not complete
        self._states: Mapping[int, bytes] = {}  # of that snapshot
        self._overtaken: list[Event] = []  # by that barrier, if it moves key groups
        self._pending: deque[Event | None] = deque()  # that the reader has handed out, and this task has not
        self._rescales: Snapshot | None = None  # own, at the barrier from which on the group has another parallelism
        self._closed = False
        self._reader: PipelinedReader | None = None
        self._begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        if self._reader is not None:
            self._reader.__exit__(kind, error, trace)

    def close(self) -> None:
        """Leave. Idempotent."""
        self.__exit__(None, None, None)

    def events(self) -> Iterator[Event]:
        """As `PipelinedReader.events`, across rescalings. Ends when all maps have ended, or the group has become too
        small for this task."""
        while (event := self.poll(self._timeout)) is not None:
            yield event

    def poll(self, timeout: float) -> Event | None:
        """The next event, which counts as processed when the next one is asked for. None: as `events` ends.

        The task's snapshot is in the store when `Captured` is returned.

        :raises DeadlineExceeded: nothing came in time; or, after a rescaling, another task's snapshot did not.
        :raises AttemptSuperseded: another task has these key groups. If this task is to go on, begin a new attempt.
        :raises ShuffleError: as `PipelinedReader.poll`, and errors of the store.
        """
        if self._closed:
            raise InvalidArgument("the consumer is closed", shuffle=self._group.handle.spec.id)
        deadline = time.monotonic() + timeout
        if self._rescales is not None:
            self._change(self._rescales, deadline)
        while self._reader is not None:
            left = max(0.0, deadline - time.monotonic())
            event = self._pending.popleft() if self._pending else self._reader.poll(left)
            if self._overtaken and (event is None or isinstance(event, Barrier)):
                # A later barrier has cancelled the one that would have moved key groups: its records stay here.
                self._pending.extend([*self._overtaken, event])
                self._overtaken, self._barrier = [], None
                continue
            if isinstance(event, Barrier):
                self._barrier, self._states = event, self._state.snapshot(self.key_groups)
            elif isinstance(event, Captured):
                self._overtaken = []
                self._put(event)
            elif event is not None and self._moves:
                # An unaligned barrier has overtaken it: it is in flight to the next task of its key group.
                self._overtaken.append(event)
                continue
            return event
        return None

    def acknowledge(self, checkpoint: int) -> None:
        """The checkpoint is complete: all tasks of the group have their snapshots, all producers their states.

        :raises InvalidArgument: as `PipelinedReader.acknowledge`.
        """
        if self._reader is not None and checkpoint >= self._from:
            self._reader.acknowledge(checkpoint)

    def statistics(self) -> PipelinedReaderStatistics | None:
        """Of the reader of its key groups; None: it has none."""
        return self._reader.statistics() if self._reader is not None else None

    # ------------------------------------------------------------------------------------------ within

    @property
    def _moves(self) -> bool:
        """The barrier under way takes key groups from this task, or gives it others."""
        barrier = self._barrier
        return barrier is not None and self._range(barrier.parallelism or self.parallelism) != self.key_groups

    def _range(self, parallelism: int) -> range:
        if self._subtask >= parallelism:
            return range(0)
        return key_group_range(self._group.handle.spec.partitions, parallelism, self._subtask)

    def _put(self, captured: Captured) -> None:
        """The snapshot of this task at the barrier under way."""
        barrier, self._barrier = self._barrier, None
        parallelism, generation = self.parallelism, self.generation
        if barrier is not None and barrier.parallelism not in (0, parallelism):
            parallelism, generation = barrier.parallelism, captured.checkpoint + 1
        snapshot = Snapshot(self.key_groups, parallelism, generation, captured.state, self._states)
        self._states = {}
        if not self._group.snapshots.put(captured.checkpoint, self.key_groups, snapshot.encode()):
            raise AttemptSuperseded(
                f"another attempt of task {self._subtask} has put the snapshot of checkpoint {captured.checkpoint}",
                remedy="begin a new attempt if this task is to go on; after producers went back, delete later ones",
                shuffle=self._group.handle.spec.id,
            )
        self.parallelism, self.generation = parallelism, generation
        if self._range(parallelism) != self.key_groups:
            self._rescales = snapshot

    def _begin(self) -> None:
        """Where the group stands; a task that it does not have yet waits until it has."""
        deadline = time.monotonic() + self._timeout

        def found() -> bool:
            there = self._group.snapshots.list()
            latest = self._group.latest_of(there)
            if latest is not None:
                try:
                    head = Snapshot.decode(self._group.snapshots.get(latest, there[latest][0]))
                except (KeyError, StorageFailed):
                    if self._group.latest() == latest:
                        raise
                    return False  # a later one has taken its place
                self._from, self.parallelism, self.generation = latest, head.parallelism, head.generation
            return self._subtask < self.parallelism

        self._wait(found, deadline, f"the group has no task {self._subtask}")
        key_groups = self._range(self.parallelism)
        later = [n for n, found in self._group.snapshots.list().items() if n > self._from and key_groups in found]
        if later:  # an earlier attempt of this task has put it: there is one truth of what is before
            self._from = max(later)
            own = Snapshot.decode(self._group.snapshots.get(self._from, key_groups))
            self.parallelism, self.generation = own.parallelism, own.generation
            if self._range(self.parallelism) != key_groups:
                self._rescales = own
                return
        snapshots = self._snapshots(self._from, key_groups) if self._from >= 0 else []
        self._take_up(key_groups, snapshots, range(0))

    def _change(self, own: Snapshot, deadline: float) -> None:
        """The group is rescaled at the barrier of `own`: leave the key groups, and take up the new ones."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        checkpoint, key_groups = own.reader.checkpoint, self._range(own.parallelism)
        if key_groups:
            self._wait(
                lambda: self._group.is_complete(self._group.snapshots.list().get(checkpoint, [])),
                deadline,
                f"not all tasks have put their snapshots of checkpoint {checkpoint}",
            )
        self._rescales = None
        kept, self._from = self.key_groups, checkpoint
        if gone := frozenset(kept) - frozenset(key_groups):
            self._state.revoke(gone)
        self._take_up(key_groups, self._snapshots(checkpoint, key_groups) if key_groups else [], kept)

    def _take_up(self, key_groups: range, snapshots: list[Snapshot], kept: range) -> None:
        states = {group: state for snapshot in snapshots for group, state in snapshot.states.items()}
        self.key_groups = key_groups
        if not key_groups:
            return
        if new := [group for group in key_groups if group not in kept]:
            self._state.assign({group: states.get(group) for group in new})
        restore = redistribute([snapshot.reader for snapshot in snapshots], key_groups) if snapshots else None
        self._reader = self._open(key_groups, self.generation, restore)

    def _snapshots(self, checkpoint: int, key_groups: range) -> list[Snapshot]:
        """Those that hold some of these key groups."""
        store = self._group.snapshots
        there = store.list()[checkpoint]
        wanted = [each for each in there if each.start < key_groups.stop and key_groups.start < each.stop]
        return [Snapshot.decode(store.get(checkpoint, each)) for each in wanted]

    def _wait(self, condition: Callable[[], bool], deadline: float, what: str) -> None:
        seconds = deadline - time.monotonic()
        backoff = Backoff(seconds, initial=_FIRST_LOOK, maximum=_LONGEST_LOOK)
        while not condition():
            pause = backoff.pause()
            if pause is None:
                raise DeadlineExceeded(
                    f"{what} within {seconds:.3g} s",
                    remedy="see whether all tasks of the group run, or raise option 'timeout'",
                    shuffle=self._group.handle.spec.id,
                )
            time.sleep(pause)
