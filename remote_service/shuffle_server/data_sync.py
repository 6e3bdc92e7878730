"""Having a file's bytes on the disk, on every system."""

from __future__ import annotations

import os


def sync_data(fd: int) -> None:
    """Return when what was written is there after a loss of power, with the length and without the times of the file.

    Where the system has no such call (macOS), with the times too, which takes longer. Raises OSError.
    """
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:
        os.fsync(fd)
