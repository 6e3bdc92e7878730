"""What a data directory holds at a start: committed outputs are checked, what a crash left half-written is deleted."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from shuffle_api.ids import ShuffleId
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.failures import busy
from shuffle_server.store.format import Description, TornFile
from shuffle_server.store.output_file import load
from shuffle_server.store.paths import COMMITTED, PARTIAL, attempt_of, shuffle_of

log = logging.getLogger(__name__)


def recover_files(directory: DataDirectory, *, sync: bool) -> Iterator[Description]:
    """The committed outputs of one directory. One that cannot be read is passed over, as is what cannot be deleted.

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
    for path in files:
        shuffle = shuffle_of(path.parent.parent.name, path.parent.name)
        if path.suffix == COMMITTED and shuffle is not None:
            description = _load(directory, path, shuffle)
            if description is not None:
                if sync:
                    directory.sync_recovered(shuffle)
                yield description


def _load(directory: DataDirectory, path: Path, shuffle: ShuffleId) -> Description | None:
    try:
        description = load(path).description
        description.check(shuffle, attempt_of(path.name))
        return description
    except TornFile as error:
        # Not a crash's doing, since only complete files get this name: the disk lost something. The registry,
        # which has the commit, will report the output as lost.
        torn = path.with_suffix(".torn")
        log.error("%s: %s; set aside as %s", path, error, torn.name)
        try:
            path.rename(torn)
        except OSError as failed:
            directory.failure(failed)
    except OSError as error:
        if short := busy(error):
            raise short from error
        log.error("%s: %s", path, error)
        directory.failure(error)
    return None
