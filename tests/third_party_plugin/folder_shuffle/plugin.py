"""`FolderShuffle`, its options and its master."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakSet

from folder_shuffle.store import ShuffleFiles, remove
from folder_shuffle.tasks import FolderReader, FolderWriter
from shuffle_api import (
    BLOCKING,
    NO_OPTIONS,
    MapAttempt,
    MapOutput,
    Options,
    ShuffleHandle,
    ShuffleId,
    ShuffleMaster,
    ShufflePlugin,
    ShuffleSpec,
)
from shuffle_api.errors import InvalidArgument, ShuffleExists
from shuffle_api.ids import new_run
from shuffle_api.options import option, parse_options


@dataclass(frozen=True, slots=True)
class FolderOptions:
    """The options of `FolderShuffle`."""

    root: str = option(help="a directory that every task can reach")
    buffer_bytes: int = option(1 << 20, unit="bytes", minimum=1, help="what a writer gathers before it writes blocks")


class FolderShuffle(ShufflePlugin):
    """Map outputs as files below one directory; tasks anywhere that see it. Closing ends its applications."""

    name = "folder"
    mode = BLOCKING

    def __init__(self, options: Options = NO_OPTIONS) -> None:
        self._options = parse_options(FolderOptions, options)
        self._lock = threading.Lock()
        self._masters: list[FolderMaster] = []  # an application ends with its plugin, even if nobody holds its master
        self._tasks: WeakSet[FolderWriter | FolderReader] = WeakSet()
        self._closed = False

    def master(self, app: str) -> FolderMaster:
        with self._lock:
            self._check_open()
            self._masters.append(FolderMaster(Path(self._options.root), app))
            return self._masters[-1]

    def writer(self, handle: ShuffleHandle, attempt: MapAttempt) -> FolderWriter:
        with self._lock:
            self._check_open()
            writer = FolderWriter(_files(handle), handle.spec, attempt, self._options.buffer_bytes)
            self._tasks.add(writer)
            return writer

    def reader(self, handle: ShuffleHandle, partitions: range, maps: range | None = None) -> FolderReader:
        with self._lock:
            self._check_open()
            reader = FolderReader(_files(handle), handle.spec, partitions, maps)
            self._tasks.add(reader)
            return reader

    def close(self) -> None:
        with self._lock:
            self._closed = True
            tasks = list(self._tasks)
        for task in tasks:
            if isinstance(task, FolderWriter):
                task.abort()
            else:
                task.close()
        for master in self._masters:
            master.close()

    def lose_map_output(self, handle: ShuffleHandle, map: int) -> None:
        """Delete the data of a committed map output; for the exam."""
        _files(handle).lose(map)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument("the plugin is closed")


class FolderMaster(ShuffleMaster):
    """Owns the directory of one run of its application, and alone registers shuffles there."""

    def __init__(self, root: Path, app: str) -> None:
        self._root, self._run = root, new_run(app)
        self._directory = root / self._run
        self._directory.mkdir(parents=True)
        self._registered: dict[int, ShuffleSpec] = {}
        self._lock = threading.Lock()
        self._next = 0
        self._closed = False

    def register_shuffle(self, partitions: int, maps: int, *, shuffle: int | None = None) -> ShuffleHandle:
        with self._lock:
            if self._closed:
                raise InvalidArgument(f"the master of run {self._run!r} is closed")
            number = self._next if shuffle is None else shuffle
            spec = ShuffleSpec(ShuffleId(self._run, number).anew(), partitions, maps, codec="none")
            present = self._registered.setdefault(number, spec)
            if present is spec:
                ShuffleFiles(self._root, spec).register()
            elif (present.partitions, present.maps) != (partitions, maps):
                raise ShuffleExists("it was registered with other properties", shuffle=present.id)
            self._next = max(self._next, number + 1)
        return ShuffleHandle(FolderShuffle.name, present, str(self._root))

    def map_outputs(self, handle: ShuffleHandle) -> list[MapOutput]:
        return _files(handle).outputs()

    def unregister_shuffle(self, handle: ShuffleHandle) -> None:
        with self._lock:
            if self._registered.get(handle.spec.id.shuffle) == handle.spec:
                del self._registered[handle.spec.id.shuffle]
        _files(handle).unregister()

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                remove(self._directory)


def _files(handle: ShuffleHandle) -> ShuffleFiles:
    return ShuffleFiles(Path(handle.endpoint), handle.spec)
