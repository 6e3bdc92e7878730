"""Files of map outputs that were read a moment ago, kept open for the next pulls.

Each of thousands of reduce tasks pulls a block out of each of the same few files. To open such a file, to lock it and
to see which one it is takes several times as long as to read a block of it, so this is done once a second.

A file that is kept is read only as long as the catalog holds exactly what was opened: whatever happens to the output
(it is removed, another attempt takes its place, it moves to the object store) ends that in the same moment. Who is
reading goes on, as with a file that is deleted meanwhile. What happens to the file behind the worker's back is seen
when it is opened again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.catalog import Catalog, CatalogEntry
from shuffle_server.store.output_file import OutputFile
from shuffle_server.store.page_cache import read_exactly

KEPT_SECONDS = 1.0  # after which a file is opened, and with that checked, again
MOST_KEPT = 256  # descriptors


class OpenOutput:
    """The committed file of an output, open for reading. The descriptor is closed with the last reference."""

    __slots__ = ("fd", "file", "held", "home", "since")

    def __init__(self, held: CatalogEntry, file: OutputFile, fd: int) -> None:
        self.held, self.file, self.fd = held, file, fd
        self.home = held.home
        self.since = time.monotonic()
        read_exactly(fd)

    def __del__(self) -> None:
        os.close(self.fd)


class CachedFiles:
    """What one pull may read of the files of a shuffle that are kept."""

    def __init__(self, files: Mapping[int, OpenOutput], held: Mapping[int, CatalogEntry]) -> None:
        """Both by map, and as they change."""
        self._files, self._held = files, held

    def find(self, output: MapAttempt) -> OpenOutput | None:
        """The file of exactly this attempt; None when it is to be opened."""
        opened = self._files.get(output.map)
        if (
            opened is not None
            and opened.held is self._held.get(output.map)
            and opened.held.output == output
            and time.monotonic() - opened.since < KEPT_SECONDS
        ):
            return opened
        return None


class FileCache:
    """At most MOST_KEPT open files, each read for KEPT_SECONDS and closed by the `prune` after that. Thread-safe.

    One that finds no room is not kept. To make room for it would help nobody: pulls read the same outputs in the same
    order, so each would close what the next one asks for.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._files: dict[ShuffleId, dict[int, OpenOutput]] = {}  # by map

    def of(self, shuffle: ShuffleId) -> CachedFiles:
        """Those of one shuffle, for one pull."""
        return CachedFiles(self._files.get(shuffle, {}), self._catalog.held(shuffle))

    def keep(self, shuffle: ShuffleId, opened: OpenOutput) -> None:
        """Keep a file that was just opened, if there is room for it."""
        output = opened.held.output
        with self._lock:
            # Who takes an output from the catalog prunes after that: one of the two sees the other.
            if self._catalog.find(shuffle, output.map) is not opened.held:
                return
            cached = self._files.get(shuffle, {})
            if output.map in cached or sum(map(len, self._files.values())) < MOST_KEPT:
                self._files.setdefault(shuffle, cached)[output.map] = opened

    def prune(self) -> None:
        """Close what is not to be read any more."""
        with self._lock:
            for shuffle, files in list(self._files.items()):
                usable = self.of(shuffle)
                for opened in list(files.values()):
                    if usable.find(opened.held.output) is None:
                        del files[opened.held.output.map]
                if not files:
                    del self._files[shuffle]

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            self._files.clear()
