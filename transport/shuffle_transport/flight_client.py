"""The Flight client of one worker: pushing the blocks of an attempt, pulling blocks.

Every call has a deadline, which gRPC enforces on both ends: a peer that is stopped, stuck or cut off ends the call
with an error, and the connection's other calls go on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from shuffle_api.errors import (
    BlockCorrupt,
    CommitMismatch,
    DeadlineExceeded,
    ProtocolMismatch,
    ShuffleError,
    StreamBroken,
)
from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.values import Totals
from shuffle_transport import messages
from shuffle_transport.blocks import (
    BATCH_BYTES,
    GET_SCHEMA,
    PUT_SCHEMA,
    Block,
    BlockBatch,
    add_rows,
    back_to_back,
    parse_batch,
    put_batch,
    table_rows,
)
from shuffle_transport.checksum import crc32c
from shuffle_transport.connect import flight_connection, flight_options, not_connected, use_grpc
from shuffle_transport.credits import SendWindow
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import NO_CREDENTIALS, Credentials, TlsFiles

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PushTarget:
    """Which attempt a push writes, and how; a `copy` is of one that is committed at the worker that pushes it."""

    shuffle: ShuffleId
    output: MapAttempt
    partitions: int
    codec: str
    copy: bool = False


@dataclass(frozen=True, slots=True)
class Pulled:
    """One verified block of a pull; `payload` is a view into the batch, compressed unless its length is raw_length."""

    output: MapAttempt
    partition: int
    raw_length: int
    records: int
    payload: memoryview


class FlightClient:
    """One connection to one worker's data endpoint. Thread-safe: calls share the connection.

    :param timeout: seconds that one push or pull may take in all.
    :param credentials: who calls, and how TLS is spoken.
    """

    def __init__(self, address: str, *, timeout: float = 120.0, credentials: Credentials = NO_CREDENTIALS) -> None:
        self.address = address
        self._timeout, self._credentials = timeout, credentials
        self._client = flight_connection(address, credentials.tls)

    def push(
        self, target: PushTarget, blocks: Sequence[Block], *, first_block: int, end: Totals, commit: bool
    ) -> pb.PutReply:
        """Push `blocks`, which are the attempt's blocks from number `first_block` on, and what they add up to.

        `end` is the totals of all the attempt's blocks so far; with `commit` the attempt is complete. Returns the
        worker's last reply: all blocks are held, and with `commit` it names the winner. Raises the typed error that
        the worker sent, or ServerUnreachable, DeadlineExceeded, StreamBroken when the outcome is unknown: push the
        same again.
        """
        command = put_command(target, first_block)
        last = pb.PutControl(end=messages.totals_message(end), commit=commit)
        return self._put(command, blocks, last)

    def abort(self, target: PushTarget) -> None:
        """Have the worker drop the attempt. Raises what `push` raises."""
        self._put(put_command(target), (), pb.PutControl(abort=True))

    def _put(self, command: pb.PutCommand, blocks: Sequence[Block], last: pb.PutControl) -> pb.PutReply:
        with _Translated(self.address, self._credentials.tls):
            writer, replies = self._client.do_put(
                fl.FlightDescriptor.for_command(command.SerializeToString()),
                PUT_SCHEMA,
                flight_options(self._credentials, self._timeout),
            )
            try:
                reply = self._send(writer, replies, command, blocks, last)
            except _NoAnswer:
                writer.close()  # raises what ended the call: its deadline, a lost connection
                raise StreamBroken(f"{self.address} ended the push without an answer") from None
            except BaseException:
                _close_quietly(writer)
                raise
            writer.close()
            return reply

    def _send(
        self, writer: Any, replies: Any, command: pb.PutCommand, blocks: Sequence[Block], last: pb.PutControl
    ) -> pb.PutReply:
        window = SendWindow()
        try:
            for batch in _batches(blocks):
                size = sum(block.length for block in batch)
                while (after := window.try_send(size)) is None:
                    window = window.granted_to(_reply(replies).granted)
                window = after
                payload = back_to_back([piece for block in batch for piece in block.pieces])
                writer.write(put_batch(table_rows(batch), payload))
            writer.write_metadata(last.SerializeToString())
            writer.done_writing()
        except (pa.ArrowException, OSError) as error:
            # The worker may have said why before it stopped listening; that says more than "broken pipe".
            _raise_last_error(replies)
            raise error
        while True:
            reply = _reply(replies)
            if reply.HasField("committed"):
                check_committed(reply.committed, command, last.end if last.commit else None)
            if reply.HasField("committed") or (not last.commit and reply.blocks_held >= last.end.blocks):
                return reply

    def pull(self, ticket: pb.GetTicket) -> Iterator[Pulled | ShuffleError]:
        """The blocks a ticket names, checked one by one, in the order of the ticket.

        A typed error is yielded in the place of a map output that the worker cannot serve (its `output` says which);
        the others follow. Raises BlockCorrupt when a block differs from its checksum, or, without `output`, when the
        stream served something else than it says at its end (which of the blocks before is wrong nobody knows),
        StreamBroken when it stops before its end message, and what the worker sent for the call as a whole.
        """
        stream = self.open_pull(ticket)
        try:
            yield from stream
        finally:
            stream.cancel()

    def open_pull(self, ticket: pb.GetTicket) -> PullStream:
        """The same pull, begun: the worker has answered, and another thread may cancel it. Raises as `pull` does."""
        with _Translated(self.address, self._credentials.tls):
            reader = self._client.do_get(
                fl.Ticket(ticket.SerializeToString()), flight_options(self._credentials, self._timeout)
            )
            return PullStream(reader, self.address, self._credentials.tls)

    def scrub(self, request: pb.ScrubRequest) -> Iterator[pb.ScrubProgress]:
        """Have the worker read what it holds; how far it is, the last message `done`. Raises as `pull` does."""
        with _Translated(self.address, self._credentials.tls):
            action = fl.Action("scrub", request.SerializeToString())
            for result in self._client.do_action(action, flight_options(self._credentials, self._timeout)):
                progress = messages.parse(pb.ScrubProgress, result.body.to_pybytes())
                yield progress
                if progress.done:
                    return
        raise StreamBroken(f"the scrub at {self.address} stopped before its last message")

    def act(self, action: str, body: bytes) -> bytes:
        """The answer to a Flight action. Raises the typed error that the worker sent, ServerUnreachable,
        DeadlineExceeded, StreamBroken."""
        results = self.acts(action, body)
        if len(results) != 1:
            raise ProtocolMismatch(f"{self.address} answered action {action} with {len(results)} results")
        return results[0]

    def acts(self, action: str, body: bytes, timeout: float | None = None) -> list[bytes]:
        """All results of a Flight action, in at most `timeout` seconds (None: the client's). Raises as `act`."""
        with _Translated(self.address, self._credentials.tls):
            options = flight_options(self._credentials, min(timeout or self._timeout, self._timeout))
            return [result.body.to_pybytes() for result in self._client.do_action(fl.Action(action, body), options)]

    def close(self) -> None:
        """Close the connection; idempotent. Calls that are under way are ended first, by their callers."""
        self._client.close()


class PullStream:
    """The items of one pull, once; see `FlightClient.pull`."""

    def __init__(self, reader: Any, address: str, tls: TlsFiles | None) -> None:
        self._reader, self._address, self._tls = reader, address, tls

    def __iter__(self) -> Iterator[Pulled | ShuffleError]:
        with _Translated(self._address, self._tls):
            yield from self._received()

    def cancel(self) -> None:
        """End it, from any thread: the iterator raises StreamBroken. Idempotent; nothing to one that has ended."""
        self._reader.cancel()

    def _received(self) -> Iterator[Pulled | ShuffleError]:
        if not self._reader.schema.equals(GET_SCHEMA, check_metadata=False):
            raise ProtocolMismatch(f"{self._address} serves other columns than block batches have")
        totals = Totals()
        while True:
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                raise StreamBroken(
                    f"the pull from {self._address} stopped after {totals.blocks} blocks without its end message"
                ) from None
            if chunk.data is not None and chunk.data.num_rows:
                batch = parse_batch(chunk.data, GET_SCHEMA)
                totals = add_rows(totals, batch.rows)
                yield from _verified(batch)
            if chunk.app_metadata is not None and chunk.app_metadata.size:
                control = messages.parse(pb.GetControl, chunk.app_metadata.to_pybytes())
                if control.HasField("error"):
                    yield messages.typed_error(control.error)
                if control.HasField("end"):
                    if messages.totals(control.end) != totals:
                        raise BlockCorrupt(
                            f"{self._address} says it served {messages.totals(control.end)}, received were {totals}",
                            remedy="drop what was made of this pull, and read all of it again",
                        )
                    return


def _batches(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Blocks in runs of about BATCH_BYTES; a larger block is alone."""
    run: list[Block] = []
    size = 0
    for block in blocks:
        if run and size + block.length > BATCH_BYTES:
            yield run
            run, size = [], 0
        run.append(block)
        size += block.length
    if run:
        yield run


def _verified(batch: BlockBatch) -> Iterator[Pulled]:
    fields = zip(batch.outputs, batch.rows.tolist(), batch.payloads(), strict=True)
    for output, (partition, checksum, _, raw_length, records), payload in fields:
        if crc32c(payload) != checksum:
            raise BlockCorrupt(
                f"a block of partition {partition} ({len(payload)} bytes) does not match its checksum {checksum:#010x}",
                remedy="read again; if it stays, report the output as lost and run the map again",
                output=output,
            )
        yield Pulled(output, partition, raw_length, records, payload)


def _reply(replies: Any) -> pb.PutReply:
    """The next reply of the worker. Raises the error it carries, or _NoAnswer at the end of the stream."""
    data = replies.read()
    if data is None:
        raise _NoAnswer
    reply = messages.parse(pb.PutReply, data.to_pybytes())
    if reply.HasField("error"):
        raise messages.typed_error(reply.error)
    return reply


def put_command(target: PushTarget, first_block: int = 0) -> pb.PutCommand:
    """The message that begins a push, or names an attempt in an action."""
    return pb.PutCommand(
        protocol=messages.version_for(target.shuffle),
        shuffle=messages.key_of(target.shuffle),
        output=messages.attempt_of(target.output),
        partitions=target.partitions,
        codec=target.codec,
        first_block=first_block,
        copy=target.copy,
    )


def check_committed(committed: pb.Committed, command: pb.PutCommand, end: pb.Totals | None) -> None:
    """Raises ProtocolMismatch unless this can be the answer to the commit of `end` (None: nothing was to be committed),
    CommitMismatch if it had other blocks."""
    if end is None or committed.output.map != command.output.map:
        raise ProtocolMismatch(
            f"the answer to a push of map {command.output.map} speaks of a commit of map {committed.output.map}"
        )
    if committed.output == command.output and committed.totals != end:
        raise CommitMismatch(
            f"committed are {messages.totals(committed.totals)}, this sender states {messages.totals(end)}",
            output=messages.map_attempt(command.output),
        )


def _raise_last_error(replies: Any) -> None:
    while (data := replies.read()) is not None:
        reply = messages.parse(pb.PutReply, data.to_pybytes())
        if reply.HasField("error"):
            raise messages.typed_error(reply.error)


def _close_quietly(writer: Any) -> None:
    try:
        writer.close()
    except (pa.ArrowException, OSError) as error:
        log.debug("closing a failed push: %s", error)


class _NoAnswer(Exception):
    """The replies ended; Arrow says why when the stream is closed, not here."""


class _Translated:
    """Turns Flight's and Arrow's errors into typed ones, at this one edge."""

    def __init__(self, address: str, tls: TlsFiles | None) -> None:
        self._address, self._tls = address, tls

    def __enter__(self) -> None:
        use_grpc()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ShuffleError) or not isinstance(error, pa.ArrowException | OSError):
            return
        extra = getattr(error, "extra_info", b"")
        if extra:
            raise messages.typed_error(messages.parse(pb.Error, extra)) from None
        text = str(error).partition(". gRPC client debug context")[0]
        if isinstance(error, fl.FlightTimedOutError):
            raise DeadlineExceeded(
                f"{self._address}: {text}", remedy="see whether the worker is stuck, or raise the timeout"
            ) from error
        if isinstance(error, fl.FlightUnavailableError):
            raise not_connected(self._address, text, self._tls) from error
        raise StreamBroken(f"the stream to {self._address} broke: {text}") from error
