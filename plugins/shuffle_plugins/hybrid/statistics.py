"""Statistics of a writer and of a reader. Sizes in bytes before compression, times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

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

    def table(self, since: HybridWriterStatistics | None = None) -> str:
        """As text: sums, and a line per partition. The rate is of the time since `since`, or since it was opened."""
        rate = self._rate(self.records_out, since.records_out if since is not None else 0, since)
        head = (
            f"{self.records_out:,} records ({size_shown(self.bytes_out)}) out, {rate};"
            f" {size_shown(self.live_bytes)} taken live, {size_shown(self.spilled_bytes)} only in the store,"
            f" {self.cuts} partitions cut; {self.readers} readers"
        )
        return f"{head}\n{writer_table(self.subpartitions)}"


@dataclass(frozen=True, slots=True)
class HybridReaderStatistics(ReaderProgress):
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
    def idle_seconds(self) -> float:
        return self.waited_seconds

    def table(self, since: HybridReaderStatistics | None = None) -> str:
        """As text: sums, and a line per map and partition. Rates are of the time since `since`, or since it was
        opened."""
        rate = self._rate(self.records_in, since.records_in if since is not None else 0, since)
        head = (
            f"{self.records_in:,} records in, {rate}; idle {self.idle_share(since):.0%};"
            f" {size_shown(self.live_bytes)} live, {size_shown(self.stored_bytes)} from the store,"
            f" {size_shown(self.held_bytes)} held"
        )
        return f"{head}\n{reader_table(self.inputs)}"
