"""Reads that are not cut short: the kernel moves at most 2 GiB at once, and may move less."""

from __future__ import annotations

import os


def read_fully(fd: int, offset: int, target: memoryview) -> int:
    """Fill `target`, of bytes, from `offset`; how many there were: fewer when the file ends. Raises OSError."""
    done = 0
    while done < len(target):
        count = os.preadv(fd, [target[done:]], offset + done)
        if not count:
            break
        done += count
    return done
