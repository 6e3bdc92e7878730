"""Simulated disks: real files below one directory in memory, whose calls can fail, hang, or be the last of a process.

The functions of `os` are wrapped for paths below `ROOT`. A power cut leaves of a file what was synced, and of what came
later a part; of the names in a directory those that were synced, and of the later changes the first so many. (Like ext4
and xfs: directories made before are there, and a file's sync covers its length.)
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tests.faults.simulate.locks import Here
from tests.faults.simulate.scheduler import Crash, Process

REAL = {
    name: getattr(os, name)
    for name in (
        *(
            "open",
            "close",
            "write",
            "pwrite",
            "pwritev",
            "writev",
            "pread",
            "preadv",
            "ftruncate",
            "fsync",
            "fdatasync",
        ),
        *("link", "rename", "replace", "unlink", "remove", "mkdir", "rmdir", "scandir", "listdir", "statvfs", "fdopen"),
    )
}
_SIZE = 1 << 34  # of each file system
_FULL_FREE = 0

Names = dict[str, int]  # the inode of each name
_owners: dict[int, Process] = {}  # who has opened a descriptor
_NOTHING = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)


@dataclass(eq=False)
class Disk:
    """One file system, mounted at `path`. `state`: empty, `full`, `failing`, `readonly`, `hung`.

    `fuse`: the number of changes after which it gets into `fused`, for one call.
    """

    path: str
    free: int = _SIZE // 2
    state: str = ""
    fuse: int | None = None
    fused: str = ""
    synced: dict[int, bytes] = field(default_factory=dict)  # content by inode
    names: dict[str, Names] = field(default_factory=dict)  # by directory, as synced
    changes: dict[str, list[tuple[str, int | None]]] = field(default_factory=dict)  # of names that are not synced

    def check(self, change: bool) -> None:
        """Raises OSError, or waits, as this disk does now."""
        state = self.state
        if change and self.fuse is not None:
            self.fuse -= 1
            if self.fuse <= 0:
                state, self.fuse = self.fused, None
        while state == "hung":
            Here.scheduler.sleep(0.5)
            state = self.state
        if state == "failing":
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
        if change and state == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)
        if change and state == "readonly":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), self.path)

    def note(self, path: str, inode: int | None) -> None:
        """A name begins to mean this file, or nothing."""
        directory, _, name = path.rpartition("/")
        self.changes.setdefault(directory, []).append((name, inode))

    def sync_names(self, directory: str) -> None:
        names = self.names.setdefault(directory, {})
        for name, inode in self.changes.pop(directory, ()):
            _set(names, name, inode)

    def flip(self, path: str, offset: int, mask: int, only: int | None = None) -> int:
        """Flip bits of one byte of a file, on the disk and in memory; the new byte, or -1 if there is no such one.

        :param only: nothing is done unless the byte is this.
        """
        try:
            with open(path, "r+b", buffering=0) as file:
                inode = os.fstat(file.fileno()).st_ino
                file.seek(offset)
                byte = file.read(1)
                if not byte or (only is not None and byte[0] != only):
                    return -1
                file.seek(offset)
                file.write(bytes((byte[0] ^ mask,)))
        except FileNotFoundError:
            return -1
        synced = bytearray(self.synced.get(inode, b""))
        if offset < len(synced):
            synced[offset] ^= mask
            self.synced[inode] = bytes(synced)
        return byte[0] ^ mask

    def cut_power(self, rng: random.Random) -> None:
        """Leave what survives. No process uses this disk now."""
        self._cut(self.path, rng)
        self.changes.clear()

    def _cut(self, directory: str, rng: random.Random) -> None:
        survived = dict(self.names.get(directory, {}))
        later = self.changes.get(directory, [])
        for name, inode in later[: rng.randrange(len(later) + 1)]:
            _set(survived, name, inode)
        named = {name for name, _ in later} | set(survived)
        held: dict[int, bytes] = {}
        with REAL["scandir"](directory) as entries:
            present = sorted(entries, key=lambda entry: entry.name)
        for entry in present:
            if entry.is_dir(follow_symlinks=False):
                self._cut(entry.path, rng)
                named.discard(entry.name)
                survived.pop(entry.name, None)
                continue
            with open(entry.path, "rb") as file:
                held[entry.inode()] = file.read()
            if entry.name in named:
                REAL["unlink"](entry.path)
        kept: Names = {}
        for name, inode in sorted(survived.items()):
            if inode not in held and inode not in self.synced:
                continue  # a directory that was moved away
            data = _remembered(held.get(inode, b""), self.synced.get(inode), rng)
            path = f"{directory}/{name}"
            with open(path, "wb") as file:
                file.write(data)
            kept[name] = os.stat(path).st_ino
            self.synced[kept[name]] = data
        self.names[directory] = kept


def _set(names: Names, name: str, inode: int | None) -> None:
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode


def _remembered(data: bytes, synced: bytes | None, rng: random.Random) -> bytes:
    """What a power cut leaves of a file: what was synced, then a part of what was appended since, then zeros."""
    if synced is not None and not data.startswith(synced):
        return rng.choice((data, synced))
    kept = b"" if synced is None else synced
    tail = data[len(kept) :]
    part = tail[: rng.randrange(len(tail) + 1)]
    return kept + part + bytes(rng.randrange(len(tail) - len(part) + 1))


class Disks:
    """All disks of a schedule, and the wrapped functions."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.all: dict[str, Disk] = {}
        self.random = random.Random(0)

    def add(self, path: str) -> Disk:
        os.makedirs(path)
        self.all[path] = disk = Disk(path)
        return disk

    def of(self, path: str) -> Disk | None:
        if not path.startswith(self.root):
            return None
        for mount, disk in self.all.items():
            if path.startswith(mount):
                return disk
        return None

    def remove(self) -> None:
        """By paths: outside of a schedule `close` leaves descriptors open, as `shutil.rmtree`'s would stay."""
        for directory, below, files in os.walk(self.root, topdown=False):
            for name in files:
                REAL["unlink"](os.path.join(directory, name))
            for name in below:
                REAL["rmdir"](os.path.join(directory, name))
        with suppress(FileNotFoundError):
            REAL["rmdir"](self.root)


