"""Moving cold map outputs to the object store, and back when they are read.

An output is moved as its whole file. A stub stays, `MAP.ATTEMPT.away`, with the file's description. At each
step one of the two is there: the stub is written after the object is whole, the file goes after the stub is there; a
file that came back is complete before it has its name, and its stub and object stay for the next time it grows cold.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Set
from pathlib import Path

import numpy as np

from shuffle_api.errors import MapOutputLost, ShuffleError, StorageFailed
from shuffle_api.ids import ShuffleId
from shuffle_server.data_sync import sync_data
from shuffle_server.store.calls import DiskCalls
from shuffle_server.store.catalog import Catalog, CatalogEntry
from shuffle_server.store.compacted_file import CompactedPlace
from shuffle_server.store.directory import DataDirectory, sync_directory
from shuffle_server.store.failures import busy, lost
from shuffle_server.store.format import Description, TornFile, build_index, encode_tail
from shuffle_server.store.object_store import ObjectStore
from shuffle_server.store.output_file import OutputFile, load, read_ranges, table_of
from shuffle_server.store.paths import AWAY, PARTIAL
from shuffle_transport.checksum import crc32c

STUBS = f"*/*/*{AWAY}"

log = logging.getLogger(__name__)
PIECE_BYTES = 8 << 20  # that are copied at a time


class Tiering:
    """Moves outputs between a store's directories and the object store. Thread-safe.

    :param timeout: seconds after which a fetch from the object store hangs.
    """

    def __init__(
        self, tier: ObjectStore, catalog: Catalog, directories: Iterable[DataDirectory], timeout: float, *, sync: bool
    ) -> None:
        self._tier, self._catalog, self._directories, self._sync = tier, catalog, directories, sync
        # Not those of the directory: an object store that does not answer says nothing of the disk.
        self._fetches = DiskCalls(Path("object store"), timeout, "try again later; check the object store of --tier")
        self._lock = threading.Lock()
        self._moving: defaultdict[tuple[ShuffleId, int], threading.Lock] = defaultdict(threading.Lock)
        self._orphans = True  # what a crash, or a removal, may have left in the object store
        self._recovered = False
        self._failed: Set[str] = frozenset()  # what the last round could not do

    def move_all(self, chosen: Iterable[tuple[ShuffleId, CatalogEntry]], stopping: Callable[[], bool]) -> int:
        """A round: move these out, and sweep; returns the number moved. Failed moves wait for the next round."""
        moved, failed = 0, dict[str, Exception]()
        for shuffle, held in chosen:
            if stopping():
                return moved
            try:
                moved += self.evict(shuffle, held)
            except (ShuffleError, TornFile, OSError) as error:
                failed[f"{held.output} of {shuffle} stays here"] = error
        try:
            self.sweep()
        except ShuffleError as error:
            failed["objects that nobody needs are not all deleted"] = error
        news = [f"{what} for now: {error}" for what, error in failed.items() if what not in self._failed]
        if news:  # said once, and not each second
            log.warning("%d failures at moving cold outputs; the first new one: %s", len(failed), news[0])
        self._failed = failed.keys()
        return moved

    def evict(self, shuffle: ShuffleId, held: CatalogEntry) -> bool:
        """Move one output; False when it is gone, or away already.

        Raises StorageFailed, TornFile, OSError: then it stays here.
        """
        with self._one(shuffle, held.output.map):
            if self._catalog.find(shuffle, held.output.map) is not held or held.tiered:
                return False
            file, stub = held.home.paths.committed(shuffle, held.output), stub_path(held, shuffle)
            try:
                if not stub.exists():
                    if held.place is not None:
                        held = extract(self._catalog, shuffle, held, held.place)
                    description = load(file).description
                    self._check_marker()
                    self._tier.put(shuffle, held.output, file)
                    _write_stub(stub, description, sync=self._sync)
            except FileNotFoundError:
                if self._catalog.find(shuffle, held.output.map) is held:
                    raise
                self._orphans = True  # removed meanwhile
                return False
            if self._catalog.change(shuffle, held, tiered=True) is None:
                stub.unlink(missing_ok=True)
                self._orphans = True
                return False
            file.unlink(missing_ok=True)
            if held.place is not None:
                held.place.file.drop(held.place.number)
            return True

    def load_back(self, shuffle: ShuffleId, held: CatalogEntry) -> None:
        """Have the file here again. Outside of a call to the directory.

        Raises MapOutputLost when its object is gone or damaged, StorageFailed, Overloaded, OSError.
        """
        with self._fetches.request(), self._one(shuffle, held.output.map):
            current = self._catalog.find(shuffle, held.output.map)
            if current is None or current.output != held.output or not current.tiered:
                return
            file = held.home.paths.committed(shuffle, held.output)
            part = file.with_suffix(f".back{PARTIAL}")
            with held.home.calls.request():
                held.home.check_room(held.bytes)
            try:
                if not self._tier.get(shuffle, held.output, part):
                    raise TornFile("there is no such object")
                with held.home.calls.request():
                    description = load(part).description
                    if description.output != held.output or description.shuffle_id != shuffle:
                        raise TornFile(f"it is {description.output} of {description.shuffle_id}")
                    if self._sync:
                        _sync_file(part)
                    part.rename(file)
            except TornFile as error:
                part.unlink(missing_ok=True)
                raise MapOutputLost(
                    f"{held.output} of {shuffle}, in the object store: {error}",
                    remedy="run this map again",
                    shuffle=shuffle,
                    output=held.output,
                ) from None
            except (ShuffleError, OSError):
                part.unlink(missing_ok=True)
                raise
            if self._catalog.change(shuffle, current) is None:
                held.home.unlink(file)  # it was removed meanwhile

    def removed(self) -> None:
        """Outputs are gone from the catalog: their objects can go."""
        self._orphans = True

    def recovered(self) -> None:
        """The catalog is complete: an object that it does not know is no one's."""
        self._recovered = True

    def sweep(self) -> None:
        """Delete the objects that no output needs. Raises StorageFailed: it is tried again the next time."""
        if not self._orphans or not self._recovered:
            return
        self._orphans = False
        try:
            self._delete_orphans()
        except ShuffleError:
            self._orphans = True
            raise
        with self._lock:
            self._moving = defaultdict(
                threading.Lock, {key: lock for key, lock in self._moving.items() if key[0] in self._catalog}
            )

    def _delete_orphans(self) -> None:
        """All that can be deleted. Raises the first failure."""
        failures: list[ShuffleError] = []
        for shuffle, output in self._tier.objects():
            if not self._catalog.holds(shuffle, output):
                try:
                    self._tier.remove(shuffle, output)
                except ShuffleError as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    def _check_marker(self) -> None:
        """See that this is the tier that was used before, if one was. Raises StorageFailed, OSError."""
        if self._tier.marked():
            return
        if any(next(directory.paths.apps.glob(STUBS), None) is not None for directory in self._directories):
            self._tier.check_marked()
        self._tier.mark()

    def _one(self, shuffle: ShuffleId, map_id: int) -> threading.Lock:
        """Held while an output is moved, so that it is moved once: over I/O, but over that of this output only."""
        with self._lock:
            return self._moving[shuffle, map_id]


