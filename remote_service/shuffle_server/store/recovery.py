"""What a data directory holds at a start: committed outputs are checked, what a crash left half-written is deleted."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from shuffle_api.errors import Overloaded, StorageFailed
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.catalog import Catalog, CatalogEntry
from shuffle_server.store.compacted_file import CompactedFile, CompactedPlace, open_compacted
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.disk_thread import ask_all
from shuffle_server.store.failures import busy, lost
from shuffle_server.store.format import Description, TornFile
from shuffle_server.store.output_file import load
from shuffle_server.store.paths import COMMITTED, COMPACTED, PARTIAL, attempt_of, shuffle_of
from shuffle_server.store.tiering import Tiering, recover_stubs

log = logging.getLogger(__name__)


class Recovery:
    """Puts into the catalog what the directories of one store hold, of each in its thread, as soon as it answers.
    Thread-safe.

    :param prepare: makes a directory usable. Raises StorageFailed: it is not this worker's.
    :param entered: called with each output that is in the catalog from then on.
    :ivar complete: no directory is left to be recovered.
    """

    def __init__(
        self,
        directories: Sequence[DataDirectory],
        catalog: Catalog,
        prepare: Callable[[DataDirectory], object],
        entered: Callable[[Description, CatalogEntry], object],
        tiering: Tiering | None,
        *,
        sync: bool,
    ) -> None:
        self._directories, self._catalog, self._tiering, self._sync = directories, catalog, tiering, sync
        self._prepare, self._entered = prepare, entered
        self._lock = threading.Lock()
        self._found: list[Description] = []
        self.complete = all(directory.recovered for directory in directories)

    def run(self) -> list[Description]:
        """All outputs in the directories that answer. Those that hang are recovered when they are back.

        :raises StorageFailed: a directory cannot be used, or the first one hangs.
        :raises Overloaded: the process lacks descriptors or memory.
        """
        by_disk = {directory.disk: directory for directory in self._directories}
        ask_all(list(by_disk), "what it holds", lambda disk: self._recover(by_disk[disk]))
        return self.take(lambda _: True)

    def again(self, directory: DataDirectory) -> None:
        """Recover one that could not be at the start. In its thread."""
        with suppress(StorageFailed, Overloaded, OSError):  # it is out
            self._recover(directory)

    def take(self, wanted: Callable[[Description], bool]) -> list[Description]:
        """The outputs that have been found since they were taken, those that are `wanted`."""
        with self._lock:
            taken = [each for each in self._found if wanted(each)]
            self._found = [each for each in self._found if not wanted(each)]
        return taken

    def _recover(self, directory: DataDirectory) -> None:
        found, was = [], directory.failed
        try:
            self._prepare(directory)
            directory.empty_trash()
            outputs = recover_directory(directory, self._catalog, sync=self._sync, tiered=self._tiering is not None)
            for description, held in outputs:
                if self._catalog.put(description.shuffle_id, held):
                    self._entered(description, held)
                found.append(description)
                directory.calls.alive()
        except (StorageFailed, Overloaded, OSError) as error:
            if not isinstance(error, Overloaded):  # which says nothing of what lies there
                directory.refuse(str(error))
            if str(error) != was:
                log.error("data directory %s cannot be recovered now: %s", directory.root, error)
            raise
        with self._lock:
            self._found += found
            directory.recovered = True
            self.complete = all(each.recovered for each in self._directories)
            if self.complete and self._tiering is not None:
                self._tiering.recovered()
        log.info("data directory %s holds %d map outputs", directory.root, len(found))

    def check(self, shuffle: ShuffleId, output: MapAttempt) -> None:
        """An output that is not in the catalog may be in a directory that is not recovered: then it is as lost, or as
        little, as if that had failed now.

        :raises MapOutputLost: such a directory cannot be read.
        :raises Overloaded: one is being recovered.
        """
        waiting = [each for each in self._directories if not each.recovered]
        if not waiting or self._catalog.holds(shuffle, output):
            return
        if all(each.failed for each in waiting):
            reasons = "; ".join(f"{each.root}: {each.failed}" for each in waiting)
            raise lost(shuffle, output, f"it is not here, unless in a directory that is out ({reasons})")
        raise Overloaded(
            f"{output} of {shuffle} may be in a data directory that is being recovered",
            remedy="try again in a moment",
            shuffle=shuffle,
            output=output,
        )


def recover_directory(
    directory: DataDirectory, catalog: Catalog, *, sync: bool, tiered: bool
) -> Iterator[tuple[Description, CatalogEntry]]:
    """All committed outputs of one directory, to be put into the catalog one by one; its shuffles are added there.

    :param sync: as `recover_files`, which says what this raises.
    :param tiered: also those that are in the object store only.
    """
    for description, place in recover_files(directory, sync=sync):
        yield description, CatalogEntry(description.output, directory, description.totals.bytes, place=place)
    for shuffle in directory.shuffles():
        catalog.add(shuffle)  # the master may say that it is over
    for description in recover_stubs(directory) if tiered else ():
        if not catalog.holds(description.shuffle_id, description.output):
            yield description, CatalogEntry(description.output, directory, description.totals.bytes, tiered=True)


def recover_files(directory: DataDirectory, *, sync: bool) -> Iterator[tuple[Description, CompactedPlace | None]]:
    """The committed outputs of one directory, and for each its place if that is in a compacted file. One that cannot be
    read is passed over, as is what cannot be deleted.

    A process that was killed between the two calls has left an output with its name, and the name not on the disk.

    :param sync: what is yielded survives the machine: the registry acknowledges it.
    :raises StorageFailed: the directory cannot be listed, or synced.
    :raises Overloaded: the process lacks descriptors or memory.
    """
    files = directory.files()
    directory.drop_foreign()
    for path in files:
        if path.suffix == PARTIAL:
            directory.unlink(path)
            directory.calls.alive()
    compacted: set[tuple[ShuffleId, MapAttempt]] = set()
    for path in files:
        directory.calls.alive()
        shuffle = shuffle_of(path.parent.parent.name, path.parent.name)
        if path.suffix == COMPACTED and shuffle is not None:
            for description, place in _compacted(directory, path, shuffle):
                compacted.add((shuffle, description.output))
                if sync:
                    directory.sync_recovered(shuffle)
                yield description, place
    for path in files:
        directory.calls.alive()
        shuffle = shuffle_of(path.parent.parent.name, path.parent.name)
        if path.suffix == COMMITTED and shuffle is not None:
            if (shuffle, attempt_of(path.name)) in compacted:
                directory.unlink(path)  # its process was killed before it did so
                continue
            found = _load(directory, path, shuffle)
            if found is not None:
                if sync:
                    directory.sync_recovered(shuffle)
                yield found, None


def _compacted(
    directory: DataDirectory, path: Path, shuffle: ShuffleId
) -> Iterator[tuple[Description, CompactedPlace]]:
    file: CompactedFile | None = None
    try:
        file = open_compacted(directory, shuffle, str(path))
    except TornFile as error:
        _set_aside(directory, path, error)
    except OSError as error:
        _unreadable(directory, path, error)
    for number in range(len(file) if file is not None else 0):
        assert file is not None
        if file.gone(number):
            continue
        try:
            description = file.load(number).description
        except TornFile as error:
            log.error("%s: %s", path, error)
            file.drop(number)
            continue
        except OSError as error:
            _unreadable(directory, path, error)
            return
        yield description, CompactedPlace(file, number)


def _load(directory: DataDirectory, path: Path, shuffle: ShuffleId) -> Description | None:
    try:
        description = load(path).description
        description.check(shuffle, attempt_of(path.name))
        return description
    except TornFile as error:
        _set_aside(directory, path, error)
    except OSError as error:
        _unreadable(directory, path, error)
    return None


def _set_aside(directory: DataDirectory, path: Path, error: TornFile) -> None:
    # Not a crash's doing, since only complete files get this name: the disk lost something. The registry,
    # which has the commit, will report the output as lost.
    torn = path.with_suffix(".torn")
    log.error("%s: %s; set aside as %s", path, error, torn.name)
    try:
        path.rename(torn)
    except OSError as failed:
        directory.failure(failed)


def _unreadable(directory: DataDirectory, path: Path, error: OSError) -> None:
    """Raises Overloaded."""
    if short := busy(error):
        raise short from error
    log.error("%s: %s", path, error)
    directory.failure(error)