class _Now:
    disks: Disks | None = None


def use(disks: Disks | None) -> None:
    """Have the wrapped functions act on these."""
    _Now.disks = disks


def _disk(path: Any) -> tuple[Disk | None, str]:
    """The disk of a path or descriptor, and its path."""
    disks = _Now.disks
    if disks is None or Here.scheduler.current is None:
        return None, ""
    if isinstance(path, int):
        text = Here.scheduler.current.process.fds.get(path)
        if text is None:
            try:
                text = os.readlink(f"/proc/self/fd/{path}")
            except OSError:
                return None, ""
    else:
        text = os.fsdecode(path)
    return disks.of(text), text


def _open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    disk, text = _disk(path) if dir_fd is None else (None, "")
    if disk is None:
        return int(REAL["open"](path, flags, mode, dir_fd=dir_fd))
    creates = bool(flags & os.O_CREAT)
    if creates:
        Here.scheduler.step()
    elif Here.scheduler.dead():
        raise Crash
    disk.check(creates)
    fresh = creates and not os.path.exists(text)
    fd: int = REAL["open"](path, flags, mode)
    process = Here.scheduler.me().process
    if (former := _owners.get(fd)) is not None:
        former.fds.pop(fd, None)  # closed by a file object
    process.fds[fd] = text
    _owners[fd] = process
    if fresh:
        disk.note(text, os.fstat(fd).st_ino)
    return fd


def _close(fd: int) -> None:
    owner = _owners.pop(fd, None)
    if owner is not None:
        owner.fds.pop(fd, None)
    elif Here.scheduler.current is None:
        return  # an object that a schedule has left behind; its number may be in use again
    REAL["close"](fd)


