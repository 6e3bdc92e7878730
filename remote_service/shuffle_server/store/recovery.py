"""What a data directory holds at a start: committed outputs are checked, what a crash left half-written is deleted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_server.store.catalog import Catalog, CatalogEntry
from shuffle_server.store.compacted_file import CompactedFile, CompactedPlace, open_compacted
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.failures import busy
from shuffle_server.store.format import Description, TornFile
from shuffle_server.store.output_file import load
from shuffle_server.store.paths import COMMITTED, COMPACTED, PARTIAL, attempt_of, shuffle_of
from shuffle_server.store.tiering import recover_stubs

log = logging.getLogger(__name__)


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
    compacted: set[tuple[ShuffleId, MapAttempt]] = set()
    for path in files:
        shuffle = shuffle_of(path.parent.parent.name, path.parent.name)
        if path.suffix == COMPACTED and shuffle is not None:
            for description, place in _compacted(directory, path, shuffle):
                compacted.add((shuffle, description.output))
                if sync:
                    directory.sync_recovered(shuffle)
                yield description, place
    for path in files:
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
