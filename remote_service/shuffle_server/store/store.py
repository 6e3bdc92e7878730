"""The store of one worker: staged attempts, committed map outputs, removal, recovery."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from shuffle_api.errors import InvalidArgument, MapOutputLost, StorageFailed, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import ShuffleSpec
from shuffle_server.store.catalog import Catalog, Held
from shuffle_server.store.cold import ColdOutputs, recover_stubs, stub_path
from shuffle_server.store.directories import Directories
from shuffle_server.store.directory import DataDirectory, busy, gone, lost
from shuffle_server.store.format import Description, TornFile
from shuffle_server.store.indexes import IndexCache
from shuffle_server.store.kept import Kept, KeptOutputs, OpenOutput
from shuffle_server.store.opening import open_committed
from shuffle_server.store.output_file import OutputFile, load
from shuffle_server.store.paths import COMMITTED, PARTIAL
from shuffle_server.store.quota import AppQuota
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.recovery import recover_files
from shuffle_server.store.regions import Regions, Run
from shuffle_server.store.staged import StagedOutput
from shuffle_server.store.statistics import StoreStatistics
from shuffle_server.store.tier import Tier

SPARE_SECONDS = 60.0

log = logging.getLogger(__name__)


class Store:
    """Map outputs below one or several directories, which it alone writes.

    Who wins a map is decided by the catalog, in memory; an attempt is published by linking it to the map's one name. A
    crash leaves one attempt or none under that name, whole.
    """

    def __init__(
        self,
        *roots: Path,
        sync: bool = False,
        recycle: int = 0,
        floor: float = 0.0,
        app_max_bytes: int = 0,
        tier: Tier | None = None,
        merge_below: int = 0,
    ) -> None:
        """
        :param sync: what is published survives the machine.
        :param recycle: bytes of removed outputs whose files are kept for the next ones, in all directories together.
        :param floor: the part of each file system, 0 to 1, that stays free.
        :param app_max_bytes: payload that one application may hold; 0: any.
        :param tier: where cold outputs go, None: nowhere.
        :param merge_below: many outputs with no more payload than this are merged when they are read; 0: none are.
        """
        self._sync = sync
        self._directories = Directories(
            [DataDirectory(root, recycle=recycle // len(roots), floor=floor) for root in roots]
        )
        self.catalog = Catalog()
        self._quota = AppQuota(app_max_bytes)
        self._cold = None if tier is None else ColdOutputs(tier, self.catalog, self._directories, sync=sync)
        self._used: dict[ShuffleId, float] = {}  # when a shuffle was last written or read (time.monotonic)
        self._indexes = IndexCache()
        self._kept = KeptOutputs(self.catalog)
        self.regions = Regions(self.catalog, self._directories, self.open_output, merge_below)
        self._lock = threading.Lock()
        self._staged: dict[tuple[ShuffleId, MapAttempt], StagedOutput] = {}

    # ------------------------------------------------------------------ write

    def add_shuffle(self, shuffle: ShuffleId) -> None:
        """A shuffle may have outputs from now on; idempotent."""
        self.catalog.add(shuffle)

    def stage(self, spec: ShuffleSpec, output: MapAttempt, codec: str) -> StagedOutput:
        """The staged output of an attempt: the one that is there (a stream resumes), or a new one.

        Raises UnknownShuffle, StorageFull, StorageFailed, InvalidArgument (it began with another codec).
        """
        staged = self._staged.get((spec.id, output)) or self._new(spec, output, codec)
        if staged.codec != codec:
            raise InvalidArgument(
                f"attempt {output.attempt} of map {output.map} began with codec {staged.codec!r}, now {codec!r}",
                remedy="keep one codec per attempt",
            )
        return staged

    def is_staged(self, shuffle: ShuffleId, output: MapAttempt) -> bool:
        """Whether this attempt is being written."""
        return (shuffle, output) in self._staged

    def _new(self, spec: ShuffleSpec, output: MapAttempt, codec: str) -> StagedOutput:
        if spec.id not in self.catalog:
            raise gone(spec.id)
        home = self._directories.choose()
        home.make(spec.id)
        with self._lock:
            if spec.id not in self.catalog:  # it was removed while its directory was made
                raise gone(spec.id)
            staged = self._staged.get((spec.id, output))
            if staged is None:
                staged = StagedOutput(home, spec.id, output, spec.partitions, codec, self._quota)
                self._staged[spec.id, output] = staged
        return staged

    def publish(self, staged: StagedOutput, turn: int) -> Description | None:
        """Make a complete attempt visible; None when another attempt of this map was first (this one is then dropped).

        Raises StorageFull, StorageFailed, AttemptSuperseded (another stream writes it), UnknownShuffle (it was
        unregistered meanwhile).
        """
        shuffle, output = staged.shuffle, staged.output
        self._used[shuffle] = time.monotonic()
        try:
            description = staged.seal(turn, self._sync)
            won = self.catalog.claim(shuffle, Held(output, staged.home, description.totals.bytes))
            if won:
                self._publish_claimed(staged, description.totals.bytes)
        except (StorageFull, StorageFailed):
            # A sync that failed may have lost what it was to write, and the next one would not say so.
            self.drop_staged(shuffle, output)
            raise
        self.drop_staged(shuffle, output)
        return description if won else None

    def _publish_claimed(self, staged: StagedOutput, size: int) -> None:
        shuffle, published = staged.shuffle, False
        try:
            staged.home.publish(shuffle, staged.output, sync=self._sync)
            published = True
        finally:
            if published and not staged.close(held=True):
                self._quota.enter(shuffle.app, size)  # it was dropped meanwhile, and its bytes given back
            if not self.catalog.settle(shuffle, staged.output, published=published) and published:
                self._quota.give(shuffle.app, size)  # its shuffle was removed meanwhile

    def drop_staged(self, shuffle: ShuffleId, output: MapAttempt) -> None:
        """Forget an attempt that is not committed; idempotent."""
        with self._lock:
            staged = self._staged.pop((shuffle, output), None)
        if staged is not None:
            staged.discard()

    def drop_idle(self, seconds: float) -> int:
        """Drop the attempts that nobody has appended to for `seconds`; how many."""
        with self._lock:
            staged = list(self._staged.values())
        idle = [(s.shuffle, s.output) for s in staged if s.idle() > seconds]
        for shuffle, output in idle:
            self.drop_staged(shuffle, output)
        return len(idle)

    # ------------------------------------------------------------------ read

    def describe(self, shuffle: ShuffleId, map_id: int) -> Description:
        """What the committed file of a map says of itself. Raises MapOutputLost, Overloaded."""
        try:
            held = self.catalog.find(shuffle, map_id)
            if held is not None:
                self._here(shuffle, held)
                return load(held.home.paths.committed(shuffle, map_id)).description
            reason = "it is not here"
        except (TornFile, OSError) as error:
            if short := busy(error):
                raise short from error
            reason = str(error)
        raise MapOutputLost(f"map {map_id}: {reason}", remedy="run this map again", shuffle=shuffle)

    def path(self, shuffle: ShuffleId, output: MapAttempt) -> str | None:
        """Where the committed file of exactly this attempt lies, absolute; None when it is not here."""
        held = self.catalog.find(shuffle, output.map)
        if held is None or held.output != output or held.away:
            return None
        return held.home.paths.committed_text(shuffle, output.map)

    def open_output(self, shuffle: ShuffleId, output: MapAttempt) -> tuple[OutputFile, int]:
        """The committed file of exactly this attempt and a descriptor of it, which the caller closes.

        Raises MapOutputLost when the file is gone, torn, or another's; StorageFailed when it is in the object store and
        cannot be fetched now, StorageFull when there is no room for it; Overloaded when the process lacks descriptors.
        """
        return self._open(shuffle, output)[1:]

    def kept(self, shuffle: ShuffleId) -> Kept:
        """The files that a pull finds open."""
        return self._kept.of(shuffle)

    def open_kept(self, shuffle: ShuffleId, output: MapAttempt) -> OpenOutput:
        """As `open_output`; the file stays open for the pulls that follow."""
        opened = OpenOutput(*self._open(shuffle, output))
        self._kept.keep(shuffle, opened)
        return opened

    def _open(self, shuffle: ShuffleId, output: MapAttempt) -> tuple[Held, OutputFile, int]:
        self._used[shuffle] = time.monotonic()
        return open_committed(self.catalog, self._indexes, self._here, shuffle, output)

    def _here(self, shuffle: ShuffleId, held: Held) -> None:
        """See that the file of an output is on the disk. Raises MapOutputLost, StorageFailed, StorageFull."""
        if not held.away:
            return
        if self._cold is None:
            raise lost(shuffle, held.output, "it is in an object store, and the server runs without --tier")
        try:
            self._cold.bring_back(shuffle, held)
        except OSError as error:
            raise held.home.failure(error, shuffle, held.output) from error

    def move_cold(self, seconds: float, stopping: Callable[[], bool] = lambda: False) -> int:
        """Move out the shuffles that nobody has written or read for `seconds`; how many outputs. Without a tier, none.

        What cannot be moved now stays where it is.
        """
        if self._cold is None:
            return 0
        before = time.monotonic() - seconds
        chosen = (
            (shuffle, held)
            for shuffle in self.catalog.shuffles()
            if self._used.setdefault(shuffle, time.monotonic()) <= before
            for held in self._cold_outputs(shuffle)
        )
        moved = self._cold.move_all(chosen, stopping)
        self._kept.prune()
        return moved

    def _cold_outputs(self, shuffle: ShuffleId) -> list[Held]:
        self.regions.forget(lambda s: s == shuffle)  # it is their space that is to come back
        return self.catalog.outputs(shuffle)

    def use(self, shuffle: ShuffleId) -> None:
        """Somebody reads its files, and has not asked for them."""
        if shuffle in self.catalog:
            self._used[shuffle] = time.monotonic()

    def merged(self, shuffle: ShuffleId, ranges: Sequence[OutputRange]) -> Iterator[Run | OutputRange]:
        """What a pull asks for, in its order, and what of it can be read out of merged regions."""
        self._used[shuffle] = time.monotonic()
        return self.regions.runs(shuffle, ranges)

    # ------------------------------------------------------------------ remove

    def remove_output(self, shuffle: ShuffleId, output: MapAttempt) -> None:
        """Delete a committed output (it is lost or corrupt); idempotent, and nothing to another attempt."""
        held = self.catalog.retire(shuffle, output)
        if held is None:
            return
        self._quota.give(shuffle.app, held.bytes)
        held.home.unlink(held.home.paths.committed_text(shuffle, output.map))
        if self._cold is not None:
            held.home.unlink(stub_path(held, shuffle))
        self._kept.prune()
        self._indexes.forget(lambda s, m: s == shuffle and m == output.map)
        self.catalog.settle(shuffle, output, published=False)  # the next attempt's file has the same name
        if self._cold is not None:
            self._cold.removed()

    def remove_shuffle(self, shuffle: ShuffleId) -> None:
        """Everything of one shuffle disappears at once and is deleted in `empty_trash`; idempotent."""
        self._quota.give(shuffle.app, self.catalog.drop_shuffle(shuffle))
        self._end(lambda s: s == shuffle)
        for directory in self._directories:
            removed = directory.trash(directory.paths.shuffle_text(shuffle))
            if removed is not None:
                directory.recycle(shuffle.app, removed)
            with suppress(OSError):
                os.rmdir(directory.paths.app_text(shuffle.app))  # the last shuffle takes the app's directory along

    def remove_app(self, app: str) -> None:
        """Everything of one application; idempotent."""
        self._quota.give(app, self.catalog.drop_app(app))
        self._end(lambda s: s.app == app)
        for directory in self._directories:
            directory.trash(directory.paths.app_text(app))
            directory.spares.drop(app)

    def _end(self, concerned: Callable[[ShuffleId], bool]) -> None:
        with self._lock:
            staged = [self._staged.pop(key) for key in list(self._staged) if concerned(key[0])]
        for output in staged:
            output.close()
        for directory in self._directories:
            directory.forget(concerned)
        for shuffle in filter(concerned, list(self._used)):  # streams of other shuffles enter theirs meanwhile
            self._used.pop(shuffle, None)
        if self._cold is not None:
            self._cold.removed()
        self._kept.prune()
        self._indexes.forget(lambda s, _: concerned(s))
        self.regions.forget(concerned)

    def close_idle(self) -> None:
        """Close the files that pulls have left open."""
        self._kept.prune()

    def empty_trash(self) -> None:
        """Really delete what was removed; takes as long as the file system needs."""
        for directory in self._directories:
            directory.spares.drop(idle=SPARE_SECONDS)
            directory.empty_trash()

    # ------------------------------------------------------------------ start, look after, stop

    def recover(self) -> Iterator[Description]:
        """The committed outputs on disk, checked; what a crash left half-written is deleted. For the start only.

        Raises StorageFailed, Overloaded: what was not looked at must not pass for lost.
        """
        self.empty_trash()
        for directory in self._directories:
            for description in recover_files(directory):
                yield self._recovered(description, directory)
            for shuffle in directory.shuffles():
                self.catalog.add(shuffle)  # the master may say that it is over
            if self._cold is not None:
                for description in recover_stubs(directory):
                    yield self._recovered(description, directory, away=True)
        if self._cold is not None:
            self._cold.recovered()

    def _recovered(self, description: Description, home: DataDirectory, *, away: bool = False) -> Description:
        """Whoever hears of an output may remove it: another attempt, in another directory, is the map's then."""
        held = Held(description.output, home, description.totals.bytes, away=away)
        if self.catalog.put(description.shuffle_id, held):
            self._quota.enter(description.app, held.bytes)
        return description

    def shuffles(self) -> list[ShuffleId]:
        """The shuffles that have a directory."""
        return sorted({shuffle for directory in self._directories for shuffle in directory.shuffles()})

    def look(self) -> None:
        """Try all directories: those that fail are taken out, those that work again are back."""
        for directory in self._directories.look():
            try:
                self._sweep(directory)
            except OSError as error:
                directory.failure(error)

    def _sweep(self, directory: DataDirectory) -> None:
        """Delete what was removed, or given up as lost, while this directory was out."""
        for shuffle in directory.shuffles():
            if shuffle not in self.catalog:
                directory.trash(directory.paths.shuffle_text(shuffle))
                continue
            for path in directory.paths.shuffle(shuffle).glob(f"*{COMMITTED}"):
                if not self.catalog.places(shuffle, int(path.stem), directory):
                    path.unlink(missing_ok=True)
            for path in directory.paths.shuffle(shuffle).glob(f"*{PARTIAL}"):
                map_id, _, attempt = path.stem.partition(".")
                if not attempt.isdecimal():
                    continue  # a stub's, or of an output that comes back
                with self._lock:  # so that nobody begins to write it between the two
                    if (shuffle, MapAttempt(int(map_id), int(attempt))) not in self._staged:
                        path.unlink(missing_ok=True)

    def free_bytes(self) -> int:
        """What new outputs may take."""
        return sum(directory.room() for directory in self._directories)

    def statistics(self) -> StoreStatistics:
        with self._lock:
            staged = list(self._staged.values())
        staged_bytes = sum(output.totals.bytes for output in staged)
        return StoreStatistics(
            staged_outputs=len(staged),
            staged_bytes=staged_bytes,
            committed_bytes=max(0, self._quota.total() - staged_bytes),
            merged_bytes=self.regions.bytes(),
            rewritten_bytes=self.regions.rewritten,
            spare_bytes=sum(directory.spares.bytes for directory in self._directories),
            index_bytes=self._indexes.bytes,
            room_bytes=self.free_bytes(),
            disks=tuple(directory.space() for directory in self._directories),
        )

    def close(self) -> None:
        """Drop what is staged or spare. Committed outputs stay."""
        with self._lock:
            staged = list(self._staged)
        for shuffle, output in staged:
            self.drop_staged(shuffle, output)
        for directory in self._directories:
            directory.spares.drop()
        self._kept.close()
        self.regions.forget(lambda _: True)
