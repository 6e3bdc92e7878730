"""Opening the committed file of a map output, and seeing that it is the one that was asked for; indexes are kept."""

from __future__ import annotations

import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path

from shuffle_api.errors import MapOutputLost
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.catalog import Catalog, CatalogEntry
from shuffle_server.store.compacted_file import CompactedPlace
from shuffle_server.store.failures import busy, lost
from shuffle_server.store.format import Description, TornFile
from shuffle_server.store.output_file import OutputFile, load
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


def open_committed(
    catalog: Catalog,
    indexes: IndexCache,
    here: Callable[[ShuffleId, CatalogEntry], None],
    shuffle: ShuffleId,
    output: MapAttempt,
) -> tuple[CatalogEntry, OutputFile, int]:
    """What is held of this attempt, its file, and a descriptor of that, which the caller closes.

    `here` sees that the file is on the disk. Raises MapOutputLost, Overloaded, and what `here` raises.
    """
    held = catalog.find(shuffle, output.map)
    if held is None:
        raise lost(shuffle, output, "it is not here")
    if held.output != output:
        raise lost(shuffle, output, f"the worker holds attempt {held.output.attempt} of this map")
    if reason := held.home.calls.hang:
        raise lost(shuffle, output, f"{held.home.root}: {reason}")
    here(shuffle, held)  # before the call: an object store that does not answer says nothing of this disk
    with held.home.calls.request():
        if held.place is not None:
            return held, *_open_compacted(indexes, shuffle, held.output, held.place)
        return _open(catalog, indexes, here, shuffle, held)


def _open(
    catalog: Catalog,
    indexes: IndexCache,
    here: Callable[[ShuffleId, CatalogEntry], None],
    shuffle: ShuffleId,
    held: CatalogEntry,
) -> tuple[CatalogEntry, OutputFile, int]:
    output, path = held.output, held.home.paths.committed_text(shuffle, held.output)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if (now := catalog.find(shuffle, output.map)) is not None and now is not held:
            return open_committed(catalog, indexes, here, shuffle, output)  # it was moved between the two
        raise busy(error) or lost(shuffle, output, f"{path}: {error.strerror}") from None
    try:
        # As long as it is held, the file is not written over, even if it is removed meanwhile.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        file = indexes.get(shuffle, output.map, FileIdentity.of(os.fstat(fd)), partial(load, Path(path)))
        file.description.check(shuffle, output)
    except (TornFile, OSError) as error:
        os.close(fd)
        raise busy(error) or lost(shuffle, output, f"{path}: {error}") from None
    return held, file, fd


def _open_compacted(
    indexes: IndexCache, shuffle: ShuffleId, output: MapAttempt, place: CompactedPlace
) -> tuple[OutputFile, int]:
    try:
        index = indexes.get(shuffle, output.map, place.file.identity, partial(place.file.load, place.number))
        return index, os.dup(place.file.fd)
    except (TornFile, OSError) as error:
        raise busy(error) or lost(shuffle, output, f"{place.file.path}: {error}") from None


def load_committed(shuffle: ShuffleId, held: CatalogEntry) -> OutputFile:
    """An output's index as it lies on the disk, past the caches of pulls. Raises TornFile, OSError."""
    if held.place is not None:
        return held.place.file.load(held.place.number)
    return load(held.home.paths.committed(shuffle, held.output))


def read_committed(shuffle: ShuffleId, held: CatalogEntry) -> tuple[OutputFile, int]:
    """As `load_committed`, and a descriptor of the file, which the caller closes."""
    file = load_committed(shuffle, held)
    if held.place is not None:
        return file, os.dup(held.place.file.fd)
    return file, os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)


def describe_committed(
    catalog: Catalog, here: Callable[[ShuffleId, CatalogEntry], None], shuffle: ShuffleId, map_id: int
) -> Description:
    """What the committed file of a map says of itself. Raises MapOutputLost, Overloaded, and what `here` raises."""
    try:
        held = catalog.find(shuffle, map_id)
        if held is not None:
            here(shuffle, held)
            with held.home.calls.request():
                return load_committed(shuffle, held).description
        reason = "it is not here"
    except (TornFile, OSError) as error:
        if short := busy(error):
            raise short from error
        reason = str(error)
    raise MapOutputLost(f"map {map_id}: {reason}", remedy="run this map again", shuffle=shuffle)
