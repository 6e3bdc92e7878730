"""What goes wrong below a server: a clock that steps, calls to the disk that fail or hang. Installed in its process.

The rules are in a file that the explorer writes and the process looks at with every call it might concern::

    {"clock": 3600.0, "disk": [{"id": 1, "below": "/data/master", "skip": 4, "times": 2, "errno": "EIO"}]}

A rule without "errno" has calls hang until it is taken out of the file. Reads hang, too; only what changes something
fails.
"""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHANGES = (
    *("pwrite", "pwritev", "write", "writev", "link", "rename", "replace", "unlink", "remove", "mkdir", "rmdir"),
    *("truncate", "ftruncate", "fsync", "fdatasync", "symlink", "posix_fallocate"),
)
LOOKS = ("read", "pread", "preadv", "readv", "stat", "lstat", "listdir", "scandir", "statvfs", "fstat")
WRITING = os.O_CREAT | os.O_WRONLY | os.O_RDWR
LOOK_S = 0.02
PRODUCT = ("shuffle_", "tests.faults.explore.planted")
"""Modules whose wall clock steps."""
WIRE = "shuffle_server.master.wire"
"""But for this one: its deadlines go to gRPC's C core, as those of gRPC's own modules do. Its clock is the true one."""

_stat, _readlink, _open = os.stat, os.readlink, io.open


class Rules:
    """The file's newest content, and how often each rule was met."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, -1
        self._rules: dict[str, Any] = {}
        self._met: Counter[int] = Counter()
        self._lock = threading.Lock()

    def now(self) -> dict[str, Any]:
        try:
            changed = _stat(self._path).st_mtime_ns
            if changed != self._seen:
                with _open(self._path) as file:
                    self._rules, self._seen = json.load(file), changed
        except OSError:
            pass  # none yet
        return self._rules

    def check(self, name: str, target: object, changes: bool) -> None:
        """Raise OSError, or wait, as a rule for this call says."""
        rules = self.now().get("disk")
        if not rules:
            return
        path = _path_of(target)
        for rule in rules:
            if not path.startswith(rule["below"]) or path.endswith("/.probe"):
                continue
            if "errno" not in rule:
                self._hang(rule)
            elif changes and self._due(rule):
                number = getattr(errno, rule["errno"])
                raise OSError(number, os.strerror(number), path)

    def _due(self, rule: dict[str, Any]) -> bool:
        with self._lock:
            met = self._met[rule["id"]]
            self._met[rule["id"]] += 1
        return bool(rule["skip"] <= met < rule["skip"] + rule["times"])

    def _hang(self, rule: dict[str, Any]) -> None:
        with self._lock:
            self._met[rule["id"]] += 1
            if self._met[rule["id"]] <= rule["skip"]:
                return
        while any(rule["id"] == other["id"] for other in self.now().get("disk", ())):
            time.sleep(LOOK_S)


def install(path: Path) -> None:
    """Have this process obey the rules in the file from now on."""
    rules = Rules(path)
    wall = time.time

    def clock() -> float:
        name = str(sys._getframe(1).f_globals.get("__name__", ""))
        product = name.startswith(PRODUCT) and name != WIRE
        return wall() + (float(rules.now().get("clock", 0.0)) if product else 0.0)

    time.time = clock
    for name in (*CHANGES, *LOOKS):
        if hasattr(os, name):
            setattr(os, name, _wrapped(getattr(os, name), rules, name, name in CHANGES))
    os.open = _opening(os.open, rules, lambda mode: bool(mode & WRITING) if isinstance(mode, int) else False)
    io.open = builtins.open = _opening(io.open, rules, lambda mode: any(letter in str(mode) for letter in "wxa+"))


def _wrapped(call: Callable[..., Any], rules: Rules, name: str, changes: bool) -> Callable[..., Any]:
    def checked(*arguments: Any, **named: Any) -> Any:
        if arguments:
            rules.check(name, arguments[0], changes)
        return call(*arguments, **named)

    return checked


def _opening(call: Callable[..., Any], rules: Rules, writes: Callable[[Any], bool]) -> Callable[..., Any]:
    def checked(path: Any, mode: Any = "r", *arguments: Any, **named: Any) -> Any:
        rules.check("open", path, writes(mode))
        return call(path, mode, *arguments, **named)

    return checked


def _path_of(target: object) -> str:
    try:
        if isinstance(target, int):
            return _readlink(f"/proc/self/fd/{target}")
        return os.fsdecode(target) if isinstance(target, str | bytes | os.PathLike) else ""
    except (OSError, TypeError):
        return ""
