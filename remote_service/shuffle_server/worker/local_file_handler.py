"""Local files: what a client on the worker's host may do instead of pushing and pulling (docs/protocol.md).

A client that can read the nonce file sees the worker's files, and so is on its host: a file of the same path elsewhere
has another content, for the nonce is new with each start. Paths go to the client only; it names map outputs by numbers.

A reader has no lease. Before the file of a removed output is written over, it loses its name (Store.remove_shuffle);
so a reader whose path still names the same file after it has read knows that its bytes were not written over.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from shuffle_api.errors import (
    AttemptSuperseded,
    InvalidArgument,
    MapOutputLost,
    PermissionDenied,
    ShuffleError,
    StorageFailed,
)
from shuffle_api.ids import ShuffleId
from shuffle_api.values import MapOutput
from shuffle_server.observe.log_context import add_log_fields
from shuffle_server.store.compacted_run import CompactedRun
from shuffle_server.store.failures import UNREADABLE
from shuffle_server.store.format import INDEX_ROW
from shuffle_server.store.output_file import encoded
from shuffle_server.store.ranges import OutputRange
from shuffle_server.store.store import Store
from shuffle_server.worker.attempt_sink import attempt_sink, check_partitions
from shuffle_server.worker.worker import Worker
from shuffle_transport import messages
from shuffle_transport.blocks import MAX_SUM, parse_table
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import Principal

PREFIX = "hand-over."
NONCE_BYTES = 32
TOGETHER_BYTES = 256 << 10  # of an answer, about, in one message
MAX_SHUFFLES_READ = 10_000  # shuffles that a client may have read
MAX_BYTES_READ = 1 << 40  # of each, in the seconds since it said so last


class LocalFileHandler:
    """One worker's answers to the actions on local files. Thread-safe."""

    def __init__(self, worker: Worker, store: Store, nonce_file: Path) -> None:
        """Writes a new nonce to `nonce_file`. Raises StorageFailed."""
        self._worker, self._store, self._nonce_file = worker, store, nonce_file.absolute()
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        try:
            new = self._nonce_file.with_suffix(".new")
            new.unlink(missing_ok=True)
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(self._nonce)
            new.replace(self._nonce_file)
        except OSError as error:
            raise StorageFailed(f"{self._nonce_file}: {error.strerror}", remedy="check the disk") from error

    def act(self, kind: str, body: bytes, principal: Principal) -> Iterable[bytes]:
        """The results of one action. Raises a typed error when it is refused; those of `locate` are made one by one."""
        if kind == PREFIX + "probe":
            return [self._probe(messages.parse(pb.ProbeRequest, body), principal).SerializeToString()]
        if kind == PREFIX + "locate":
            wanted = messages.parse(pb.LocateBlocksRequest, body)
            self._check(wanted.nonce, wanted.ticket.shuffle, principal)
            located = self._locate(wanted.ticket, wanted.whole_below)
            return _together(located) if wanted.together else (each.SerializeToString() for each in located)
        if kind == PREFIX + "adopt":
            adoption = messages.parse(pb.AdoptRequest, body)
            self._check(adoption.nonce, adoption.command.shuffle, principal)
            return [self._finalize(adoption).SerializeToString()]
        if kind == PREFIX + "tell-reads":
            self._count_reads(messages.parse(pb.TellReadsRequest, body), principal)
            return []
        if kind not in (PREFIX + "lend", PREFIX + "drop"):
            raise InvalidArgument(
                f"action {kind!r}", remedy="the actions are hand-over.probe, lend, adopt, drop, locate, tell-reads"
            )
        request = messages.parse(pb.LendRequest, body)
        self._check(request.nonce, request.command.shuffle, principal)
        if kind == PREFIX + "lend":
            return [self._create(request).SerializeToString()]
        self._store.drop_attempt(
            self._worker.whole_id(request.command.shuffle), messages.map_attempt(request.command.output)
        )
        return []

    def _probe(self, request: pb.ProbeRequest, principal: Principal) -> pb.ProbeReply:
        messages.check_protocol(request.protocol, "the client")
        principal.check(request.app)
        return pb.ProbeReply(nonce_file=str(self._nonce_file))

    def _check(self, nonce: bytes, shuffle: pb.ShuffleKey, principal: Principal) -> None:
        principal.check(shuffle.app)
        add_log_fields(app=shuffle.app, shuffle=shuffle.shuffle)
        if not hmac.compare_digest(nonce, self._nonce):
            raise PermissionDenied(
                "this is not the nonce of this run of the worker",
                remedy="read the nonce file again, or push and pull",
            )

    # ------------------------------------------------------------------ write

    def _create(self, request: pb.LendRequest) -> pb.LendReply:
        command = request.command
        if command.first_block:
            raise InvalidArgument("a file for the rest of an attempt", remedy="a file holds a whole map output")
        if request.bytes > MAX_SUM:
            raise InvalidArgument(f"a file for {request.bytes} bytes", remedy="ask for what will be written")
        _check_no_copy(command)
        target = self._worker.open_attempt(command)
        if isinstance(target, MapOutput):
            return pb.LendReply(committed=messages.committed_message(target))
        create_file = target.extend_file if request.more else target.create_file
        return pb.LendReply(path=str(create_file(request.bytes)))

    def _finalize(self, request: pb.AdoptRequest) -> pb.Committed:
        rows = parse_table(request.table, MAX_SUM)
        if len(rows):
            check_partitions(rows, request.command.partitions)
        _check_no_copy(request.command)
        sink = attempt_sink(self._worker, request.command)
        try:
            sink.finalize(rows, request.end)
            return sink.commit()
        except AttemptSuperseded:
            raise  # the same was said again, and that one goes on with it
        except ShuffleError:
            sink.abort()
            raise

    # ------------------------------------------------------------------ read

    def path(self, nonce: bytes, shuffle: pb.ShuffleKey, committed: pb.Committed) -> str:
        """The file of an output that has been committed, empty for those who do not see this worker's files, or when it
        is not here."""
        if not hmac.compare_digest(nonce, self._nonce) or committed.worker != self._worker.info.id:
            return ""
        return self._store.path(self._worker.whole_id(shuffle), messages.map_attempt(committed.output)) or ""

    def _locate(self, ticket: pb.GetTicket, whole_below: int) -> Iterator[pb.LocatedBlocks]:
        spec, ranges = self._worker.requested(ticket)
        return (
            each
            for part in self._store.merged(spec.id, ranges)
            for each in self._located_part(spec.id, part, whole_below)
        )

    def _located_part(
        self, shuffle: ShuffleId, part: CompactedRun | OutputRange, whole_below: int
    ) -> Iterable[pb.LocatedBlocks]:
        if isinstance(part, CompactedRun):
            return self._located_run(shuffle, part, whole_below)
        return (self._located(shuffle, part, whole_below),)

    def _located_run(self, shuffle: ShuffleId, run: CompactedRun, whole_below: int) -> Iterator[pb.LocatedBlocks]:
        try:
            found = run.rows(ahead=self._store.compaction.reads_ahead)
        except UNREADABLE:
            for wanted in run.ranges:
                yield self._located(shuffle, wanted, whole_below)
            return
        self._worker.instruments.traffic.located(len(found.rows), int(found.rows["length"].sum()))
        index = memoryview(encoded(found.rows, INDEX_ROW.itemsize))
        ends = np.searchsorted(found.ranges, np.arange(len(run.ranges)), "right").tolist()
        at = 0
        for wanted, place, end in zip(run.ranges, run.places, ends, strict=True):
            own = index[at * INDEX_ROW.itemsize : end * INDEX_ROW.itemsize].tobytes()
            yield pb.LocatedBlocks(output=messages.attempt_of(wanted.output), path=place.file.path, index=own)
            at = end

    def _located(self, shuffle: ShuffleId, wanted: OutputRange, whole_below: int) -> pb.LocatedBlocks:
        output = messages.attempt_of(wanted.output)
        try:
            file, fd = self._store.open_output(shuffle, wanted.output)
        except MapOutputLost as error:
            error.worker = self._worker.info.id
            self._worker.lost(error)
            return pb.LocatedBlocks(output=output, error=messages.error_message(error))
        os.close(fd)
        whole = file.index.nbytes <= whole_below
        asked = file.entries(wanted.first, wanted.end)
        self._worker.instruments.traffic.located(len(asked), int(asked["length"].sum()))
        index = file.index if whole else asked
        return pb.LocatedBlocks(output=output, path=str(file.path), index=index.tobytes(), whole=whole)

    def _count_reads(self, request: pb.TellReadsRequest, principal: Principal) -> None:
        """Count what was read without asking, as if it had been asked for just now."""
        if len(request.reads) > MAX_SHUFFLES_READ or any(read.bytes > MAX_BYTES_READ for read in request.reads):
            raise InvalidArgument("more reads than there can be", remedy="tell what was read since you did so last")
        for read in request.reads:
            self._check(request.nonce, read.shuffle, principal)
        for read in request.reads:
            self._store.use(messages.shuffle_id(read.shuffle))
            self._worker.instruments.traffic.located(read.blocks, read.bytes)


def _together(located: Iterator[pb.LocatedBlocks]) -> Iterator[bytes]:
    """Several in a message: each takes longer to send than its content."""
    ranges: list[pb.LocatedBlocks] = []
    size = 0
    for each in located:
        ranges.append(each)
        size += each.ByteSize()
        if size >= TOGETHER_BYTES:
            yield pb.LocatedBlocks(ranges=ranges).SerializeToString()
            ranges, size = [], 0
    if ranges:
        yield pb.LocatedBlocks(ranges=ranges).SerializeToString()


def _check_no_copy(command: pb.PutCommand) -> None:
    """What is handed over is not read: a copy of what another worker holds would be taken unseen."""
    if command.copy:
        raise InvalidArgument("a copy of a map output, handed over", remedy="workers push copies; leave `copy` out")
