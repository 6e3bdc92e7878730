"""The reader of the `remote` plugin: one pull per worker, checked, decompressed, split into records."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from shuffle_api.buffer import Buffer
from shuffle_api.columnar.reading import batches_of
from shuffle_api.errors import (
    BlockCorrupt,
    InvalidArgument,
    MapOutputLost,
    ServerUnreachable,
    ShuffleError,
    StreamBroken,
)
from shuffle_api.ids import MapAttempt
from shuffle_api.interfaces import ShuffleReader
from shuffle_api.records import unpack_records
from shuffle_api.values import MapOutput, ShuffleSpec
from shuffle_plugins.remote.connection import Connection
from shuffle_plugins.remote.locate import locate_all
from shuffle_plugins.remote.served import Served
from shuffle_transport import messages
from shuffle_transport.codecs import get_codec
from shuffle_transport.flight_client import Pulled
from shuffle_transport.proto import flight_shuffle_pb2 as pb

MAPS_PER_PULL = 4096  # bounds a ticket to about 100 KB
CORRUPT_READS = 2  # a block that is wrong so often is wrong at the worker, not on the way


class RemoteReader(ShuffleReader):
    """Partitions of a range of maps. What is read is exactly what the winning attempts wrote, or an error."""

    def __init__(self, spec: ShuffleSpec, partitions: range, maps: range, connection: Connection) -> None:
        self._spec, self._partitions, self._connection = spec, partitions, connection
        self._codec = get_codec(spec.codec)
        self._maps = maps
        self._open = True

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        if self._spec.content != "records":
            raise InvalidArgument(
                f"a shuffle of content {self._spec.content!r} has no records",
                remedy="use read_batches() or read_blocks()",
                shuffle=self._spec.id,
            )
        for partition, output, payload, records in self.read_blocks():
            count = 0
            for record in unpack_records(payload):
                if not self._open:
                    raise InvalidArgument("the reader is closed", remedy="open a new one")
                count += 1
                yield partition, record
            if count != records:
                raise BlockCorrupt(
                    f"a block of partition {partition} says {records} records and holds {count}",
                    shuffle=self._spec.id,
                    output=output,
                )

    def read_blocks(self) -> Iterator[tuple[int, MapAttempt, Buffer, int]]:
        """Whole blocks, decompressed: (partition, map output, payload, records)."""
        if not self._open:
            raise InvalidArgument("the reader is closed", remedy="open a new one")
        outputs = self._connection.retrying(lambda: locate_all(self._connection, self._spec, self._maps))
        by_worker: dict[str, list[MapOutput]] = {}
        for output in outputs:
            by_worker.setdefault(output.worker, []).append(output)
        for worker, held in by_worker.items():
            for at in range(0, len(held), MAPS_PER_PULL):
                for block in self._pull(worker, held[at : at + MAPS_PER_PULL]):
                    if not self._open:
                        raise InvalidArgument("the reader is closed", remedy="open a new one")
                    yield (
                        block.partition,
                        block.output,
                        self._codec.decompress(block.payload, block.raw_length),
                        block.records,
                    )

    def read_batches(self) -> Iterator[tuple[int, Any]]:
        """See `shuffle_api.columnar.SupportsReadBatches`."""
        return batches_of(self, self._spec)

    def close(self) -> None:
        self._open = False

    def _pull(self, worker: str, outputs: list[MapOutput]) -> Iterator[Pulled]:
        """Blocks of these outputs, each once, whatever happens to the connection on the way."""
        whole = self._partitions == range(self._spec.partitions)
        served = Served(outputs, self._partitions, whole=whole)
        patience = self._connection.patience()
        corrupt = 0
        while True:
            stream = self._connection.retrying(partial(self._start, worker, served.rest))
            served.reconnect()
            try:
                for item in stream:
                    if isinstance(item, ShuffleError):
                        self._give_up(item)
                        raise item
                    if served.accept(item.output, item.partition):
                        yield item
                served.finish()
                return
            except (StreamBroken, ServerUnreachable):
                if not patience.more(served.place):  # a worker may come up again and again and never get anywhere
                    raise
            except BlockCorrupt as error:
                corrupt += 1
                if corrupt >= CORRUPT_READS or error.output is None:  # None: not one block is wrong, but the stream
                    self._give_up(error)
                    raise

    def _start(self, worker: str, outputs: list[MapAttempt]) -> Iterator[Pulled | ShuffleError]:
        ticket = pb.GetTicket(
            shuffle=messages.key_of(self._spec.id),
            first_partition=self._partitions.start,
            end_partition=self._partitions.stop,
            maps=map(messages.attempt_of, outputs),
        )
        return _primed(self._connection.data(worker).pull(ticket))

    def _give_up(self, error: ShuffleError) -> None:
        """Tell the master about data that cannot be read, so that the next reader is told before it tries."""
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


def _primed(stream: Iterator[Pulled | ShuffleError]) -> Iterator[Pulled | ShuffleError]:
    """The same stream with its first item fetched: a worker that cannot be reached shows here, where it is retried."""
    first = next(stream, None)

    def items() -> Iterator[Pulled | ShuffleError]:
        if first is not None:
            yield first
        yield from stream

    return items()
