"""Files are for the server's user alone: clients that read them in place run as the same user, or as root."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from shuffle_api.errors import StorageFailed

log = logging.getLogger(__name__)

OTHERS = stat.S_IRWXG | stat.S_IRWXO
OWN = ("worker", "master", "lock", "worker-id", "belongs-to", "data-directories", "incarnation")
"""What a server has in a data directory."""


def keep_private() -> None:
    """For a process of its own: whatever it makes from now on is 0700 or 0600, under whatever umask it was started."""
    os.umask(OTHERS)


def tighten(root: Path) -> None:
    """Take from everybody else what a server has in a data directory, as it may have been left there by a copy or under
    another umask. The directory itself may be somebody else's and keeps its mode.

    Raises StorageFailed naming what stays open.
    """
    mode = root.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        log.warning("every user may write to data directory %s, and replace what is in it: chmod o-w it", root)
    for name in OWN:
        try:
            _tighten(root / name)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageFailed(
                f"{error.filename} is open to other users and cannot be closed to them: {error.strerror}",
                remedy=f"have it belong to the user that the server runs as: chown -R {os.geteuid()} {root / name}",
            ) from error


def _tighten(path: Path) -> None:
    """What lies below a directory that was closed needs no look."""
    if not path.stat().st_mode & OTHERS:
        return
    for each in _below(path):
        mode = each.lstat().st_mode
        if mode & OTHERS and not stat.S_ISLNK(mode):
            each.chmod(stat.S_IMODE(mode) & ~OTHERS)
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~OTHERS)  # last: until then a start that was cut short begins anew


def _below(path: Path) -> Iterator[Path]:
    for directory, directories, files in os.walk(path):
        yield from (Path(directory, name) for name in (*directories, *files))
