"""Memory that is freed and wanted again a moment later.

The GNU C library gives freed blocks of more than 128 KiB back to the system, which hands out zeroed pages when the next
one is allocated: a fault for each 4 KiB of every message. A stream of large messages spent a tenth of its processor
time on that. The library itself stops doing so for blocks of the size of the largest that was ever freed (mallopt(3),
"dynamic mmap threshold"), so one that is freed in the beginning is all it takes. Who has set thresholds (MALLOC_...)
keeps them, and with other libraries nothing happens.
"""

from __future__ import annotations

from functools import cache

KEPT_BYTES = 16 << 20
"""Blocks up to this size are taken from memory that was freed; twice as much may stay with the process."""


@cache  # a second block would come from kept memory, and be zeroed
def keep_freed_memory() -> None:
    """Let this process allocate large blocks from what it has freed. Costs nothing: the memory is never touched."""
    bytes(KEPT_BYTES)
