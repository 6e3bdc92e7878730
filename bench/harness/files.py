"""Files that others change meanwhile, and directories that are written once.

Files deleted during a listing are skipped, where pathlib's rglob raises.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def files_below(root: Path) -> list[Path]:
    """All files there, in no order; none if it is not there."""
    return [Path(folder, name) for folder, _, names in os.walk(root) for name in names]


def size_of(path: Path) -> int:
    """Bytes; 0 if it has just gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def opened_by(pid: int) -> list[str]:
    """The paths that a process has open."""
    paths = []
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            paths.append(str(link.readlink()))
        except FileNotFoundError:
            pass  # closed in the meantime
    return paths


def once(target: Path, write: Callable[[Path], object]) -> Path:
    """`target`, a directory that ``write`` makes and fills if it is not there; whole or not at all."""
    if not target.exists():
        part = target.with_name(target.name + ".part")
        shutil.rmtree(part, ignore_errors=True)
        write(part)
        part.rename(target)
    return target
