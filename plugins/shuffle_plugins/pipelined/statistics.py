"""Statistics of a writer and of a reader. Sizes in bytes of payload, times in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shuffle_api.tables import size_shown
from shuffle_plugins.pipelined.progress import (
    InputStatistics,
    ReaderProgress,
    SubpartitionStatistics,
    WriterProgress,
    reader_table,
    writer_table,
)


@dataclass(frozen=True, slots=True)
class PipelinedWriterStatistics(WriterProgress):
    """A writer at one moment. Of two moments, `since` in a method is the earlier one."""

    open_seconds: float  # since it was opened
    queued_bytes: int  # waits for readers
    queue_limit: int  # above this a write waits; moves with the readers' speed
    logged_bytes: int  # sent, not acknowledged, in memory
    log_disk_bytes: int  # of its log on disk
    reserved_bytes: int  # of the plugin's memory
    blocks: int  # written so far
    bytes: int
    records: int
    forgotten_blocks: int  # dropped from the log before they were acknowledged: cannot be replayed
    back_pressured_seconds: float  # waits for room, summed; the one under way included
    subpartitions: tuple[SubpartitionStatistics, ...]

    def back_pressured_share(self, since: PipelinedWriterStatistics | None = None) -> float:
        """The share of the time in which a write waited for room: Flink's backPressuredTimeMsPerSecond / 1000."""
        before = since.back_pressured_seconds if since is not None else 0.0
        return self._share(self.back_pressured_seconds, before, since)

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return WriterProgress.as_dict(self) | {"back_pressured_share": self.back_pressured_share()}

    def table(self, since: PipelinedWriterStatistics | None = None) -> str:
        """As text: sums, and a line per partition. Rates are of the time since `since`, or since it was opened."""
        rate = self._rate(self.records, since.records if since is not None else 0, since)
        head = (
            f"{self.records:,} records ({size_shown(self.bytes)}) out, {rate};"
            f" back-pressured {self.back_pressured_share(since):.0%};"
            f" queues {size_shown(self.queued_bytes)} of {size_shown(self.queue_limit)},"
            f" log {size_shown(self.logged_bytes)} in memory, {size_shown(self.log_disk_bytes)} on disk"
        )
        return f"{head}\n{writer_table(self.subpartitions)}"


@dataclass(frozen=True, slots=True)
class PipelinedReaderStatistics(ReaderProgress):
    """A reader at one moment. Of two moments, `since` in a method is the earlier one."""

    open_seconds: float  # since it was opened
    held_bytes: int  # received, not processed
    held_by_map: dict[int, int]  # the same by input
    window: int  # most that may be on its way to it; moves with its speed
    blocks: int  # processed so far
    bytes: int
    records: int
    starved_seconds: float  # waits for data, summed
    blocked: tuple[int, ...]  # maps whose barrier has come and that wait for the others
    reconnects: int
    watermark: int | None  # of all maps: the last that the task was given
    inputs: tuple[InputStatistics, ...]

    @property
    def idle_seconds(self) -> float:
        return self.starved_seconds

    def watermark_lag(self, now: int) -> int | None:
        """How far the watermark is behind `now`, in its unit; None: there is none yet."""
        return None if self.watermark is None else now - self.watermark

    def table(self, since: PipelinedReaderStatistics | None = None, now: int | None = None) -> str:
        """As text: sums, and a line per map and partition.

        :param since: the rates are of the time from there; None: since the reader was opened.
        :param now: the time in the unit of the watermarks: then the lag by watermark is shown as well.
        """
        rate = self._rate(self.records, since.records if since is not None else 0, since)
        lag = "" if now is None or self.watermark is None else f", {now - self.watermark:,} behind"
        shown = "none" if self.watermark is None else str(self.watermark)
        head = (
            f"{self.records:,} records ({size_shown(self.bytes)}) in, {rate}; idle {self.idle_share(since):.0%};"
            f" {size_shown(self.held_bytes)} held of a window of {size_shown(self.window)}; watermark {shown}{lag};"
            f" {len(self.blocked)} of {len(self.held_by_map)} maps wait for barriers"
        )
        return f"{head}\n{reader_table(self.inputs, now)}"
