"""A disk that hangs: calls of the operating system below one directory do not return as long as a file exists.

As with a dead disk or a file server that is gone, whose calls keep their thread in the kernel. In this process by
`hang_below`, in a server of its own as a program: ``python -m tests.hung_disk DIRECTORY FLAG server --data-dir ...``.
"""

from __future__ import annotations

import builtins
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CALLS = (
    "open",
    "close",
    "read",
    "pread",
    "preadv",
    "write",
    "pwrite",
    "pwritev",
    "fsync",
    "fdatasync",
    "ftruncate",
    "rename",
    "replace",
    "link",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
    "stat",
    "lstat",
    "statvfs",
    "listdir",
    "scandir",
)
POLL_SECONDS = 0.01


@contextmanager
def hang_below(directory: Path, flag: Path) -> Iterator[None]:
    """Inside, calls below `directory` do not return while the file `flag` exists."""
    root, real = f"{directory.resolve()}/", {name: getattr(os, name) for name in CALLS}
    opened = builtins.open
    for name, call in real.items():
        setattr(os, name, _hanging(call, root, str(flag), real))
    builtins.open = _hanging(opened, root, str(flag), real)
    try:
        yield
    finally:
        builtins.open = opened
        for name, call in real.items():
            setattr(os, name, call)


def _hanging(call: Callable[..., Any], root: str, flag: str, real: dict[str, Callable[..., Any]]) -> Callable[..., Any]:
    def hang(*arguments: Any, **named: Any) -> Any:
        while arguments and f"{_path(arguments[0])}/".startswith(root) and _exists(flag, real["stat"]):
            time.sleep(POLL_SECONDS)
        return call(*arguments, **named)

    return hang


def _path(target: Any) -> str:
    """What a call is about, by its first argument."""
    try:
        return os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.path.abspath(os.fspath(target))
    except (OSError, TypeError, ValueError):
        return ""


def _exists(flag: str, stat: Callable[..., Any]) -> bool:
    try:
        stat(flag)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    from shuffle_server.cli import main

    with hang_below(Path(sys.argv[1]), Path(sys.argv[2])):
        sys.exit(main(sys.argv[3:]))
