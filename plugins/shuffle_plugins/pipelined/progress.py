"""Progress and lag of streams, by subpartition: as values, as JSON, and as tables. The words are Flink's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeAlias

from shuffle_api.tables import size_shown, table, time_shown
from shuffle_plugins.pipelined.entries import SequencedBlock

MOST_ROWS = 20
"""Subpartitions in a table, those with the largest lag."""


@dataclass(frozen=True, slots=True)
class SubpartitionStatistics:
    """A partition of one writer. Sizes in bytes of payload."""

    partition: int
    records_out: int  # written so far
    bytes_out: int
    queued_records: int  # wait for the reader
    queued_bytes: int
    unacknowledged_records: int  # sent, not acknowledged
    unacknowledged_bytes: int
    lag_seconds: float  # the age of the oldest record in either

    @property
    def lag_records(self) -> int:
        """Records written that the reader has not acknowledged."""
        return self.queued_records + self.unacknowledged_records

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "lag_records": self.lag_records}


@dataclass(frozen=True, slots=True)
class InputStatistics:
    """A partition of one map, at its reader. Sizes in bytes of payload."""

    map: int
    partition: int
    records_in: int  # handed to the task so far
    bytes_in: int
    held_records: int  # received, not handed out
    held_bytes: int
    watermark: int | None = None  # of the map: the last that the task has reached

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


Counts: TypeAlias = defaultdict[int, list[int]]
"""Records and bytes by partition."""


def new_counts() -> Counts:
    return defaultdict(lambda: [0, 0])


def progress_of(
    map: int, partitions: Iterable[int], read: Counts, waiting: Iterable[SequencedBlock], watermark: int | None = None
) -> list[InputStatistics]:
    """By partition of one map: what the task got, and what waits for it. `partitions` have a row in any case."""
    held = new_counts()
    for block in waiting:
        held[block.partition][0] += block.records
        held[block.partition][1] += block.size
    found = [(p, read.get(p, [0, 0]), held.get(p, [0, 0])) for p in sorted({*partitions, *read, *held})]
    return [InputStatistics(map, p, got[0], got[1], has[0], has[1], watermark) for p, got, has in found]


class _AsDict(Protocol):
    def as_dict(self) -> dict[str, Any]: ...


def plain(statistics: Any, rows: str, **more: Any) -> dict[str, Any]:
    """A dataclass of statistics as JSON values; `rows` names the field with a value per subpartition."""
    found: Sequence[_AsDict] = getattr(statistics, rows)
    return {**asdict(statistics), **more, rows: [each.as_dict() for each in found]}


class StreamProgress:
    """What all statistics share. Of two moments, `since` in a method is the earlier one."""

    __slots__ = ()
    open_seconds: float  # since it was opened

    def _rate(self, records: int, before: int, since: StreamProgress | None) -> str:
        """Of `records`, of which there were `before` at `since`."""
        return rate_shown(records - before, self._seconds(since))

    def _share(self, seconds: float, before: float, since: StreamProgress | None) -> float:
        """The part of the time that a sum of waits is, between 0 and 1."""
        of = self._seconds(since)
        return min(1.0, max(0.0, (seconds - before) / of)) if of > 0 else 0.0

    def _seconds(self, since: StreamProgress | None) -> float:
        return self.open_seconds - (since.open_seconds if since is not None else 0.0)


class WriterProgress(StreamProgress):
    """What the statistics of writers share."""

    __slots__ = ()
    subpartitions: tuple[SubpartitionStatistics, ...]

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return plain(self, "subpartitions", lag_records=self.lag_records, lag_seconds=self.lag_seconds)

    @property
    def records_out(self) -> int:
        return sum(each.records_out for each in self.subpartitions)

    @property
    def bytes_out(self) -> int:
        return sum(each.bytes_out for each in self.subpartitions)

    @property
    def lag_records(self) -> int:
        """Records written that readers have not acknowledged."""
        return sum(each.lag_records for each in self.subpartitions)

    @property
    def lag_seconds(self) -> float:
        """The age of the oldest of them."""
        return max((each.lag_seconds for each in self.subpartitions), default=0.0)


class ReaderProgress(StreamProgress):
    """What the statistics of readers share."""

    __slots__ = ()
    inputs: tuple[InputStatistics, ...]

    @property
    def idle_seconds(self) -> float:
        """For how long the task waited for data, summed."""
        raise NotImplementedError

    @property
    def lag_records(self) -> int:
        """Records received that were not handed to the task. What the writers hold besides, they count."""
        return sum(each.held_records for each in self.inputs)

    def idle_share(self, since: ReaderProgress | None = None) -> float:
        """The share of the time in which the task waited for data: Flink's idleTimeMsPerSecond / 1000."""
        return self._share(self.idle_seconds, since.idle_seconds if since is not None else 0.0, since)

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return plain(self, "inputs", lag_records=self.lag_records, idle_share=self.idle_share())


def rate_shown(records: int, seconds: float) -> str:
    """`1,200 records/s`."""
    return f"{records / seconds:,.0f} records/s" if seconds > 0 else "-"


def writer_table(rows: Iterable[SubpartitionStatistics]) -> str:
    """A line per subpartition, those with the largest lag if there are many."""
    found = list(rows)
    shown = sorted(found, key=lambda each: (-each.lag_records, -each.lag_seconds, each.partition))[:MOST_ROWS]
    text = table(
        (
            *("PARTITION", "RECORDS OUT", "BYTES OUT", "QUEUED", "QUEUED BYTES", "UNACKNOWLEDGED"),
            *("UNACKNOWLEDGED BYTES", "LAG", "LAG TIME"),
        ),
        [
            (
                each.partition,
                f"{each.records_out:,}",
                size_shown(each.bytes_out),
                f"{each.queued_records:,}",
                size_shown(each.queued_bytes),
                f"{each.unacknowledged_records:,}",
                size_shown(each.unacknowledged_bytes),
                f"{each.lag_records:,}",
                time_shown(each.lag_seconds),
            )
            for each in shown
        ],
    )
    return text + _left_out(len(shown), len(found))


def reader_table(rows: Iterable[InputStatistics], now: int | None = None) -> str:
    """A line per subpartition, those with most records held if there are many.

    :param now: the time in the unit of the watermarks; adds how far each is behind it.
    """
    found = list(rows)
    shown = sorted(found, key=lambda each: (-each.held_records, each.map, each.partition))[:MOST_ROWS]
    head = ("MAP", "PARTITION", "RECORDS IN", "BYTES IN", "HELD", "HELD BYTES", "WATERMARK")
    text = table(
        head if now is None else (*head, "WATERMARK LAG"),
        [
            (
                each.map,
                each.partition,
                f"{each.records_in:,}",
                size_shown(each.bytes_in),
                f"{each.held_records:,}",
                size_shown(each.held_bytes),
                "-" if each.watermark is None else each.watermark,
                *(() if now is None else ("-" if each.watermark is None else f"{now - each.watermark:,}",)),
            )
            for each in shown
        ],
    )
    return text + _left_out(len(shown), len(found))


def _left_out(shown: int, there: int) -> str:
    return f"\n({shown} of {there} subpartitions, the largest lags)" if shown < there else ""
