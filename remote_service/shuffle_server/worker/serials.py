"""Which shuffle the files of a shuffle are of: an id may be used again, and a worker hears of that late.

The master gives each registration of a shuffle a random serial. A worker notes it before it writes the first byte, in a
small file that outlives the process, and never mixes the data of two.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from shuffle_api.errors import InvalidArgument, StorageFailed
from shuffle_api.ids import ShuffleId
from shuffle_server.worker.small_file import replace_text

log = logging.getLogger(__name__)


class ShuffleSerials:
    """The serial of each shuffle of which a worker may have files. Thread-safe.

    :param remove: deletes what there is of a shuffle.
    :param sync: a serial survives the machine, as the files do that it is noted for: without it they are deleted.
    """

    def __init__(self, directory: Path, remove: Callable[[ShuffleId], None], *, sync: bool = False) -> None:
        self._directory, self._remove, self._sync = directory, remove, sync
        self._lock = threading.Lock()  # held while files are removed, too: nobody may write to them meanwhile
        directory.mkdir(parents=True, exist_ok=True)
        self._serials = dict(filter(None, map(_read, sorted(directory.iterdir()))))

    def get(self, shuffle: ShuffleId) -> int | None:
        """The serial under which files may be there; None for a shuffle that is not known."""
        with self._lock:
            return self._serials.get(shuffle)

    def all(self) -> list[tuple[ShuffleId, int]]:
        with self._lock:
            return list(self._serials.items())

    def begin(self, shuffle: ShuffleId, serial: int, before: int | None) -> bool:
        """Files of this shuffle may be written from now on; those of an earlier one with its id are removed.

        :param before: what `get` said before the master was asked for `serial`.
        :return: False when another has begun since then: `serial` may be the older one, so the master is asked again.
        :raises StorageFailed: the serial cannot be noted.
        """
        with self._lock:
            known = self._serials.get(shuffle)
            if known == serial:
                return True
            if known != before:
                return False
            self._remove(shuffle)
            path = self._path(shuffle)
            try:
                replace_text(path, str(serial), sync=self._sync)
            except OSError as error:
                raise StorageFailed(f"{path}: {error.strerror}", remedy="check the disk", shuffle=shuffle) from error
            self._serials[shuffle] = serial
            return True

    def end(self, shuffle: ShuffleId, serial: int) -> None:
        """This shuffle is over: its files go. A later one with its id is left alone."""
        with self._lock:
            if self._serials.get(shuffle) == serial:
                try:
                    self._remove(shuffle)
                    self._path(shuffle).unlink(missing_ok=True)
                except OSError as error:  # the master says it again
                    log.warning("the files of shuffle %s cannot be removed now: %s", shuffle, error)
                    return
                del self._serials[shuffle]

    def _path(self, shuffle: ShuffleId) -> Path:
        return self._directory / f"{shuffle.shuffle}.{shuffle.app}.serial"


def _read(path: Path) -> tuple[ShuffleId, int] | None:
    """None for a file that was not finished or is somebody else's: then its shuffle is not known, and is removed."""
    number, _, app = path.name.removesuffix(".serial").partition(".")
    try:
        if path.suffix == ".serial":
            return ShuffleId(app, int(number)), int(path.read_text())
    except (ValueError, InvalidArgument) as error:
        log.warning("%s is passed over: %s", path, error)
    return None
