"""Deleting the files of what is gone from the catalog: the caretaker of each directory does it, and nobody waits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.attempt_writer import AttemptWriter
from shuffle_server.store.catalog import Catalog, CatalogEntry
from shuffle_server.store.compacted_files import CompactedFiles
from shuffle_server.store.directory import DataDirectory, SharedFile
from shuffle_server.store.file_cache import FileCache
from shuffle_server.store.paths import COMMITTED, PARTIAL, attempt_of
from shuffle_server.store.tiering import Tiering, stub_path
from shuffle_server.store.trash import recycle


class Deletion:
    """Deletes what a store has removed. Thread-safe; no call waits for a disk."""

    def __init__(
        self,
        catalog: Catalog,
        directories: Iterable[DataDirectory],
        file_cache: FileCache,
        compaction: CompactedFiles,
        tiering: Tiering | None,
    ) -> None:
        self._catalog, self._directories = catalog, directories
        self._file_cache, self._compaction, self._tiering = file_cache, compaction, tiering

    def output(self, shuffle: ShuffleId, held: CatalogEntry) -> threading.Event:
        """A committed output that was retired; set when its file is gone."""
        gone = threading.Event()
        held.home.caretaker.later(partial(self._output, shuffle, held, gone))
        return gone

    def _output(self, shuffle: ShuffleId, held: CatalogEntry, gone: threading.Event) -> None:
        own = held.home.unlink(held.home.paths.committed_text(shuffle, held.output))
        if (held.place is None or held.place.file.drop(held.place.number)) and own:
            gone.set()
        if self._tiering is not None:
            held.home.unlink(stub_path(held, shuffle))
            self._tiering.removed()
        self._file_cache.prune()
        self._catalog.retired(shuffle, held.output)

    def shuffle(self, shuffle: ShuffleId, unfinished: Sequence[AttemptWriter]) -> None:
        """All of a shuffle; `unfinished` was being written."""
        self._all([shuffle], unfinished, partial(_delete_shuffle, shuffle))

    def app(self, app: str, shuffles: Sequence[ShuffleId], unfinished: Sequence[AttemptWriter]) -> None:
        """All of an application; `shuffles` are its own."""
        self._all(shuffles, unfinished, partial(_delete_app, app))

    def _all(
        self,
        shuffles: Sequence[ShuffleId],
        unfinished: Sequence[AttemptWriter],
        delete: Callable[[DataDirectory], None],
    ) -> None:
        for directory in self._directories:
            ended = [output for output in unfinished if output.home is directory]
            directory.caretaker.later(partial(self._in_directory, directory, shuffles, ended, delete))

    def _in_directory(
        self,
        directory: DataDirectory,
        shuffles: Sequence[ShuffleId],
        unfinished: Sequence[AttemptWriter],
        delete: Callable[[DataDirectory], None],
    ) -> None:
        for output in unfinished:
            output.close()
        directory.forget(shuffles)
        self._file_cache.prune()
        self._compaction.forget(shuffles)
        if self._tiering is not None:
            self._tiering.removed()
        if directory.recovered:  # else recovery finds what lies there, and the registry does not know it
            delete(directory)

    def sweep(self, directory: DataDirectory, written: Callable[[], set[str]]) -> None:
        """What was removed, or declared lost, while a directory was out. `written`: the files that are staged."""
        for shuffle in directory.shuffles():
            if shuffle not in self._catalog:
                directory.trash(directory.paths.shuffle_text(shuffle))
                continue
            for path in directory.paths.shuffle(shuffle).glob(f"*{COMMITTED}"):
                if not self._catalog.places(shuffle, attempt_of(path.name), directory):
                    directory.unlink(path)
            for file in [file for file in list(directory.compacted) if file.shuffle == shuffle]:
                file.sweep(partial(self._in_file, file))
            found = list(directory.paths.shuffle(shuffle).glob(f"*{PARTIAL}"))
            unfinished = written()  # afterwards: what is begun meanwhile was not found
            for path in found:
                if path.stem.rpartition(".")[2].isdecimal() and str(path) not in unfinished:  # else a stub's, or cold
                    directory.unlink(path)

    def _in_file(self, file: SharedFile, output: MapAttempt) -> bool:
        held = self._catalog.find(file.shuffle, output.map)
        while held is not None and held.output != output:
            held = held.before
        return held is not None and held.place is not None and held.place.file is file


def _delete_shuffle(shuffle: ShuffleId, directory: DataDirectory) -> None:
    removed = directory.trash(directory.paths.shuffle_text(shuffle))
    if removed is not None:
        recycle(directory.file_pool, shuffle.app, removed)
    with suppress(OSError):
        os.rmdir(directory.paths.app_text(shuffle.app))  # the last shuffle takes the app's directory along


def _delete_app(app: str, directory: DataDirectory) -> None:
    directory.trash(directory.paths.app_text(app))
    directory.file_pool.drop(app)
