"""The errors that a store answers with."""

from __future__ import annotations

import errno

from shuffle_api.errors import DeadlineExceeded, MapOutputLost, Overloaded, StorageFailed, UnknownShuffle
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.format import TornFile

BUSY = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOLCK, errno.EINTR})
"""What says nothing about a disk: the process or the machine has too little of something."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
# What a disk says that is failing, read-only or gone. Others (too many open files, no memory) are not its fault.
FAILING = frozenset(
    {
        errno.EIO,
        errno.EROFS,
        errno.ENXIO,
        errno.ENODEV,
        errno.ESTALE,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EUCLEAN,
        errno.ETIMEDOUT,
    }
)


UNREADABLE = (TornFile, OSError, StorageFailed)
"""What is raised where a file cannot be read; the last: its directory hangs."""


def busy(error: Exception, shuffle: ShuffleId | None = None, output: MapAttempt | None = None) -> Overloaded | None:
    """Not None when a file could not be read for want of descriptors, locks or memory: it may well be whole."""
    if not isinstance(error, OSError) or error.errno not in BUSY:
        return None
    return Overloaded(
        f"{error.filename or 'a map output'}: {error.strerror}",
        remedy="try again later; raise the limit of open files (ulimit -n) or give it memory",
        shuffle=shuffle,
        output=output,
    )


def gone(shuffle: ShuffleId) -> UnknownShuffle:
    """The error for a shuffle that is not registered at this worker."""
    return UnknownShuffle(
        f"shuffle {shuffle.shuffle} of app {shuffle.app} is not registered here",
        remedy="it was unregistered, or never registered",
        shuffle=shuffle,
    )


def lost(shuffle: ShuffleId, output: MapAttempt, reason: str) -> MapOutputLost:
    """An output that should be held here cannot be had."""
    return MapOutputLost(
        f"attempt {output.attempt} of map {output.map} of shuffle {shuffle.shuffle} of app {shuffle.app}: {reason}",
        remedy="run this map again",
        shuffle=shuffle,
        output=output,
    )


def in_doubt(what: str, reason: str | None, shuffle: ShuffleId, output: MapAttempt) -> DeadlineExceeded:
    """An attempt that failed, and whose file cannot be deleted: a restart of this worker may commit it."""
    return DeadlineExceeded(
        f"{what}: {reason}; its file cannot be deleted now, so it may be committed when this worker starts again",
        remedy="write this map again as a new attempt; check this disk",
        shuffle=shuffle,
        output=output,
    )