def _fdopen(fd: int, *rest: Any, **named: Any) -> Any:
    """The file object closes it from now on."""
    owner = _owners.pop(fd, None)
    if owner is not None:
        owner.fds.pop(fd, None)
    return REAL["fdopen"](fd, *rest, **named)


def close_all(process: Process) -> None:
    """What the kernel does when a process ends. The numbers stay taken, since objects of it may still close them."""
    for fd in process.fds:
        with suppress(OSError):  # closed by a file object
            os.dup2(_NOTHING, fd, inheritable=False)


def close_rest() -> None:
    """At the end of a schedule, when nothing is left of its processes."""
    for fd in _owners:
        with suppress(OSError):
            REAL["close"](fd)
    _owners.clear()


def _writing(name: str) -> Callable[..., Any]:
    real = REAL[name]

    def write(fd: int, data: Any, *rest: Any) -> Any:
        disk, _ = _disk(fd)
        if disk is None:
            return real(fd, data, *rest)
        process = Here.scheduler.me().process
        if process.fuse == 1 and name in ("write", "pwrite"):  # the last thing it does: a part of it
            size = memoryview(data).nbytes
            real(fd, memoryview(data).cast("B")[: _random().randrange(size + 1)], *rest)
        Here.scheduler.step()
        disk.check(True)
        return real(fd, data, *rest)

    return write


def _random() -> random.Random:
    assert _Now.disks is not None
    return _Now.disks.random


def _reading(name: str) -> Callable[..., Any]:
    real = REAL[name]

    def read(target: Any = ".", *rest: Any, **named: Any) -> Any:
        disk, _ = _disk(target)
        if disk is not None:
            if Here.scheduler.dead():
                raise Crash
            disk.check(False)
        return real(target, *rest, **named)

    return read


def _syncing(name: str) -> Callable[[int], None]:
    real = REAL[name]

    def sync(fd: int) -> None:
        disk, path = _disk(fd)
        if disk is None:
            real(fd)
            return
        Here.scheduler.step()
        disk.check(True)
        if os.path.isdir(path):
            disk.sync_names(path)
        else:
            with open(f"/proc/self/fd/{fd}", "rb") as file:
                disk.synced[os.fstat(fd).st_ino] = file.read()

    return sync


def _changing(name: str) -> Callable[..., None]:
    """link, rename, replace, unlink, remove, mkdir, rmdir, ftruncate."""
    real = REAL[name]

    def change(path: Any, *rest: Any, **named: Any) -> None:
        disk, text = _disk(path)
        if disk is None or named.get("dir_fd") is not None:
            real(path, *rest, **named)
            return
        Here.scheduler.step()
        disk.check(True)
        inode = os.stat(text).st_ino if name in ("link", "rename", "replace") and os.path.exists(text) else None
        real(path, *rest, **named)
        if name in ("unlink", "remove", "rename", "replace"):
            disk.note(text, None)
        if inode is not None:
            disk.note(os.fsdecode(rest[0]), inode)

    return change


def _statvfs(path: Any) -> Any:
    disk, _ = _disk(path)
    if disk is None:
        return REAL["statvfs"](path)
    disk.check(False)
    free = _FULL_FREE if disk.state == "full" else disk.free
    block = 4096
    return os.statvfs_result(
        (block, block, _SIZE // block, free // block, free // block, 1 << 20, 1 << 20, 1 << 20, 0, 255)
    )


def wrappers() -> dict[str, Callable[..., Any]]:
    """What `os` is to offer instead."""
    found: dict[str, Callable[..., Any]] = {"open": _open, "close": _close, "fdopen": _fdopen, "statvfs": _statvfs}
    found |= {name: _writing(name) for name in ("write", "pwrite", "pwritev", "writev")}
    found |= {name: _reading(name) for name in ("pread", "preadv", "scandir", "listdir")}
    found |= {name: _syncing(name) for name in ("fsync", "fdatasync")}
    changing = ("link", "rename", "replace", "unlink", "remove", "mkdir", "rmdir", "ftruncate")
    return found | {name: _changing(name) for name in changing}
