"""Directories for one user, made by code that may not set the umask of its process."""

from __future__ import annotations

from pathlib import Path


def make_private(path: Path) -> None:
    """Make a directory that only this user may enter, and those above it that are missing. One that exists stays as it
    is. Raises OSError.
    """
    if path.is_dir():
        return
    make_private(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)
