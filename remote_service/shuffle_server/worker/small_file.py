"""Small files that a worker needs after a restart: whole or as they were before, never half."""

from __future__ import annotations

import os
from pathlib import Path

from shuffle_server.store.directory import sync_directory


def replace_text(path: Path, text: str, *, sync: bool) -> None:
    """Write a file in one step. Raises OSError.

    :param sync: it survives the machine. Else a crash of that may leave an empty one: a name may reach the disk first.
    """
    fresh = path.with_name(path.name + ".new")
    with fresh.open("w") as file:
        file.write(text)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)
    if sync:
        sync_directory(path.parent)
