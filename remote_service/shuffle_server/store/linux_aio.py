"""Many ranges of files in one call of the kernel: Linux AIO (io_submit(2)).

Python gives up its interpreter lock for each read, and a block that lies in the page cache is read in a few
microseconds. Threads that read block after block at the same time spend more time on passing that lock to each other
than on reading. Here it is given up once for all blocks of a message.

Only the batching is wanted of it: reads of ordinary files are over when io_submit returns, as those of pread. What has
no AIO (another system, a sandbox, all of fs.aio-max-nr taken) reads block after block.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

MOST_READS = 128  # of one call: more than most messages have


class _SystemCalls(NamedTuple):
    """Numbers of system calls: of io_setup, io_submit, io_getevents."""

    setup: int
    submit: int
    getevents: int


_CALLS = {"x86_64": _SystemCalls(206, 209, 208), "aarch64": _SystemCalls(0, 2, 4)}

# struct iocb and struct io_event of linux/aio_abi.h, on little-endian machines. An opcode of 0 is IOCB_CMD_PREAD.
_READ = np.dtype(
    [
        ("data", "<u8"),
        ("key", "<u4"),
        ("rw_flags", "<i4"),
        ("opcode", "<u2"),
        ("priority", "<i2"),
        ("fd", "<u4"),
        ("buffer", "<u8"),
        ("length", "<u8"),
        ("offset", "<i8"),
        ("reserved", "<u8"),
        ("flags", "<u4"),
        ("event_fd", "<u4"),
    ]
)
_EVENT = np.dtype([("data", "<u8"), ("read", "<u8"), ("result", "<i8"), ("result2", "<i8")])


class Unavailable(Exception):
    """There is no AIO here, or none left."""


class Queue:
    """A queue of the kernel's (an aio_context_t), which lives as long as the process. One thread at a time.

    :raises Unavailable: there is none.
    """

    def __init__(self) -> None:
        calls = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
        if calls is None:
            raise Unavailable(f"{sys.platform} on {platform.machine()}")
        self._calls = calls
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.argtypes, self._call.restype = (ctypes.c_long,) * 6, ctypes.c_long
        context = ctypes.c_ulong(0)
        if self._call(calls.setup, MOST_READS, ctypes.addressof(context), 0, 0, 0):
            raise Unavailable(f"io_setup: {errno.errorcode.get(ctypes.get_errno())}")
        self._context = context.value
        self._reads = np.zeros(MOST_READS, _READ)
        self._pointers = self._reads.ctypes.data + np.arange(MOST_READS) * _READ.itemsize
        self._events = np.zeros(MOST_READS, _EVENT)

    def read(self, fds: Sequence[int], offsets: Sequence[int], lengths: Sequence[int], target: memoryview) -> bool:
        """Read at most MOST_READS ranges of files into `target`, one behind the other, which they fill.

        Whether that succeeded. If not, it is not known what was read; a read of its own says why.
        """
        count = len(fds)
        reads = self._reads[:count]
        reads["fd"], reads["offset"], reads["length"] = fds, offsets, lengths
        ends = np.cumsum(reads["length"])
        reads["buffer"] = np.frombuffer(target, np.uint8).ctypes.data + ends - reads["length"]
        submitted = self._call(self._calls.submit, self._context, count, self._pointers.ctypes.data, 0, 0)
        self._await(submitted)
        # The kernel reads no more of any than it was asked for, and says less than 0 of what failed.
        return submitted == count and int(self._events["result"][:count].sum()) == len(target)

    def _await(self, submitted: int) -> None:
        """Until nothing is written to memory that is somebody else's by then."""
        done = 0
        while done < submitted:
            left, place = submitted - done, self._events[done:].ctypes.data
            got = self._call(self._calls.getevents, self._context, left, left, place, 0)
            if got > 0:
                done += got
            elif ctypes.get_errno() != errno.EINTR:
                raise OSError(ctypes.get_errno(), "io_getevents")


_idle: list[Queue] = []  # as many as ever read at the same time


def read_ranges(fds: Sequence[int], offsets: Sequence[int], lengths: Sequence[int], target: memoryview) -> bool:
    """As `Queue.read`, of any number of ranges, by any thread; False, too, where there is no AIO."""
    if not target:
        return True
    try:
        queue = _idle.pop()
    except IndexError:
        try:
            queue = Queue()
        except Unavailable:
            return False
    at = 0
    for first in range(0, len(fds), MOST_READS):
        some = slice(first, first + MOST_READS)
        end = at + sum(lengths[some])
        if not queue.read(fds[some], offsets[some], lengths[some], target[at:end]):
            break
        at = end
    _idle.append(queue)
    return at == len(target)
