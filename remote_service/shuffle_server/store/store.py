"""The store of one worker: attempts under write, committed map outputs, removal, recovery."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from pathlib import Path

from shuffle_api.errors import DeadlineExceeded, InvalidArgument, StorageFailed, StorageFull
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import ShuffleSpec
from shuffle_server.store.attempt_writer import AttemptWriter
from shuffle_server.store.catalog import Catalog, CatalogEntry
from shuffle_server.store.compacted_files import CompactedFiles
from shuffle_server.store.compacted_run import CompactedRun
from shuffle_server.store.compaction_model import CompactionModel
from shuffle_server.store.deletion import Deletion
from shuffle_server.store.directories import Claims, Directories
from shuffle_server.store.directory import DataDirectory
from shuffle_server.store.disk_thread import DiskThread
from shuffle_server.store.failures import gone, lost
from shuffle_server.store.file_cache import CachedFiles, FileCache, OpenOutput
from shuffle_server.store.format import Description
from shuffle_server.store.object_store import ObjectStore
from shuffle_server.store.opening import IndexCache, describe_committed, open_committed
from shuffle_server.store.options import DEFAULTS, StoreOptions
from shuffle_server.store.output_file import OutputFile
from shuffle_server.store.quota import AppQuota
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.recovery import Recovery
from shuffle_server.store.statistics import StoreStatistics
from shuffle_server.store.tiering import Tiering

SPARE_SECONDS = 60.0
CLOSE_SECONDS = 10.0  # for which a close waits for the directories

log = logging.getLogger(__name__)


class Store:
    """Map outputs below one or several directories, which it alone writes.

    Who wins a map is decided by the catalog, in memory; an attempt is published by giving its file another name. What
    is removed is gone from the catalog at once, and its files are deleted by the caretakers of the directories.
    """

    def __init__(
        self,
        *roots: Path,
        options: StoreOptions = DEFAULTS,
        tier: ObjectStore | None = None,
        claims: Claims | None = None,
    ) -> None:
        """
        :param tier: where cold outputs go, None: nowhere.
        :param claims: of the directories, which are used as soon as they are recovered; None: they are used at once.
        """
        self._sync = sync = options.sync
        disks = claims.disks if claims else [DiskThread(root, options.disk_timeout) for root in roots]
        make = partial(DataDirectory, recycle=options.recycle // len(roots), floor=options.floor)
        directories = [make(root, disk=disk) for root, disk in zip(roots, disks, strict=True)]
        compaction = options.compaction
        if claims is None:
            for directory in directories:
                directory.begin(compaction.device_of(directory.root))
                directory.recovered = True
        self._directories = Directories(directories)
        self.catalog = Catalog()
        self._quota = AppQuota(options.app_max_bytes, options.app_max_attempts)
        self._tiering = (
            None if tier is None else Tiering(tier, self.catalog, self._directories, options.disk_timeout, sync=sync)
        )
        self._used: dict[ShuffleId, float] = {}  # when a shuffle was last written or read (time.monotonic)
        self._indexes = IndexCache()
        self._file_cache = FileCache(self.catalog)
        self.compaction = CompactedFiles(
            self.catalog,
            self._directories,
            self.open_output,
            self._file_cache.prune,
            CompactionModel(self._quota.total, compaction),
            sync=sync,
        )
        self._deletion = Deletion(self.catalog, self._directories, self._file_cache, self.compaction, self._tiering)

        def prepare(directory: DataDirectory) -> None:
            if claims is not None:
                claims.claim(directory.disk)
            directory.begin(compaction.device_of(directory.root))

        def entered(description: Description, held: CatalogEntry) -> None:
            self._quota.enter(description.app, held.bytes)
            self.compaction.recovered(description, held)

        self.recovery = Recovery(directories, self.catalog, prepare, entered, self._tiering, sync=sync)
        self._lock = threading.Lock()
        self._writers: dict[tuple[ShuffleId, MapAttempt], AttemptWriter] = {}

    def add_shuffle(self, shuffle: ShuffleId) -> None:
        """A shuffle may have outputs from now on; idempotent."""
        self.catalog.add(shuffle)

    def stage(self, spec: ShuffleSpec, output: MapAttempt, codec: str) -> AttemptWriter:
        """The staged output of an attempt: the one that is there (a stream resumes), or a new one.

        Raises UnknownShuffle, StorageFull, StorageFailed, QuotaExceeded, InvalidArgument (it began with another codec).
        """
        writer = self._writers.get((spec.id, output))
        if writer is not None and writer.home.calls.hang:
            self.drop_attempt(spec.id, output)  # it goes on elsewhere, from its beginning
            writer = None
        if writer is None:
            writer = self._new(spec, output, codec)
        if writer.codec != codec:
            raise InvalidArgument(
                f"attempt {output.attempt} of map {output.map} began with codec {writer.codec!r}, now {codec!r}",
                remedy="keep one codec per attempt",
            )
        return writer

    def has_attempt(self, shuffle: ShuffleId, output: MapAttempt) -> bool:
        """Whether this attempt is being written."""
        return (shuffle, output) in self._writers

    def _new(self, spec: ShuffleSpec, output: MapAttempt, codec: str) -> AttemptWriter:
        if spec.id not in self.catalog:
            raise gone(spec.id)
        home = self._directories.choose()
        with home.calls.request():
            home.make(spec.id)
        with self._lock:
            if spec.id not in self.catalog:  # it was removed while its directory was made
                raise gone(spec.id)
            writer = self._writers.get((spec.id, output))
            if writer is None:
                writer = AttemptWriter(home, spec.id, output, spec.partitions, codec, self._quota)
                self._writers[spec.id, output] = writer
        return writer

    def publish(self, writer: AttemptWriter, fencing_token: int) -> Description | None:
        """Make a complete attempt visible; None when another attempt of this map was first (this one is then dropped).

        Raises StorageFull, StorageFailed, AttemptSuperseded (another stream writes it), UnknownShuffle (it was
        unregistered meanwhile), DeadlineExceeded (it cannot be said whether a restart finds it).
        """
        shuffle, output = writer.shuffle, writer.output
        self._used[shuffle] = time.monotonic()
        try:
            description = writer.seal(fencing_token, self._sync)
            won = self.catalog.claim(shuffle, CatalogEntry(output, writer.home, description.totals.bytes))
            if won:
                self._publish_claimed(writer, description.totals.bytes)
        except (StorageFull, StorageFailed, DeadlineExceeded):
            # A sync that failed may have lost what it was to write, and the next one would not say so.
            self.drop_attempt(shuffle, output)
            raise
        if not won:
            self.drop_attempt(shuffle, output)
            return None
        with self._lock:
            if self._writers.get((shuffle, output)) is writer:
                del self._writers[shuffle, output]
        self.compaction.committed(description, writer.home)
        return description

    def _publish_claimed(self, writer: AttemptWriter, size: int) -> None:
        shuffle, published = writer.shuffle, False
        try:
            writer.publish(sync=self._sync)
            published = True
        finally:
            if published and not writer.close(held=True):
                self._quota.enter(shuffle.app, size)  # it was dropped meanwhile, and its bytes given back
            if not self.catalog.settle(shuffle, writer.output, published=published) and published:
                self._quota.give(shuffle.app, size)  # its shuffle was removed meanwhile

    def drop_attempt(self, shuffle: ShuffleId, output: MapAttempt) -> None:
        """Forget an attempt that is not committed; idempotent."""
        with self._lock:
            writer = self._writers.pop((shuffle, output), None)
        if writer is not None:
            writer.home.caretaker.later(writer.discard)

    def drop_idle(self, seconds: float) -> None:
        """Drop the attempts that nobody has appended to for `seconds`."""
        for directory in self._directories:
            directory.caretaker.later(partial(self._drop_idle, directory, seconds))

    def _drop_idle(self, directory: DataDirectory, seconds: float) -> None:
        with self._lock:
            writers = [each for each in self._writers.values() if each.home is directory]
        for each in writers:
            if each.idle() > seconds:
                self.drop_attempt(each.shuffle, each.output)

    def describe(self, shuffle: ShuffleId, map_id: int) -> Description:
        """What the committed file of a map says of itself. Raises MapOutputLost, Overloaded."""
        return describe_committed(self.catalog, self._here, shuffle, map_id)

    def path(self, shuffle: ShuffleId, output: MapAttempt) -> str | None:
        """Where the committed file of exactly this attempt lies, absolute; None when it has none here of its own."""
        held = self.catalog.find(shuffle, output.map)
        if held is None or held.output != output or held.tiered or held.place is not None:
            return None
        return held.home.paths.committed_text(shuffle, output)

    def open_output(self, shuffle: ShuffleId, output: MapAttempt) -> tuple[OutputFile, int]:
        """The committed file of exactly this attempt and a descriptor of it, which the caller closes.

        Raises MapOutputLost when the file is gone, torn, or another's; StorageFailed when it is in the object store and
        cannot be fetched now, StorageFull when there is no room for it; Overloaded when the process lacks descriptors.
        """
        return self._open(shuffle, output)[1:]

    def cached_files(self, shuffle: ShuffleId) -> CachedFiles:
        """The files that a pull finds open."""
        return self._file_cache.of(shuffle)

    def open_cached(self, shuffle: ShuffleId, output: MapAttempt) -> OpenOutput:
        """As `open_output`; the file stays open for the pulls that follow."""
        opened = OpenOutput(*self._open(shuffle, output))
        self._file_cache.keep(shuffle, opened)
        return opened

    def _open(self, shuffle: ShuffleId, output: MapAttempt) -> tuple[CatalogEntry, OutputFile, int]:
        self._used[shuffle] = time.monotonic()
        if not self.recovery.complete:
            self.recovery.check(shuffle, output)
        return open_committed(self.catalog, self._indexes, self._here, shuffle, output)

    def _here(self, shuffle: ShuffleId, held: CatalogEntry) -> None:
        """See that the file of an output is on the disk. Raises MapOutputLost, StorageFailed, StorageFull."""
        if not held.tiered:
            return
        if self._tiering is None:
            raise lost(shuffle, held.output, "it is in an object store, and the server runs without --tier")
        try:
            self._tiering.load_back(shuffle, held)
        except OSError as error:
            raise held.home.failure(error, shuffle, held.output) from error

    def evict_cold(self, seconds: float, stopping: Callable[[], bool] = lambda: False) -> int:
        """Move out the shuffles that nobody has written or read for `seconds`; how many outputs. Without a tier, none.

        What cannot be moved now stays where it is.
        """
        if self._tiering is None:
            return 0
        before = time.monotonic() - seconds
        chosen = (
            (shuffle, held)
            for shuffle in self.catalog.shuffles()
            if self._used.setdefault(shuffle, time.monotonic()) <= before
            for held in self.catalog.outputs(shuffle)
        )
        moved = self._tiering.move_all(chosen, stopping)
        self._file_cache.prune()
        return moved

    def use(self, shuffle: ShuffleId) -> None:
        """Somebody reads its files, and has not asked for them."""
        if shuffle in self.catalog:
            self._used[shuffle] = time.monotonic()
            self.compaction.read(shuffle)

    def merged(self, shuffle: ShuffleId, ranges: Sequence[OutputRange]) -> Iterator[CompactedRun | OutputRange]:
        """The ranges of a pull, in its order; those in compacted files come as runs."""
        self._used[shuffle] = time.monotonic()
        return self.compaction.runs(shuffle, ranges)

    # ------------------------------------------------------------------ remove

    def remove_output(self, shuffle: ShuffleId, output: MapAttempt, within: float = 0.0) -> bool:
        """Give a committed output up, and no other attempt; idempotent. Whether its file is gone `within` seconds."""
        held = self.catalog.retire(shuffle, output)
        if held is None:
            return True
        self._quota.give(shuffle.app, held.bytes)
        self._indexes.forget(shuffle, output.map)
        return self._deletion.output(shuffle, held).wait(within)

    def remove_shuffle(self, shuffle: ShuffleId) -> None:
        """Everything of one shuffle disappears at once, and is deleted soon; idempotent."""
        self._quota.give(shuffle.app, self.catalog.drop_shuffle(shuffle))
        self._deletion.shuffle(shuffle, self._end({shuffle}))

    def remove_app(self, app: str) -> None:
        """Everything of one application; idempotent."""
        # Streams of other shuffles enter theirs meanwhile.
        shuffles = {shuffle for shuffle in (*self.catalog.shuffles(), *list(self._used)) if shuffle.app == app}
        self._quota.give(app, self.catalog.drop_app(app))
        self._deletion.app(app, list(shuffles), self._end(shuffles))

    def _end(self, shuffles: Set[ShuffleId]) -> list[AttemptWriter]:
        """Forget shuffles that are gone from the catalog; their attempts that are being written, to be closed."""
        with self._lock:
            writer = [self._writers.pop(key) for key in list(self._writers) if key[0] in shuffles]
        for shuffle in shuffles:
            self._used.pop(shuffle, None)
            self._indexes.forget_all(shuffle)
        return writer

    def later(self, task: Callable[[], object]) -> None:
        """Have the first directory's thread do something soon; never waits for it."""
        next(iter(self._directories)).caretaker.later(task)

    def close_idle(self) -> None:
        """Close the files that pulls have left open."""
        self._file_cache.prune()

    def start(self) -> None:
        """From now on what is removed is deleted by threads of their own, one for each directory, until `close`."""
        for directory in self._directories:
            directory.caretaker.start()

    def maintain(self, staged_seconds: float, wait: float) -> None:
        """Have each directory looked at and tidied, and wait so many seconds at most for those that do not hang.

        :param staged_seconds: after which an attempt that nobody appends to is dropped.
        """
        give_up = time.monotonic() + wait
        for directory in self._directories:
            directory.caretaker.later(partial(self._tidy, directory, staged_seconds), once="tidy")
        for directory in self._directories:
            if not directory.calls.slow:
                directory.caretaker.wait(give_up - time.monotonic())

    def _tidy(self, directory: DataDirectory, staged_seconds: float) -> None:
        if not directory.recovered:
            self.recovery.again(directory)
            return
        self.look(directory)
        self._drop_idle(directory, staged_seconds)
        self.empty_trash(directory)

    def empty_trash(self, *directories: DataDirectory) -> None:
        """Really delete what was removed, in all directories if none is named."""
        for directory in directories or self._directories:
            directory.file_pool.drop(idle=SPARE_SECONDS)
            directory.empty_trash()

    # ------------------------------------------------------------------ start, look after, stop

    def recover(self) -> Iterator[Description]:
        """The committed outputs on disk, checked; what a crash left half-written is deleted. For the start only.

        What is found later is with `recovery`.
        The caller may remove a yielded output when another attempt, in another directory, is the map's.
        Raises StorageFailed, Overloaded: unchecked outputs must not pass for lost.
        """
        yield from self.recovery.run()

    def look(self, *directories: DataDirectory) -> None:
        """Try directories, all if none is named: those that fail are taken out, those that work again are back."""
        for directory in directories or self._directories:
            if directory.recovered and directory.look():
                try:
                    self._deletion.sweep(directory, self._written)
                except OSError as error:
                    directory.failure(error)

    def _written(self) -> set[str]:
        with self._lock:
            return {writer.path for writer in self._writers.values()}

    def free_bytes(self) -> int:
        """What new outputs may take, as it was at the last look."""
        return sum(directory.room() for directory in self._directories)

    def statistics(self) -> StoreStatistics:
        with self._lock:
            writer = list(self._writers.values())
        staged_bytes = sum(output.totals.bytes for output in writer)
        return StoreStatistics(
            staged_outputs=len(writer),
            staged_bytes=staged_bytes,
            largest_staged=self._quota.largest_attempts(),
            committed_bytes=max(0, self._quota.total() - staged_bytes),
            compaction=self.compaction.statistics(),
            spare_bytes=sum(directory.file_pool.bytes for directory in self._directories),
            index_bytes=self._indexes.bytes,
            room_bytes=self.free_bytes(),
            disks=tuple(directory.space() for directory in self._directories),
        )

    def close(self) -> None:
        """Drop what is staged or spare. Committed outputs stay. A directory that hangs is left as it is."""
        with self._lock:
            writer = list(self._writers)
        for shuffle, output in writer:
            self.drop_attempt(shuffle, output)
        give_up = time.monotonic() + CLOSE_SECONDS
        for directory in self._directories:
            directory.caretaker.later(partial(self._close, directory))
        for directory in self._directories:
            directory.disk.stop(give_up - time.monotonic())

    def _close(self, directory: DataDirectory) -> None:
        self._file_cache.close()
        self.compaction.close()
        if directory.recovered:
            directory.file_pool.drop()
            directory.empty_trash()
