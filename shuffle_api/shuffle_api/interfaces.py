"""The interfaces a shuffle is made of. A plugin implements these four classes.

The order of calls, driver on the left, tasks on the right:

    plugin = open_plugin(name, options)
    master = plugin.master(app)
    handle = master.register_shuffle(partitions, maps)
                                          with plugin.writer(handle, MapAttempt(map, attempt)) as writer:
                                              writer.write(partition, record)     # any number of times
                                              output = writer.commit()
                                          with plugin.reader(handle, partitions) as reader:
                                              for partition, record in reader: ...
    master.unregister_shuffle(handle)
    master.close()
    plugin.close()

Tasks may run in other processes: they open a plugin of the same name and use the pickled handle.

Rules for every class here: `close` and `abort` may be called any number of times and from `__exit__`; a
call that waits has a deadline and then raises `DeadlineExceeded` or `Overloaded`; a peer that cannot be
reached is `ServerUnreachable`; all other failures are subclasses of `ShuffleError` too. Masters and
plugins may be shared between threads; a writer or a reader belongs to one thread at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import MappingProxyType, TracebackType
from typing import ClassVar, Protocol, Self, TypeAlias, runtime_checkable

from shuffle_api.buffer import Buffer
from shuffle_api.errors import InvalidArgument
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import BLOCKING, MapOutput, PartitionMode, ShuffleHandle

OptionValue: TypeAlias = str | int | float | bool
Options: TypeAlias = Mapping[str, OptionValue]
NO_OPTIONS: Options = MappingProxyType({})


class _Closing(ABC):
    """A context manager that calls `close` at the end."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class ShuffleMaster(_Closing):
    """The driver's side: one run of an application and its shuffles."""

    @abstractmethod
    def register_shuffle(self, partitions: int, maps: int, *, shuffle: int | None = None) -> ShuffleHandle:
        """Create a shuffle in which `maps` tasks write `partitions` partitions.

        None for `shuffle` chooses a number that this master has not used before, not even for a shuffle that
        is gone. A number that is registered again is another shuffle: the `generation` of its id differs, and
        tasks of the old one cannot write into the new one.

        :raises InvalidArgument: partitions < 1, maps < 0, or the master is closed.
        :raises ShuffleExists: the number is taken by a shuffle with other properties. The same again is a no-op.
        :raises AppExpired: the service has received nothing from this application for too long.
        """

    @abstractmethod
    def map_outputs(self, handle: ShuffleHandle) -> list[MapOutput]:
        """The committed map outputs, ascending by map: the winner of each map that has one.

        :raises UnknownShuffle: the shuffle is not registered.
        """

    @abstractmethod
    def unregister_shuffle(self, handle: ShuffleHandle) -> None:
        """Free the shuffle's data. Unregistering what is not registered is a no-op."""

    @abstractmethod
    def close(self) -> None:
        """Unregister the run with all its shuffles. Idempotent."""


