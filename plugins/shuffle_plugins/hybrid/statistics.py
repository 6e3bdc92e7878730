"""What a writer and a reader say about themselves. Sizes in bytes before compression."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HybridWriterStatistics:
    """A writer at one moment. All it writes goes to the store; each block is besides in one of three states."""

    live_blocks: int  # taken by a live reader
    live_bytes: int
    queued_blocks: int  # wait for one
    queued_bytes: int
    spilled_blocks: int  # only in the store: nobody was there, or did not take them in time, or memory was short
    spilled_bytes: int
    cuts: int  # partitions whose readers go on from the store
    reserved_bytes: int  # of the plugin's memory
    readers: int  # connected now


@dataclass(frozen=True, slots=True)
class HybridReaderStatistics:
    """A reader at one moment."""

    live_blocks: int  # handed out while their map was written
    live_bytes: int
    stored_blocks: int  # handed out from the store
    stored_bytes: int
    held_bytes: int  # received live, not handed out
    continued: int  # maps that began live and went on from the store
    switched: int  # attempts that were left before anything of them was handed out
    waited_seconds: float  # with nothing to hand out, summed
