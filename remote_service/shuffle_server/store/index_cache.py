"""Indexes of committed outputs, kept in memory up to a budget."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from shuffle_api.ids import ShuffleId
from shuffle_server.store.output_file import OutputFile
from shuffle_transport.files import FileIdentity

INDEX_CACHE_BYTES = 64 << 20


class IndexCache:
    """The indexes used last, at most `budget` bytes (one more if it alone is larger). Thread-safe."""

    def __init__(self, budget: int = INDEX_CACHE_BYTES) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._files: OrderedDict[tuple[ShuffleId, int], OutputFile] = OrderedDict()
        self._maps: dict[ShuffleId, set[int]] = {}  # of which an index is here
        self._bytes = 0

    @property
    def bytes(self) -> int:
        return self._bytes

    def get(
        self, shuffle: ShuffleId, map_id: int, identity: FileIdentity, load: Callable[[], OutputFile]
    ) -> OutputFile:
        """The index of an output in a file of this identity; `load` reads it. Raises what that raises."""
        key = shuffle, map_id
        with self._lock:
            file = self._files.get(key)
            if file is not None and file.identity == identity:
                self._files.move_to_end(key)
                return file
        file = load()
        with self._lock:
            self._drop(*key)
            self._bytes += file.index.nbytes
            self._files[key] = file
            self._maps.setdefault(shuffle, set()).add(map_id)
            while self._bytes > self._budget and len(self._files) > 1:
                self._drop(*next(iter(self._files)))
        return file

    def forget(self, shuffle: ShuffleId, map_id: int) -> None:
        """An output is removed."""
        with self._lock:
            self._drop(shuffle, map_id)

    def forget_all(self, shuffle: ShuffleId) -> None:
        """All outputs of a shuffle are."""
        with self._lock:
            for map_id in list(self._maps.get(shuffle, ())):
                self._drop(shuffle, map_id)

    def _drop(self, shuffle: ShuffleId, map_id: int) -> None:
        file = self._files.pop((shuffle, map_id), None)
        if file is None:
            return
        self._bytes -= file.index.nbytes
        maps = self._maps[shuffle]
        maps.discard(map_id)
        if not maps:
            del self._maps[shuffle]
