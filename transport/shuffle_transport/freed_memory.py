"""Memory that is freed and wanted again a moment later.

The GNU C library gives freed blocks of more than 128 KiB back to the system, which hands out zeroed pages when the next
one is allocated: a fault for each 4 KiB of every message. A stream of large messages spent a tenth of its processor
time on that. The library itself stops doing so for blocks of the size of the largest that was ever freed (mallopt(3),
"dynamic mmap threshold"), so one that is freed in the beginning is all it takes.

It also has up to eight *arenas* for each processor, and a thread is served from its own. A message is allocated by
whichever of gRPC's threads reads it and freed by a consumer's, so each arena came to hold as much free memory as all
channels together once needed: a consumer of 64 channels with a budget of 128 MiB grew by 190 to 260 MiB. With an arena
for each processor it is 65 to 80. Who has set one of these (MALLOC_...) keeps it, and with other libraries nothing
happens.
"""

from __future__ import annotations

import ctypes
import os
import platform
from functools import cache

KEPT_BYTES = 16 << 20
"""Blocks up to this size are taken from memory that was freed; twice as much may stay with the process."""

_M_ARENA_MAX = -8  # malloc.h


@cache  # a second block would come from kept memory, and be zeroed
def keep_freed_memory() -> None:
    """Let this process allocate large blocks from what it has freed, whichever thread has. Costs nothing: the memory is
    never touched."""
    if platform.libc_ver()[0] == "glibc" and "MALLOC_ARENA_MAX" not in os.environ:
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, os.cpu_count() or 1)
    bytes(KEPT_BYTES)


def give_back_freed_memory() -> None:
    """Give what this process has freed back to the system, as far as the library can: free memory between what is in
    use stays otherwise. Takes some 10 ms for each GiB, in which other threads wait for memory."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