class ShuffleWriter(ABC):
    """One attempt of one map task. A context manager: leaving it without `commit` aborts.

    Nothing of an attempt is visible to `after_commit` readers before it has committed, nor ever after `abort`.
    """

    @abstractmethod
    def write(self, partition: int, record: Buffer) -> None:
        """Append one record to `partition`; its boundary is kept, and so is the order within the partition.

        The record is copied or sent before the call returns: the caller may reuse its buffer. May wait
        for room, which is how back-pressure is felt.

        :raises InvalidArgument: no such partition, or the writer has committed or aborted.
        :raises UnknownShuffle: the shuffle is not registered (may come as late as `commit`).
        :raises StorageFull: no room for new data.
        :raises Overloaded: no room in memory until the deadline.
        """

    @abstractmethod
    def commit(self) -> MapOutput:
        """Say that the attempt is complete; return the output of the attempt that won this map.

        The first attempt to commit wins. When that was another one, its output is returned, and what this
        attempt wrote is dropped: both know the same winner. Committing again returns the same output.

        :raises InvalidArgument: the writer has aborted.
        :raises CommitMismatch: the service does not hold what was written.
        :raises MapOutputLost: this very attempt was committed before and has been lost since.
        """

    @abstractmethod
    def abort(self) -> None:
        """Forget what was written. Idempotent; after a commit it does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()


class ShuffleReader(_Closing):
    """The records of a range of partitions, out of a range of maps. A context manager.

    It is read once, in one way. An iterator that was left in the middle goes on; to iterate the reader again is
    refused, also after the end. Another reader begins at the beginning.
    """

    _begun = False

    def _begin_reading(self, shuffle: ShuffleId) -> None:
        """For plugins: to be called by whatever iterates, before it yields anything.

        :raises InvalidArgument: that was before.
        """
        if self._begun:
            raise InvalidArgument(
                "the reader was read already", remedy="go on with its iterator, or open a new reader", shuffle=shuffle
            )
        self._begun = True

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """Yield `(partition, record)`, each record once.

        Records of one map and one partition come in the order written; nothing is promised between maps
        or between partitions. An iterator that ends has yielded everything: it raises rather than end early.

        :raises MapOutputNotWritten: maps of the range have not committed; the message names them.
        :raises MapOutputLost: the data of a map is gone.
        :raises BlockCorrupt: data differs from its checksum.
        :raises UnknownShuffle: the shuffle is not registered.
        :raises AppExpired: its application fell silent, the data was dropped.
        :raises StreamBroken: the peer stopped before its end message.
        :raises InvalidArgument: the reader is closed, or was read already.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop reading, at the end or before it. Idempotent."""


class ShufflePlugin(_Closing):
    """Opens masters, writers and readers. Found by `name` through the entry point group `shuffle.plugins`."""

    name: ClassVar[str]
    mode: PartitionMode = BLOCKING
    """How the data of this plugin's shuffles lives. An instance may have a mode of its own, from its options."""

    @abstractmethod
    def __init__(self, options: Options = NO_OPTIONS) -> None:
        """
        :raises UnknownOption: an option that the plugin does not have; the error lists those it has.
        :raises InvalidArgument: a value that does not fit its option.
        """

    @abstractmethod
    def master(self, app: str) -> ShuffleMaster:
        """Begin a run of the application `app`. Any number of runs of one application share nothing.

        :raises AppExists: the service takes one run of an application at a time, and has one.
        :raises InvalidArgument: not a valid name.
        """

    @abstractmethod
    def writer(self, handle: ShuffleHandle, attempt: MapAttempt) -> ShuffleWriter:
        """Open the writer of one attempt. One attempt is written by one writer, ever.

        :raises InvalidArgument: the map is not in [0, maps).
        :raises UnknownShuffle: the shuffle is not registered (may come as late as the writer's `commit`).
        """

    @abstractmethod
    def reader(self, handle: ShuffleHandle, partitions: range, maps: range | None = None) -> ShuffleReader:
        """Open a reader of `partitions`, out of `maps` (None: all of them).

        What the iterator may raise may come from here already.

        :raises InvalidArgument: a range has a step other than 1 or leaves the shuffle's bounds.
        """

    @abstractmethod
    def close(self) -> None:
        """Abort open writers, close open readers and masters. Idempotent."""


@runtime_checkable
class SupportsWriteBlock(Protocol):
    """A writer that takes many records at once, ready made."""

    def write_block(self, partition: int, payload: Buffer, records: int) -> None:
        """Append a block. In a shuffle of content `records` the payload is framed as `shuffle_api.records` says.

        :raises InvalidArgument: as `ShuffleWriter.write`, or records < 0.
        """


@runtime_checkable
class SupportsReadBlocks(Protocol):
    """A reader that hands out whole blocks, decompressed and checked."""

    def read_blocks(self) -> Iterator[tuple[int, MapAttempt, Buffer, int]]:
        """Yield `(partition, attempt, payload, records)`, instead of iterating; raises what iterating raises."""
