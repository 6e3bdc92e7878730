"""Files that an option names, those with a secret among them: refused when strangers may read or replace them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from shuffle_api.errors import InvalidArgument


def read_private(path: str, option: str) -> bytes:
    """A file that no stranger may read or replace. Raises InvalidArgument naming it."""
    data = read_file(path, option)
    remedy = "make a new one if somebody may have seen it"
    check_mode(path, option, stat.S_IRWXO | stat.S_IWGRP, "read or written", remedy)
    return data


def read_file(path: str, option: str) -> bytes:
    """Raises InvalidArgument naming it."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidArgument(
            f"{option} {path} cannot be read: {error.strerror}", remedy=f"give {option} a file that this user may read"
        ) from None


def check_mode(path: str, option: str, forbidden: int, what: str, remedy: str) -> None:
    """:raises InvalidArgument: the mode has one of the bits `forbidden`, by which other users may do `what`."""
    mode = os.stat(path).st_mode
    if mode & forbidden:
        raise InvalidArgument(
            f"{option} {path} may be {what} by other users (mode {stat.S_IMODE(mode):04o})",
            remedy=f"chmod 600 {path}, and {remedy}",
        )
