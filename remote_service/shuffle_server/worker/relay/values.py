"""What passes between the writers and the readers of a relayed shuffle (streaming_shuffle.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from shuffle_api.errors import InvalidArgument, ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_transport.blocks import BlockBatch

TICK_SECONDS = 0.5
"""Between two looks of a stream that waits for its peer."""

KEEPALIVE_SECONDS = 5.0
"""After which a stream that has nothing to send sends an empty message."""


class Sender(Protocol):
    """The writer's stream, as the receiver of its events. Called by any thread, without the shuffle's lock."""

    def consumed(self, size: int) -> None:
        """A batch with so many payload bytes has left memory."""
        ...

    def failed(self, error: ShuffleError) -> None:
        """The shuffle has failed."""
        ...


@dataclass(eq=False, slots=True)
class RelayWriter:
    """One attempt of a map. `unread` are its batches of which something has not been read."""

    output: MapAttempt
    sender: Sender
    heard_at: float
    totals: Totals = field(default_factory=Totals)
    parts: dict[int, Totals] = field(default_factory=dict)
    unread: int = 0
    handed_on: bool = False
    ended: bool = False


@dataclass(eq=False, slots=True)
class RelayReader:
    """One attempt to read a partition. `ends_sent` counts the ends of maps it knows, `holding` the chunks it was
    given."""

    partition: int
    attempt: int
    since: float
    moved: float
    ends_sent: int = 0
    holding: int = 0
    received: bool = False
    finished: bool = False


@dataclass(eq=False, slots=True)
class RelayBatch:
    writer: RelayWriter
    size: int
    chunks: int
    came: float


@dataclass(frozen=True, slots=True)
class RelayChunk:
    """Neighbouring blocks of one partition in one batch of a writer."""

    rows: np.ndarray
    payload: memoryview
    batch: RelayBatch

    @property
    def output(self) -> MapAttempt:
        return self.batch.writer.output


@dataclass(frozen=True, slots=True)
class MapEnd:
    """A map has ended. A partition that is missing in `parts` has no blocks of it."""

    output: MapAttempt
    parts: Mapping[int, Totals]


@dataclass(frozen=True, slots=True)
class Taken:
    """What a reader gets at once: chunks, then ends of maps; `finished`: there will be nothing more."""

    chunks: Sequence[RelayChunk] = ()
    ends: Sequence[MapEnd] = ()
    finished: bool = False


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """A relayed shuffle at one moment. Sizes in payload bytes."""

    shuffle: ShuffleId
    writers: int  # that have not been read to the end
    readers: int
    totals: Totals  # what these and the writers that have ended sent
    queued_blocks: int  # that no reader has taken yet
    queued_records: int
    queued_bytes: int
    lag_seconds: float  # since the oldest of them came


@dataclass(frozen=True, slots=True)
class RelayStatistics:
    """The relayed shuffles of a worker at one moment, with their sums."""

    streams: tuple[StreamStatistics, ...] = ()

    @property
    def writers(self) -> int:
        return sum(each.writers for each in self.streams)

    @property
    def readers(self) -> int:
        return sum(each.readers for each in self.streams)

    @property
    def queued_blocks(self) -> int:
        return sum(each.queued_blocks for each in self.streams)

    @property
    def queued_bytes(self) -> int:
        return sum(each.queued_bytes for each in self.streams)


def chunks_of(batch: BlockBatch, writer: RelayWriter, now: float) -> list[RelayChunk]:
    """The batch cut where the partition changes."""
    rows, whole = batch.rows, RelayBatch(writer, batch.payload.nbytes, 0, now)
    if not len(rows):
        raise InvalidArgument("a batch without blocks", remedy="send a message without a batch")
    cuts = (np.flatnonzero(np.diff(rows["partition"])) + 1).tolist()
    ends = np.cumsum(rows["length"]).tolist()
    chunks, at = [], 0
    for first, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        chunks.append(RelayChunk(rows[first:end], batch.payload[at : ends[end - 1]], whole))
        at = ends[end - 1]
    return chunks
