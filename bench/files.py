"""Files below a directory that others change meanwhile: what goes away is passed over, where pathlib's rglob raises."""

from __future__ import annotations

import os
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
