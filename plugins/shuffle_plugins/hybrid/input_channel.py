"""One map of a reader: what came of it live, what was handed out, and what the store says. Decisions, no I/O.

    nothing -> live: blocks of one attempt come -> complete
                 |                                 ^
                 +-> broken, or cut: waits ------> the store has the winner: read there from where it stands

Until something of an attempt is handed out it may be left for another one. After that the map must be won by this
attempt: the reader raises when it is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from shuffle_api.errors import ShuffleError, StreamBroken
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import MapOutput
from shuffle_plugins.hybrid.live_receiver import LiveReceiver
from shuffle_plugins.pipelined.entries import SequencedBlock
from shuffle_plugins.pipelined.producer_registry import ProducerFailed, ProducerLocation
from shuffle_plugins.pipelined.progress import Counts, InputStatistics, new_counts, progress_of
from shuffle_plugins.pipelined.source import Source

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0


class ReceivedBlock(NamedTuple):
    """A block that was received and not handed out; `stored` is the argument of `source.release`."""

    block: SequencedBlock
    stored: int
    source: Source


class JoinTimes:
    """When to connect to a writer again: later after each connection that broke, until a block comes.

    :ivar earliest: of the next connection, on the reader's clock.
    :ivar pause: after a connection that breaks now.
    """

    __slots__ = ("earliest", "pause")

    def __init__(self) -> None:
        self.earliest, self.pause = 0.0, FIRST_PAUSE

    def broke(self, now: float) -> None:
        self.earliest = now + self.pause
        self.pause = min(2 * self.pause, LONGEST_PAUSE)


class HybridInputChannel:
    """
    :param whole: all partitions of the map are read.
    :ivar place: what the driver said last about the writers of this map.
    :ivar reading: the attempt whose blocks came.
    :ivar receiver: that receives them; None: nobody does.
    :ivar connected: the feed has found its writer.
    :ivar items: received, not handed out.
    :ivar handed: by partition, how many blocks of `reading` were handed out.
    :ivar read: by partition, records and bytes that were handed out, live or from the store.
    :ivar totals: by partition, how many there are, once that is known: the attempt has won.
    :ivar output: the winner in the store; blocks that are not handed out yet are read there.
    :ivar error: why the last feed ended.
    :ivar alone_since: when it was found that nobody writes this map, on the reader's clock.
    :ivar join: when the next connection may be made.
    """

    def __init__(self, map: int, *, whole: bool) -> None:
        self.map, self._whole = map, whole
        self.place: ProducerLocation | ProducerFailed | None = None
        self.reading: MapAttempt | None = None
        self.receiver: LiveReceiver | None = None
        self.connected = False
        self.items: deque[ReceivedBlock] = deque()
        self.handed: dict[int, int] = {}
        self.read: Counts = new_counts()
        self.totals: Mapping[int, int] | None = None
        self.output: MapOutput | None = None
        self.done = False
        self.error: ShuffleError | None = None
        self.alone_since: float | None = None
        self.join = JoinTimes()
        self._received: dict[int, int] = {}

    @property
    def began(self) -> bool:
        """Something of `reading` was handed out."""
        return bool(self.handed)

    @property
    def unsettled(self) -> bool:
        """Nothing more comes live, and it is not known yet whether and where the store has the rest."""
        if self.done or self.output is not None:
            return False
        return not self.connected if self.totals is None else not self.items

    @property
    def stored(self) -> bool:
        """The rest is to be read from the store now."""
        return not self.done and self.output is not None and not self.items

    def take_in(self, held: ReceivedBlock) -> bool:
        """Whether it is the next one of its partition. (After a new connection there may be a gap before it.)"""
        partition, number = held.block.partition, held.block.number
        if number != self._received.get(partition, 0):
            return False
        self._received[partition] = number + 1
        self.items.append(held)
        self.join.pause = FIRST_PAUSE
        return True

    def hand_out(self) -> ReceivedBlock:
        held = self.items.popleft()
        self.handed[held.block.partition] = held.block.number + 1
        self._finish()
        return held

    def progress(self) -> list[InputStatistics]:
        """By partition: what was handed out, and what waits for that."""
        return progress_of(self.map, (), self.read, (held.block for held in self.items))

    def ended(self, totals: Mapping[int, int]) -> None:
        """The attempt has won; there are so many blocks by partition."""
        self.totals = dict(totals)
        self._finish()

    def leave(self) -> LiveReceiver | None:
        """Nobody receives any more; returns who did."""
        receiver, self.receiver, self.connected = self.receiver, None, False
        return receiver

    def broke(self, error: ShuffleError, now: float) -> None:
        """The feed has ended without the end."""
        self.leave()
        self.error = error
        self.join.broke(now)

    def forget(self) -> None:
        """Drop what came of the attempt: it does not count."""
        self.items.clear()
        self._received.clear()
        self.handed.clear()
        self.totals = self.reading = None

    def settle(self, winner: MapOutput) -> None:
        """The store has the winner, which is the attempt that is read, or nothing was read."""
        self.output = winner
        if self._whole and self.reading is not None and sum(self._received.values()) == winner.totals.blocks:
            self.ended(dict(self._received))

    def lost(self, shuffle: ShuffleId, why: str) -> StreamBroken:
        """What the reader raises when the attempt that it has begun with will not win."""
        return StreamBroken(
            f"{self.reading} is lost, and some of it was handed out: {why}",
            remedy="drop what was read, and read again with a new reader",
            shuffle=shuffle,
            output=self.reading,
        )

    def writer_lost(self) -> str:
        """Why the attempt that was begun with will not go on, unless the store has it; empty: it may."""
        if self.connected or not self.began:
            return ""
        cause = self.error.message if self.error is not None else "nothing came any more"
        if isinstance(self.place, ProducerFailed):
            return self.place.reason
        if isinstance(self.place, ProducerLocation) and self.place.output != self.reading:
            return f"{cause}, and {self.place.output} is written in its place"
        return ""

    def _finish(self) -> None:
        if self.totals is not None and not self.items:
            self.done = all(self.handed.get(partition, 0) >= number for partition, number in self.totals.items())
