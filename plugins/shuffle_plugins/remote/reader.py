"""The reader of the `remote` plugin: one pull per worker, checked, decompressed, split into records.

On a worker's host the blocks are read from its files (`shuffle_transport.local_files`), output by output; the rest is
pulled.

A pull that breaks goes on where it was, at whichever worker has the output then: blocks of one output come in the same
order from each of them (docs/protocol.md, Pull), so that those which came already are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from shuffle_api.buffer import Buffer
from shuffle_api.errors import (
    BlockCorrupt,
    DeadlineExceeded,
    MapOutputLost,
    ServerUnreachable,
    ShuffleError,
    ShuttingDown,
    StreamBroken,
)
from shuffle_api.ids import MapAttempt
from shuffle_api.values import MapOutput, ShuffleSpec
from shuffle_plugins.remote.blocks_reader import BlocksReader
from shuffle_plugins.remote.cancellable_fetch import CancellableFetch
from shuffle_plugins.remote.connection import Connection, ProgressBackoff
from shuffle_plugins.remote.fetch_progress import FetchProgress
from shuffle_plugins.remote.locate import locate, locate_all
from shuffle_plugins.remote.locate_cache import Located
from shuffle_plugins.remote.options import RemoteOptions
from shuffle_plugins.remote.replica_selector import ReplicaSelector
from shuffle_plugins.remote.traffic import CountedPull
from shuffle_transport import messages
from shuffle_transport.codecs import get_codec
from shuffle_transport.flight_client import Pulled
from shuffle_transport.local_files import FetchStream, LocalFetch, OutputIndex, locate_blocks
from shuffle_transport.proto import flight_shuffle_pb2 as pb

NOTHING: Mapping[MapAttempt, Mapping[int, int]] = MappingProxyType({})
LITTLE_BYTES = 32 << 10  # of an output: a worker merges those of which pulls take less (docs/store.md)
CORRUPT_READS = 2  # a block that is wrong so often is wrong at the worker, not on the way


class RemoteReader(BlocksReader):
    """Partitions of a range of maps: exactly the blocks that the winning attempts wrote, or an error."""

    def __init__(
        self, spec: ShuffleSpec, partitions: range, maps: range, connection: Connection, options: RemoteOptions
    ) -> None:
        super().__init__(spec)
        self._partitions, self._connection, self._options = partitions, connection, options
        self._codec = get_codec(spec.codec)
        self._maps = maps
        self._pull_only: set[MapAttempt] = set()  # whose blocks were not read from their file as they should be

    def read_blocks(self) -> Iterator[tuple[int, MapAttempt, Buffer, int]]:
        """Whole blocks, decompressed: (partition, map output, payload, records)."""
        self._check_open()
        self._begin_reading(self._spec.id)
        yield from self.blocks_of(
            self._connection.retrying(lambda: locate_all(self._connection, self._spec, self._maps))
        )

    def located(self, maps: range) -> Located:
        """Which of `maps` have committed, and where that lies; which of them were lost since.

        :raises ShuffleError: as `read_blocks`.
        """
        return self._connection.retrying(lambda: locate(self._connection, self._spec, maps))

    def blocks_of(
        self, outputs: Sequence[MapOutput], after: Mapping[MapAttempt, Mapping[int, int]] = NOTHING
    ) -> Iterator[tuple[int, MapAttempt, Buffer, int]]:
        """As `read_blocks`, of exactly these outputs.

        :param after: by output and partition, how many blocks are not wanted: the first so many.
        :raises MapOutputLost: one of them is gone, though another attempt of its map may be there.
        """
        self._check_open()
        seen: Counter[tuple[MapAttempt, int]] = Counter()
        for block in self._read(ReplicaSelector(outputs)):
            self._check_open()
            if block.output in after:
                place = block.output, block.partition
                seen[place] += 1
                if seen[place] <= after[block.output].get(block.partition, 0):
                    continue
            yield (
                block.partition,
                block.output,
                self._codec.decompress(block.payload, block.raw_length),
                block.records,
            )

    def close(self) -> None:
        self._open = False

    def _read(self, replicas: ReplicaSelector) -> Iterator[Pulled]:
        """Blocks of these outputs, each once, whatever happens to workers and connections on the way."""
        whole = self._partitions == range(self._spec.partitions)
        backoff = self._connection.backoff()
        corrupt = 0
        while replicas.rest:
            worker = replicas.worker()
            if worker is None:  # known since a pull in which it was not the first
                raise replicas.why_nobody()
            asked = replicas.at(worker)
            progress = FetchProgress(asked, self._partitions, whole=whole, handed=replicas.handed)
            failure: ShuffleError | None = None
            try:
                for item in self._pull(worker, asked):
                    if isinstance(item, ShuffleError):
                        failure = item
                        break
                    if progress.accept(item.output, item.partition):
                        yield item
                else:
                    progress.finish()
            except (StreamBroken, ServerUnreachable, ShuttingDown, DeadlineExceeded) as error:
                failure = error
            except BlockCorrupt as error:
                corrupt += 1
                if error.output is None:  # not one block is wrong, but the stream
                    raise
                self._pull_only.add(error.output)
                failure = error if corrupt % CORRUPT_READS == 0 else None
            else:
                if failure is None:
                    replicas.advance(asked, len(asked), 0)
                    continue
            replicas.advance(asked, *progress.place)
            if failure is not None:
                self._go_on(replicas, worker, failure, backoff)

    def _go_on(self, replicas: ReplicaSelector, worker: str, failure: ShuffleError, backoff: ProgressBackoff) -> None:
        """After a failure of a pull: return when there is somebody to ask for the rest.

        Raises the failure when there is not, or nothing came any more for as long as the options say.
        """
        if isinstance(failure, StreamBroken | ServerUnreachable | ShuttingDown | DeadlineExceeded):
            replicas.failed(worker)
            if not replicas.tried():
                return
            if isinstance(failure, DeadlineExceeded) or not backoff.more(replicas.place):
                raise failure
            self._locate_again(replicas)
            return
        self._give_up(failure)
        if failure.output is None:
            raise failure
        replicas.unfit(failure.output, worker, failure)
        try:
            self._locate_again(replicas)
        except MapOutputLost:  # as the failure says, which says more
            raise failure from None

    def _locate_again(self, replicas: ReplicaSelector) -> None:
        """Where the rest lies now. A master that is away costs no reader anything: then it is where it was."""
        try:
            located = self._located([output.output for output in replicas.rest])
        except (ServerUnreachable, DeadlineExceeded, ShuttingDown):
            return
        replicas.draining = self._connection.workers.draining()
        replicas.update(self._spec.id, {output.output.map: output for output in located.outputs})

    def _pull(self, worker: str, asked: Sequence[MapOutput]) -> Iterator[Pulled | ShuffleError]:
        outputs = [output.output for output in asked]
        connection, traffic = self._connection, self._connection.traffic

        def pull(wanted: Sequence[MapAttempt]) -> FetchStream:
            return CountedPull(connection.data(worker).open_pull(self._ticket(wanted)), traffic)

        def start() -> FetchStream:
            by_file = self._by_file(asked)
            if by_file:
                ticket = self._ticket(by_file)
                client = connection.data(worker)
                blocks = locate_blocks(connection.local_files, worker, client, ticket, self._spec.partitions)
                if blocks is not None:
                    return LocalFetch(outputs, self._partitions, blocks, pull, progress)
            return pull(outputs)

        def progress(index: OutputIndex, count: int, size: int) -> None:
            traffic.located(size)
            if index.file is not None:  # the worker was not asked
                connection.read_metrics.add(worker, self._spec.id, count, size)

        def located() -> Sequence[MapOutput]:
            return self._located(outputs).outputs

        return iter(CancellableFetch(connection.events, self._spec.id, worker, outputs, start, located))

    def _ticket(self, outputs: Sequence[MapAttempt]) -> pb.GetTicket:
        return pb.GetTicket(
            shuffle=messages.key_of(self._spec.id),
            first_partition=self._partitions.start,
            end_partition=self._partitions.stop,
            maps=map(messages.attempt_of, outputs),
        )

    def _by_file(self, asked: Sequence[MapOutput]) -> list[MapAttempt]:
        """The outputs that are worth a look into their files: of many small ones the worker has better ones, merged."""
        if not self._connection.local_files.allowed:
            return []
        part = len(self._partitions) / self._spec.partitions
        least = min(LITTLE_BYTES, self._options.hand_over_from)
        return [o.output for o in asked if o.totals.bytes * part >= least and o.output not in self._pull_only]

    def _located(self, outputs: Sequence[MapAttempt]) -> Located:
        """Where these lie now, and others of their shuffle between them."""
        maps = [output.map for output in outputs]
        return locate(self._connection, self._spec, range(min(maps), max(maps) + 1), anew=True)

    def _give_up(self, error: ShuffleError) -> None:
        """Report data that cannot be read to the master, so that the next reader gets the loss before it tries."""
        if isinstance(error, MapOutputLost | BlockCorrupt) and error.output is not None:
            try:
                self._connection.control.call(
                    "ReportLost",
                    pb.ReportLostRequest(
                        shuffle=messages.key_of(self._spec.id),
                        outputs=[messages.attempt_of(error.output)],
                        reason=error.message,
                    ),
                )
            except ShuffleError:
                pass  # the reader's own error is the one to raise
