"""What a writer and a reader say about themselves. Sizes in bytes of payload, times in seconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PipelinedWriterStatistics:
    """A writer at one moment.

    The back-pressured milliseconds per second between two moments are 1000 times the difference of
    `back_pressured_seconds` by that of the clock.
    """

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
    queued_by_partition: tuple[int, ...]  # skew shows here


@dataclass(frozen=True, slots=True)
class PipelinedReaderStatistics:
    """A reader at one moment."""

    held_bytes: int  # received, not processed
    held_by_map: dict[int, int]  # the same by input
    window: int  # most that may be on its way to it; moves with its speed
    blocks: int  # processed so far
    bytes: int
    records: int
    starved_seconds: float  # waits for data, summed
    blocked: tuple[int, ...]  # maps whose barrier has come and that wait for the others
    reconnects: int
