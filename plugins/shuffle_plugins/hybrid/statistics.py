"""Statistics of a writer and of a reader. Sizes in bytes before compression, times in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shuffle_api.tables import size_shown
from shuffle_plugins.pipelined.progress import (
    InputStatistics,
    SubpartitionStatistics,
    WriterProgress,
    plain,
    rate_shown,
    reader_table,
    seconds_between,
    share,
    writer_table,
)


@dataclass(frozen=True, slots=True)
class HybridWriterStatistics(WriterProgress):
    """A writer at one moment. All it writes goes to the store; each block is besides in one of three states."""

    open_seconds: float  # since it was opened
    live_blocks: int  # taken by a live reader
    live_bytes: int
    queued_blocks: int  # wait for one
    queued_bytes: int
    spilled_blocks: int  # only in the store: nobody was there, or did not take them in time, or memory was short
    spilled_bytes: int
    cuts: int  # partitions whose readers go on from the store
    reserved_bytes: int  # of the plugin's memory
    readers: int  # connected now
    subpartitions: tuple[SubpartitionStatistics, ...]  # their lag is what waits for a live reader

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return plain(self, "subpartitions", lag_records=self.lag_records, lag_seconds=self.lag_seconds)

    def table(self, since: HybridWriterStatistics | None = None) -> str:
        """As text: sums, and a line per partition. The rate is of the time since `since`, or since it was opened."""
        rate = rate_shown(
            self.records_out - (since.records_out if since is not None else 0),
            seconds_between(self.open_seconds, since, "open_seconds"),
        )
        head = (
            f"{self.records_out:,} records ({size_shown(self.bytes_out)}) out, {rate};"
            f" {size_shown(self.live_bytes)} taken live, {size_shown(self.spilled_bytes)} only in the store,"
            f" {self.cuts} partitions cut; {self.readers} readers"
        )
        return f"{head}\n{writer_table(self.subpartitions)}"


@dataclass(frozen=True, slots=True)
class HybridReaderStatistics:
    """A reader at one moment."""

    open_seconds: float  # since it was opened
    live_blocks: int  # handed out while their map was written
    live_bytes: int
    stored_blocks: int  # handed out from the store
    stored_bytes: int
    held_bytes: int  # received live, not handed out
    continued: int  # maps that began live and went on from the store
    switched: int  # attempts that were left before anything of them was handed out
    waited_seconds: float  # with nothing to hand out, summed
    inputs: tuple[InputStatistics, ...]

    @property
    def records_in(self) -> int:
        return sum(each.records_in for each in self.inputs)

    @property
    def lag_records(self) -> int:
        """Records received live that were not handed to the task."""
        return sum(each.held_records for each in self.inputs)

    def idle_share(self, since: HybridReaderStatistics | None = None) -> float:
        """The share of the time in which the task waited for data: Flink's idleTimeMsPerSecond / 1000."""
        waited = seconds_between(self.waited_seconds, since, "waited_seconds")
        return share(waited, seconds_between(self.open_seconds, since, "open_seconds"))

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return plain(self, "inputs", lag_records=self.lag_records, idle_share=self.idle_share())

    def table(self, since: HybridReaderStatistics | None = None) -> str:
        """As text: sums, and a line per map and partition. Rates are of the time since `since`, or since it was
        opened."""
        rate = rate_shown(
            self.records_in - (since.records_in if since is not None else 0),
            seconds_between(self.open_seconds, since, "open_seconds"),
        )
        head = (
            f"{self.records_in:,} records in, {rate}; idle {self.idle_share(since):.0%};"
            f" {size_shown(self.live_bytes)} live, {size_shown(self.stored_bytes)} from the store,"
            f" {size_shown(self.held_bytes)} held"
        )
        return f"{head}\n{reader_table(self.inputs)}"