def stub_path(held: CatalogEntry, shuffle: ShuffleId) -> Path:
    return held.home.paths.shuffle(shuffle) / f"{held.output.map}.{held.output.attempt}{AWAY}"


def recover_stubs(directory: DataDirectory) -> Iterator[Description]:
    """The outputs that are in the object store only. A damaged stub is deleted: its output is lost then.

    Raises Overloaded, StorageFailed when one cannot be read: its output must not pass for lost, nor its object go.
    """
    for path in sorted(directory.paths.apps.glob(STUBS)):
        try:
            description = _read_stub(path)
        except TornFile as error:
            log.error("%s: %s; its output is lost", path, error)
            directory.unlink(path)
            continue
        except OSError as error:
            raise busy(error) or StorageFailed(
                f"{path} cannot be read: {error.strerror}",
                remedy="check this disk; to give its output up, delete the file",
            ) from error
        if not directory.paths.committed(description.shuffle_id, description.output).exists():
            yield description


def _write_stub(path: Path, description: Description, *, sync: bool) -> None:
    text = description.encode()
    part = path.with_suffix(f"{AWAY}{PARTIAL}")
    part.write_bytes(b"%08x %s" % (crc32c(text), text))
    if sync:
        _sync_file(part)
    part.rename(path)
    if sync:
        sync_directory(path.parent)


def _read_stub(path: Path) -> Description:
    checksum, _, text = path.read_bytes().partition(b" ")
    if checksum != b"%08x" % crc32c(text):
        raise TornFile("its checksum does not match")
    return Description.decode(text)


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def extract(catalog: Catalog, shuffle: ShuffleId, held: CatalogEntry, place: CompactedPlace) -> CatalogEntry:
    """Give an output of a compacted file a file of its own again, as which it moves to the object store.

    What is held of it then.

    :raises MapOutputLost: it was removed meanwhile.
    :raises StorageFull, StorageFailed, TornFile, OSError: it stays where it is.
    """
    home = held.home
    home.check_room(held.bytes)
    path = home.paths.committed_text(shuffle, held.output)
    part = home.paths.partial_text(shuffle, held.output, next(home.numbers))
    try:
        _write(part, place.file.load(place.number), place.file.fd)
        home.publish(part, shuffle, held.output, sync=False)
    except BaseException:
        home.unlink(part)
        raise
    changed = catalog.change(shuffle, held)
    if changed is None:
        home.unlink(path)
        raise lost(shuffle, held.output, "it was removed")
    place.file.drop(place.number)
    return changed


def _write(path: str, file: OutputFile, source: int) -> None:
    """The blocks in the order in which they were first written."""
    entries = file.index[file.order()]
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_CLOEXEC, 0o600)) as target:
        for piece in _pieces(entries):
            payload = memoryview(bytearray(int(piece["length"].sum())))
            filled = piece[piece["length"] > 0]
            read_ranges([source] * len(filled), filled["offset"].tolist(), filled["length"].tolist(), payload)
            target.write(payload)
        target.write(encode_tail(build_index([table_of(entries)]), file.description))
        target.flush()
        sync_data(target.fileno())


def _pieces(entries: np.ndarray) -> list[np.ndarray]:
    if not len(entries):
        return []
    number = (np.cumsum(entries["length"]) - entries["length"]) // PIECE_BYTES
    return np.split(entries, np.flatnonzero(np.diff(number)) + 1)
