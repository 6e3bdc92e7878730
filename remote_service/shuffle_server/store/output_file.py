"""Reading committed map output files: an index that is kept, payloads that are read by range."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shuffle_server.store import linux_aio
from shuffle_server.store.format import TRAILER, Description, TornFile, decode_tail, decode_trailer
from shuffle_transport.checksum import BLOCK_ROW
from shuffle_transport.files import FileIdentity, read_fully

MANY_RANGES = 16  # are read with one call of the kernel; to prepare it takes longer than to read a few one by one


@dataclass(frozen=True, slots=True)
class OutputFile:
    """The index of one committed file, as it was found on disk; `identity` tells whether it is still the same file."""

    path: Path
    identity: FileIdentity
    index: np.ndarray  # dtype INDEX_ROW, sorted by partition
    description: Description
    partitions: memoryview  # of the index
    rows: memoryview  # the index as bytes
    numbers: np.ndarray | None = None  # of each row, which block of its output it is; None: as their offsets say

    @classmethod
    def of(
        cls,
        path: Path,
        identity: FileIdentity,
        index: np.ndarray,
        description: Description,
        numbers: np.ndarray | None = None,
    ) -> OutputFile:
        """An output whose index and description have been read and checked."""
        rows = index.view(np.uint8).data
        return cls(path, identity, index, description, index["partition"].data, rows, numbers)

    def order(self) -> np.ndarray:
        """Places of the index rows, in the order in which their blocks were written."""
        by = self.index["offset"] if self.numbers is None else self.numbers
        return np.argsort(by, kind="stable")

    def entries(self, first: int, end: int) -> np.ndarray:
        """The index rows of partitions [first, end)."""
        low, high = self.span(first, end)
        return self.index[low:high]

    def span(self, first: int, end: int) -> tuple[int, int]:
        """The numbers of the first of those rows, and of the first one behind them."""
        # Not numpy's search: it copies the whole column first.
        low = bisect_left(self.partitions, first)
        return low, bisect_left(self.partitions, end, low)


def load(path: Path) -> OutputFile:
    """Read and check index and description. Raises TornFile, FileNotFoundError, OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        at = max(0, status.st_size - TRAILER.size)
        trailer = os.pread(fd, TRAILER.size, at)
        offset, blocks, _, _ = decode_trailer(trailer, status.st_size)
        index, description = decode_tail(read_range(fd, offset, at - offset), trailer, blocks)
    finally:
        os.close(fd)
    return OutputFile.of(path, FileIdentity.of(status), index, description)


def read_range(fd: int, offset: int, length: int) -> bytes | bytearray:
    """`length` bytes from `offset`. Raises TornFile when the file ends before."""
    data = os.pread(fd, length, offset)
    if len(data) == length:
        return data
    whole = bytearray(length)  # it was cut short, or the file is
    read_into(fd, offset, memoryview(whole))
    return whole


def read_into(fd: int, offset: int, target: memoryview) -> None:
    """Fill `target` from `offset`. Raises TornFile when the file ends before."""
    done = read_fully(fd, offset, target)
    if done < len(target):
        raise TornFile(f"it ends at {offset + done}, {len(target) - done} bytes early")


def read_ranges(fds: Sequence[int], offsets: Sequence[int], lengths: Sequence[int], target: memoryview) -> None:
    """Fill `target` with ranges of files, one behind the other. Raises as `read_into`."""
    if len(fds) >= MANY_RANGES and linux_aio.read_ranges(fds, offsets, lengths, target):
        return
    at = 0
    for fd, offset, length in zip(fds, offsets, lengths, strict=True):
        read_into(fd, offset, target[at : at + length])
        at += length


def table_of(entries: np.ndarray) -> np.ndarray:
    """Index rows without their offsets: block table rows, dtype BLOCK_ROW."""
    return np.frombuffer(encoded_table(entries), BLOCK_ROW)


def encoded_table(entries: np.ndarray) -> bytes:
    """Those rows as they lie in memory. `entries` begin with them, and lie back to back."""
    return encoded(entries, BLOCK_ROW.itemsize)


def encoded(entries: np.ndarray, size: int) -> bytes:
    """The first `size` bytes of each row."""
    width = entries.dtype.itemsize
    return entries.view(np.uint8).reshape(-1, width)[:, :size].tobytes()
