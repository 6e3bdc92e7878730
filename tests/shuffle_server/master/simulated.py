"""A directory that crashes on demand: the process dies between two calls, or the machine, which forgets what was not
synced.

What survives a machine: of a file, what was synced and any part of what was appended since, its end perhaps zeros; of
the directory, what was synced and the first so many changes since (file systems journal them in order).
"""

from __future__ import annotations

import errno
import io
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import BinaryIO


class Crash(BaseException):
    """The process has died; nothing of its code runs any more."""


@dataclass(eq=False)
class Inode:
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""


class SimulatedFile:
    def __init__(self, directory: SimulatedDirectory, inode: Inode) -> None:
        self._directory, self._inode = directory, inode

    def write(self, data: bytes) -> None:
        self._directory.step(lambda: self._inode.data.extend(self._part(data)))
        self._directory.check_room(len(data))
        self._inode.data += data

    def _part(self, data: bytes) -> bytes:
        return data[: self._directory.random.randrange(len(data) + 1)]

    def sync(self) -> None:
        self._directory.step()
        if self._directory.failing_sync:
            raise OSError(errno.EIO, "Input/output error")
        self._inode.synced = bytes(self._inode.data)

    def truncate(self, size: int) -> None:
        self._directory.step()
        del self._inode.data[size:]

    def close(self) -> None:
        pass


class SimulatedDirectory:
    """A Directory (`shuffle_server.master.files`). `steps` counts the calls that change something; the one with number
    `crash_at` dies, having done a part of its work or nothing; those with a number in `fail_at` raise OSError, having
    done a part of theirs."""

    def __init__(self, crash_at: int = 0, seed: int = 0) -> None:
        self.crash_at, self.steps, self.random = crash_at, 0, random.Random(seed)
        self.room = 1 << 40
        self.failing_sync = False
        self.fail_at: Collection[int] = ()
        self.inodes: dict[str, Inode] = {}
        self._synced: dict[str, Inode] = {}
        self._changes: list[Callable[[dict[str, Inode]], object]] = []

    def step(self, part: Callable[[], object] = lambda: None) -> None:
        if self.crash_at and self.steps >= self.crash_at:
            raise Crash
        self.steps += 1
        if self.steps == self.crash_at:
            part()
            raise Crash
        if self.steps in self.fail_at:
            part()
            raise OSError(errno.EIO, "Input/output error")

    def check_room(self, size: int) -> None:
        if size > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= size

    def after_process_crash(self) -> SimulatedDirectory:
        """What the next process finds: everything that reached the system."""
        after = SimulatedDirectory(seed=self.random.randrange(1 << 30))
        after.inodes = {name: Inode(bytearray(i.data), i.synced) for name, i in self.inodes.items()}
        after._synced = dict(after.inodes)
        return after

    def after_power_cut(self) -> SimulatedDirectory:
        """What the next process finds when the machine has lost what it was free to lose."""
        after = SimulatedDirectory(seed=self.random.randrange(1 << 30))
        names = dict(self._synced)
        for change in self._changes[: self.random.randrange(len(self._changes) + 1)]:
            change(names)
        after.inodes = {name: self._remembered(inode) for name, inode in names.items()}
        after._synced = dict(after.inodes)
        return after

    def _remembered(self, inode: Inode) -> Inode:
        kept = min(len(inode.synced), len(inode.data))
        tail = bytes(inode.data[kept:])
        part = tail[: self.random.randrange(len(tail) + 1)]
        zeros = bytes(self.random.randrange(len(tail) - len(part) + 1))
        data = bytes(inode.data[:kept]) + part + zeros
        return Inode(bytearray(data), data)

    def names(self) -> list[str]:
        return sorted(self.inodes)

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(bytes(self.inodes[name].data))

    def create(self, name: str) -> SimulatedFile:
        self.step()
        inode = Inode()
        self._change(lambda names: names.__setitem__(name, inode))
        return SimulatedFile(self, inode)

    def append(self, name: str) -> SimulatedFile:
        return SimulatedFile(self, self.inodes[name])

    def rename(self, old: str, new: str) -> None:
        self.step()
        self._change(lambda names: names.__setitem__(new, names.pop(old)))

    def remove(self, name: str) -> None:
        self.step()
        self._change(lambda names: names.pop(name))

    def sync(self) -> None:
        self.step()
        self._synced = dict(self.inodes)
        self._changes.clear()

    def describe(self, name: str) -> str:
        return f"/simulated/{name}"

    def _change(self, change: Callable[[dict[str, Inode]], object]) -> None:
        change(self.inodes)
        self._changes.append(change)
