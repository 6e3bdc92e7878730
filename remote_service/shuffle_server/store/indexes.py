"""Indexes of committed outputs, kept in memory up to a budget."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from shuffle_api.ids import ShuffleId
from shuffle_server.store.output_file import OutputFile, load
from shuffle_transport.file_identity import FileIdentity

INDEX_CACHE_BYTES = 64 << 20


class IndexCache:
    """The indexes used last, at most `budget` bytes (one more if it alone is larger). Thread-safe."""

    def __init__(self, budget: int = INDEX_CACHE_BYTES) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[ShuffleId, int], OutputFile] = OrderedDict()
        self._bytes = 0

    @property
    def bytes(self) -> int:
        return self._bytes

    def get(self, shuffle: ShuffleId, map_id: int, path: str, identity: FileIdentity) -> OutputFile:
        """The index of the file at `path`, whose identity is known. Raises TornFile, OSError."""
        key = shuffle, map_id
        with self._lock:
            file = self._files.get(key)
            if file is not None and file.identity == identity:
                self._files.move_to_end(key)
                return file
        file = load(Path(path))
        with self._lock:
            previous = self._files.pop(key, None)
            self._bytes += file.index.nbytes - (previous.index.nbytes if previous else 0)
            self._files[key] = file
            while self._bytes > self._budget and len(self._files) > 1:
                self._bytes -= self._files.popitem(last=False)[1].index.nbytes
        return file

    def forget(self, concerned: Callable[[ShuffleId, int], bool]) -> None:
        with self._lock:
            for key in [key for key in self._files if concerned(*key)]:
                self._bytes -= self._files.pop(key).index.nbytes
