"""The folder for what was removed: it is moved there in one step, and deleted piece by piece."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from shuffle_server.store.file_pool import FilePool
from shuffle_server.store.paths import COMMITTED

log = logging.getLogger(__name__)


def empty(trash: Path, alive: Callable[[], None]) -> None:
    """Delete what lies there; takes as long as the file system needs. `alive` is called after each call to it.

    What cannot be deleted now is left for the next time.
    """
    if not trash.exists():
        return
    for entry in list(trash.iterdir()):
        try:
            os.rmdir(entry)  # most are empty: the files of small shuffles became pooled files
        except NotADirectoryError:
            with suppress(OSError):
                entry.unlink()  # a file, which nothing here puts there
        except OSError:
            _delete(entry, alive)
        alive()


def recycle(file_pool: FilePool, app: str, removed: str) -> None:
    """Keep the files of a removed shuffle, as many as fit, for the next outputs of its application."""
    try:
        with os.scandir(removed) as entries:
            for entry in entries:
                if entry.name.endswith(COMMITTED):
                    file_pool.keep(app, entry.path, entry.stat().st_size)
    except OSError as error:
        log.warning("%s: %s; its files are deleted, not kept for reuse", removed, error)


def _delete(tree: Path, alive: Callable[[], None]) -> None:
    for base, folders, names in os.walk(tree, topdown=False):
        for remove, entries in (os.unlink, names), (os.rmdir, folders):
            for name in entries:
                with suppress(OSError):
                    remove(f"{base}/{name}")
                alive()
    with suppress(OSError):
        os.rmdir(tree)
