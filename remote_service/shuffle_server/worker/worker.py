"""The worker: decides what a push or a pull may do, between the store, the registry and the memory budget."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Iterator, Sequence

import pyarrow as pa

from shuffle_api.errors import (
    AppExpired,
    AttemptSuperseded,
    CommitMismatch,
    InvalidArgument,
    MapOutputLost,
    MapOutputNotWritten,
    ShuffleError,
    ShuttingDown,
    StorageFailed,
    UnknownApp,
    UnknownShuffle,
)
from shuffle_api.ids import MapAttempt, ShuffleId, name_of
from shuffle_api.values import MapOutput, ShuffleSpec, WorkerInfo
from shuffle_server.observe.instruments import Instruments
from shuffle_server.observe.log_context import fields_of_error, log_context
from shuffle_server.observe.worker_state import Relayed, worker_status
from shuffle_server.store.attempt_writer import AttemptWriter
from shuffle_server.store.failures import in_doubt
from shuffle_server.store.format import Description
from shuffle_server.store.partition_sizes import PartitionSizes, partition_sizes
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.scrub import Checked, Pace, check_all, check_one
from shuffle_server.store.store import Store
from shuffle_server.worker.fetch_handler import serve
from shuffle_server.worker.inline_fetch import fetch_inline
from shuffle_server.worker.pull_room import PullRoom
from shuffle_server.worker.registry_view import RegistryView
from shuffle_server.worker.replication import Replication
from shuffle_transport import messages
from shuffle_transport.blocks import CODEC_KEY, GET_SCHEMA
from shuffle_transport.pool import BufferPool
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

MAX_RANGES = 1 << 18  # map outputs or ranges that one ticket may name
DELETION_SECONDS = 10.0  # for which a refusal waits for the file of what is refused to be deleted
READ_SECONDS = 60.0  # for which a read of this process itself waits for memory

REFUSALS = (
    AppExpired,
    AttemptSuperseded,
    CommitMismatch,
    InvalidArgument,
    MapOutputLost,
    StorageFailed,
    UnknownApp,
    UnknownShuffle,
)
"""What a master answers to a commit that has not been recorded and will not be. After any other error it may have been:
the answer was lost, or the master does not know whether its journal has it (DeadlineExceeded)."""


class Worker:
    """One worker's rules. Thread-safe; every method may raise a ShuffleError, with this worker's name in it."""

    def __init__(
        self,
        info: WorkerInfo,
        store: Store,
        registry_view: RegistryView,
        pool: BufferPool,
        instruments: Instruments,
        replication: Replication | None = None,
    ) -> None:
        """`replication`: for shuffles with several replicas; None: there are none."""
        self.info, self.pool, self.instruments = info, pool, instruments
        self._store, self._registry, self._replication = store, registry_view, replication
        self.relayed: Relayed = lambda: None
        self.stopping = False
        self.draining = False  # what is being written is taken to its end, nothing new is begun

    # ------------------------------------------------------------------ push

    def admit(self, command: pb.PutCommand) -> tuple[ShuffleSpec, MapOutput | None]:
        """The shuffle that a push is for, if the command fits it, and the output that has won its map.

        Raises ProtocolMismatch, InvalidArgument, UnknownApp, AppExpired, UnknownShuffle, ShuttingDown.
        """
        if self.stopping:
            raise ShuttingDown(f"worker {self.info.id} is stopping", remedy="retry; it or another worker will be back")
        messages.check_protocol(command.protocol, "the sender")
        shuffle, output = messages.shuffle_id(command.shuffle), messages.map_attempt(command.output)
        spec, winner = self._registry.opening(shuffle, output.map)
        if command.partitions != spec.partitions:
            raise InvalidArgument(
                f"the sender writes {command.partitions} partitions, the shuffle has {spec.partitions}",
                remedy="use the shuffle's handle",
                shuffle=spec.id,
            )
        if command.codec != spec.codec.partition(":")[0]:
            raise InvalidArgument(
                f"the sender compresses with {command.codec!r}, the shuffle with {spec.codec!r}",
                remedy="use the shuffle's handle",
                shuffle=spec.id,
            )
        return spec, winner

    def open_attempt(self, command: pb.PutCommand) -> AttemptWriter | MapOutput:
        """What a push stream writes to; the winner when its map has been committed already.

        Raises ProtocolMismatch, InvalidArgument, UnknownApp, AppExpired, UnknownShuffle, StorageFailed, ShuttingDown.
        """
        spec, winner = self.admit(command)
        shuffle, output = spec.id, messages.map_attempt(command.output)
        if spec.content != "spark":
            spec.check_map(output.map)
        if command.copy and (winner is None or winner.output != output):
            raise MapOutputLost(
                f"a copy of {output}, which is not the committed attempt", shuffle=shuffle, output=output
            )
        if winner is not None and not self._takes_copy(spec, command, winner):
            # A copy push must not wait for other copies: two that wait for each other would deadlock.
            enough = command.copy or self._replicate(spec, winner)
            if enough:
                return winner
        if self.draining and not self._store.has_attempt(shuffle, output):
            raise ShuttingDown(f"worker {self.info.id} is about to leave", remedy="ask Place for another worker")
        self._store.add_shuffle(shuffle)
        writer = self._store.stage(spec, output, command.codec)
        try:
            self._registry.spec(shuffle)
        except (UnknownShuffle, UnknownApp, AppExpired):
            self._store.remove_shuffle(shuffle)  # it was unregistered before `add_shuffle`, which brought it back
            raise
        if command.first_block > writer.totals.blocks:
            raise MapOutputLost(
                f"the sender goes on at block {command.first_block}, the worker holds {writer.totals.blocks}:"
                " it was restarted meanwhile",
                remedy="write this map again as a new attempt",
                shuffle=shuffle,
                output=output,
            )
        return writer

    def _takes_copy(self, spec: ShuffleSpec, command: pb.PutCommand, winner: MapOutput) -> bool:
        """Whether this worker is to hold a copy of the winner: from another worker, or from a sender that lost its
        connection to the worker that committed the output before it could be copied."""
        if winner.output != messages.map_attempt(command.output) or self.info.id in winner.workers:
            return False
        return command.copy or len(winner.workers) < spec.replicas

    def _replicate(self, spec: ShuffleSpec, winner: MapOutput, *, was_asked: bool = False) -> bool:
        """Return when the winner of a map may be named to who wrote it: there are as many copies as there can be.

        False when it does not stand any more: it was lost.
        Raises MapOutputLost, UnknownShuffle, UnknownApp, AppExpired.
        """
        if spec.replicas == 1 or self._replication is None:
            return True
        try:
            return self._replication.ensure(spec, winner, was_asked=was_asked)
        except MapOutputLost as error:
            self.give_up(spec.id, winner.output, error.message)
            raise

    def replicate(self, shuffle: ShuffleId, output: MapAttempt) -> None:
        """See to it that an output that is held here has its copies, if it stands: another worker asks for that.

        Raises as `Replication.ensure`.
        """
        winner = self._registry.winner(shuffle, output.map)
        if winner is not None and winner.output == output:
            self._replicate(self._registry.spec(shuffle), winner, was_asked=True)

    def commit(self, writer: AttemptWriter, fencing_token: int, *, copy: bool = False) -> MapOutput:
        """Make the attempt visible; the output that won its map."""
        started = time.monotonic()
        winner = self._commit(writer, fencing_token)
        self.instruments.commit_seconds.observe(time.monotonic() - started)
        if not copy:
            self.instruments.committed("won" if winner.output == writer.output else "superseded")
            if not self._replicate(self._registry.spec(writer.shuffle), winner):
                raise MapOutputLost(
                    f"{winner.output} was lost when it was committed",
                    remedy="write this map again as a new attempt",
                    shuffle=writer.shuffle,
                    output=winner.output,
                )
        return winner

    def _commit(self, writer: AttemptWriter, fencing_token: int) -> MapOutput:
        try:
            description = self._store.publish(writer, fencing_token)
        except AttemptSuperseded:
            held = self._store.catalog.find(writer.shuffle, writer.output.map)
            if held is None or held.output != writer.output:
                raise
            description = None  # the same commit, said twice: the other one has published it
        if description is None:
            winner = self._registry.winner(writer.shuffle, writer.output.map)
            if winner is not None and not self._unrecorded(writer, winner):
                return winner
            # What is held here is about to be recorded, or its loss was told after it came back; to record it twice is
            # a no-op.
            description = self._describe_held(writer)
        held_output = description.output
        output = MapOutput(held_output, self.info.id, description.totals)
        try:
            winner = self._registry.commit(writer.shuffle, output)
        except ShuffleError as error:
            # A refused output must not be there after a restart. One that may have been recorded stays: the next commit
            # of this map finds out. So does another attempt's, whose failure says nothing save that it is lost.
            if isinstance(error, REFUSALS if held_output == writer.output else MapOutputLost) and not self.give_up(
                writer.shuffle, held_output, "its commit was refused", DELETION_SECONDS
            ):
                raise in_doubt(str(held_output), error.message, writer.shuffle, held_output) from error
            raise
        if winner == output and not self._store.catalog.holds(writer.shuffle, output.output):
            # Recorded, but dropped at the same time: this worker had been given up, or the file was found bad.
            self._registry.lose(writer.shuffle, output.output, "it was dropped when it was committed")
            raise MapOutputLost(
                f"map {output.output.map} attempt {output.output.attempt} was dropped when it was committed",
                remedy="write this map again as a new attempt",
                shuffle=writer.shuffle,
                output=output.output,
            )
        if winner.output != held_output:  # at another worker, which this one's files know nothing of
            self._store.remove_output(writer.shuffle, held_output)
        log.debug(
            "committed map %d attempt %d of %s: %d bytes",
            winner.output.map,
            winner.output.attempt,
            writer.shuffle,
            winner.totals.bytes,
        )
        return winner

    def _unrecorded(self, writer: AttemptWriter, winner: MapOutput) -> bool:
        """Whether this worker has the winner's blocks, and the registry does not know that."""
        held = self._store.catalog.find(writer.shuffle, writer.output.map)
        return held is not None and held.output == winner.output and self.info.id not in winner.workers

    def _describe_held(self, writer: AttemptWriter) -> Description:
        """What is held of a map, whose file another attempt has published. Raises MapOutputLost, Overloaded."""
        held = self._store.catalog.find(writer.shuffle, writer.output.map)
        try:
            return self._store.describe(writer.shuffle, writer.output.map)
        except MapOutputLost as error:
            if held is not None:  # else the next attempt would be told of it, too
                self.give_up(writer.shuffle, held.output, error.message)
            raise

    def abort(self, writer: AttemptWriter) -> None:
        self._store.drop_attempt(writer.shuffle, writer.output)

    # ------------------------------------------------------------------ pull

    def get(
        self, ticket: pb.GetTicket, room: PullRoom | None = None
    ) -> tuple[pa.Schema, Generator[tuple[pa.RecordBatch, bytes], None, None]]:
        """Schema and messages of a pull. Raises UnknownApp, AppExpired, UnknownShuffle, InvalidArgument, ..."""
        spec, ranges = self.requested(ticket)
        schema = GET_SCHEMA.with_metadata({CODEC_KEY: spec.codec.partition(":")[0].encode()})
        served = self.instruments.traffic.pulled
        return schema, serve(
            self._store, self.info.id, schema, spec.id, ranges, served, self.lost, room or self._room(spec)
        )

    def get_whole(self, ticket: pb.GetTicket, room: PullRoom | None = None) -> bytes:
        """The encoded WholeGet that answers a small pull. `room` has its memory until it is closed. Raises as `get`."""
        spec, ranges = self.requested(ticket)
        if room is not None:
            return fetch_inline(self._store, spec.id, ranges, self.instruments.traffic.pulled, room)
        with self._room(spec) as own:
            return fetch_inline(self._store, spec.id, ranges, self.instruments.traffic.pulled, own)

    def _room(self, spec: ShuffleSpec) -> PullRoom:
        """For a pull of this process itself."""
        return PullRoom(self.pool, READ_SECONDS, name_of(spec.id.app), lambda: None)

    def requested(self, ticket: pb.GetTicket) -> tuple[ShuffleSpec, Sequence[OutputRange]]:
        """What a ticket asks for.

        Raises UnknownApp, AppExpired, UnknownShuffle, InvalidArgument, MapOutputNotWritten.
        """
        spec = self._registry.spec(messages.shuffle_id(ticket.shuffle))
        return spec, self._ranges(spec, ticket)

    def _ranges(self, spec: ShuffleSpec, ticket: pb.GetTicket) -> Sequence[OutputRange]:
        if max(len(ticket.ranges), len(ticket.maps)) > MAX_RANGES:
            raise InvalidArgument(
                f"a ticket with {max(len(ticket.ranges), len(ticket.maps))} ranges",
                remedy=f"ask for at most {MAX_RANGES} at a time",
                shuffle=spec.id,
            )
        if ticket.ranges:
            ranges = [OutputRange(messages.map_attempt(r), r.first_partition, r.end_partition) for r in ticket.ranges]
        else:
            outputs = [messages.map_attempt(m) for m in ticket.maps] or self._all(spec)
            ranges = [OutputRange(output, ticket.first_partition, ticket.end_partition) for output in outputs]
        partitions = spec.partitions
        for _, first, end in ranges:
            if not 0 <= first <= end <= partitions:
                raise InvalidArgument(
                    f"partitions [{first}, {end}) of a shuffle with {partitions}",
                    remedy="ask for partitions that exist",
                    shuffle=spec.id,
                )
        return ranges

    def _all(self, spec: ShuffleSpec) -> list[MapAttempt]:
        """Every map's winner. A ticket that names no maps reads the whole shuffle, so all of it must be there."""
        outputs = [o.output for o in self._registry.outputs(spec.id)]
        if len(outputs) < spec.maps:
            raise MapOutputNotWritten(
                f"{len(outputs)} of {spec.maps} maps are committed",
                remedy="wait for the others, or name the maps in the ticket",
                shuffle=spec.id,
            )
        return outputs

    def lost(self, error: MapOutputLost) -> None:
        """Somebody asked for an output and it is gone: the registry is to know, and another attempt takes its place."""
        self.instruments.refused("data", error)
        if error.shuffle is not None and error.output is not None:
            with log_context(**fields_of_error(error)):
                self.give_up(error.shuffle, error.output, error.message)

    # ------------------------------------------------------------------ for the master and for people

    def free_bytes(self) -> int:
        return self._store.free_bytes()

    def status(self) -> pb.WorkerStatus:
        """What it holds and does at this moment."""
        traffic, relay = self.instruments.traffic.totals(), self.relayed()
        return worker_status(self.info.id, self.pool.statistics(), self._store.statistics(), traffic, relay)

    def partition_sizes(self, shuffle: ShuffleId, outputs: Sequence[MapAttempt], partitions: int) -> PartitionSizes:
        return partition_sizes(self._store, shuffle, outputs, partitions)

    def verify(self, shuffle: ShuffleId, output: MapAttempt) -> str | None:
        """Why this output cannot be served, None when every block of it can; a bad one is set aside for good."""
        wrong = check_one(self._store, shuffle, output)
        if wrong:
            self._store.remove_output(shuffle, output)
        return wrong or None

    def check_all(self, app: str | None, pace: Pace) -> Iterator[Checked]:
        """Read every committed output, of one application or of all."""
        return check_all(self._store, app, pace)

    def give_up(self, shuffle: ShuffleId, output: MapAttempt, reason: str, within: float = 0.0) -> bool:
        """A committed output cannot be served: nobody is sent to it any more, and its file goes.

        Whether it is gone `within` so many seconds.
        """
        self._registry.lose(shuffle, output, reason)
        return self._store.remove_output(shuffle, output, within)

    def drop_released(self, shuffle: ShuffleId, output: MapAttempt) -> None:
        """Delete an output that the registry knows to be at other workers only."""
        self._store.remove_output(shuffle, output)

    def held(self, shuffle: ShuffleId) -> list[tuple[ShuffleSpec, MapOutput]]:
        """The outputs of a shuffle that are here; none when it is over, whose files go by themselves."""
        try:
            spec, outputs = self.spec(shuffle), self.outputs(shuffle)
        except (UnknownShuffle, UnknownApp, AppExpired):
            return []
        return [(spec, output) for output in outputs if self.info.id in output.workers]

    def shuffles(self) -> list[ShuffleId]:
        return self._registry.shuffles()

    def opening(self, shuffle: ShuffleId) -> ShuffleSpec:
        """As `spec`; the master notifies this worker when the shuffle is over, though it has no files of it."""
        spec = self._registry.opening(shuffle, 0)[0]
        self._store.add_shuffle(spec.id)
        return spec

    def whole_id(self, key: pb.ShuffleKey) -> ShuffleId:
        """The id of the shuffle that a request names, with the generation that version 1 leaves out."""
        shuffle = messages.shuffle_id(key)
        return shuffle if shuffle.generation else self.spec(shuffle).id

    def spec(self, shuffle: ShuffleId) -> ShuffleSpec:
        return self._registry.spec(shuffle)

    def outputs(self, shuffle: ShuffleId) -> list[MapOutput]:
        return self._registry.outputs(shuffle)
