"""The way of one attempt's finished blocks to a worker: a file that it creates, on its host; else the wire."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from shuffle_api.errors import (
    AppExpired,
    CommitMismatch,
    DeadlineExceeded,
    InvalidArgument,
    QuotaExceeded,
    ServerUnreachable,
    ShuffleError,
    ShuttingDown,
    StorageFailed,
    StorageFull,
    StreamBroken,
    UnknownApp,
    UnknownShuffle,
)
from shuffle_api.periodic import StreamThread
from shuffle_api.values import MapOutput, Totals
from shuffle_plugins.remote.connection import Connection
from shuffle_plugins.remote.options import RemoteOptions
from shuffle_plugins.remote.traffic import RemoteStatistics
from shuffle_transport import messages
from shuffle_transport.blocks import Block, add_rows, table_rows
from shuffle_transport.flight_client import PushTarget
from shuffle_transport.local_files import LocalFileWriter
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

FILE_BYTES = 256 << 10  # blocks that are worth a write
UNDER_WAY = 2  # pushes that share the memory of finished blocks: one is sent while the next one gathers

# The wire would be told the same.
_FINAL = (StorageFull, QuotaExceeded, UnknownShuffle, UnknownApp, AppExpired)

_REFUSED = (StorageFull, StorageFailed, QuotaExceeded, CommitMismatch)
"""Of a commit: it has not taken effect, and will not."""

_UNANSWERED = (ServerUnreachable, ShuttingDown, StreamBroken, DeadlineExceeded)
"""Of a commit: it may have taken effect, or may do so yet."""


class DataPusher:
    """Blocks of one attempt, in the order in which they are sent. For one thread.

    The pusher asks for a file once, before it sends anything. If the file fails later, all of it is read back and
    pushed: the bytes written are not lost with the worker that created it. The attempt fails when there is no room,
    when its shuffle or application is gone, and when the commit misses its deadline.

    Over the wire one push is under way, in a thread of its own, while the next blocks are made.
    """

    def __init__(self, target: PushTarget, connection: Connection, options: RemoteOptions) -> None:
        self._target, self._connection, self._options = target, connection, options
        self._file: LocalFileWriter | None = None
        self._held = Totals()  # by the worker, over the wire
        self._worker: str | None = None
        self._avoid: list[str] = []  # workers that could not be reached
        self._ahead: StreamThread | None = None  # it alone has `_held`, `_worker` and `_avoid` while it runs
        self._failure: ShuffleError | None = None  # of a push: blocks are missing
        self._aborted = False
        self._same_host = False
        self._unanswered = ""  # the worker that was asked first to commit, and did not answer

    @property
    def by_file(self) -> bool:
        """Whether blocks go to a file: they are written when `send` returns."""
        return self._file is not None

    @property
    def compresses(self) -> bool:
        """Whether blocks are worth the time of a codec: not where no network lies between here and the worker."""
        return self._options.hand_over_codec == "shuffle" or not (self.by_file or self._same_host)

    @property
    def worthwhile(self) -> int:
        """Bytes of blocks that are worth a `send`."""
        return FILE_BYTES if self._file is not None else self._options.push_bytes // UNDER_WAY

    def choose(self) -> None:
        """Find out which way this attempt goes; before the first `send`. Without it, over the wire.

        Raises ServerUnreachable, UnknownApp, AppExpired, UnknownShuffle.
        """
        connection = self._connection
        self._worker = worker = connection.retrying(lambda: connection.place(self._target.shuffle, self._avoid))
        self._same_host = connection.on_this_host(worker)
        if not connection.local_files.allowed:
            return
        try:
            self._file = LocalFileWriter.create(connection.local_files, worker, connection.data(worker), self._target)
        except ServerUnreachable:
            return  # the master does not know it any more; to push, another one is found

    def send(self, blocks: Sequence[Block]) -> None:
        """Send blocks. They are in the worker's file when this returns, or all blocks before them are the worker's.

        Raises what `ShuffleWriter.write` raises.
        """
        with self._noting_full():
            if not self._append(blocks):
                self._wait()
                self._ahead = StreamThread("push", lambda: self._push(blocks, commit=False), self._failed)
                self._ahead.start()

    def commit(self, blocks: Sequence[Block]) -> MapOutput:
        """Send the last blocks and say that it is complete; the winner of the map. Raises as `ShuffleWriter.commit`.

        What a worker refuses counts as refused only if no other one may have committed the attempt.
        """
        try:
            with self._noting_full():
                winner = self._commit(blocks)
        except _REFUSED as error:
            if not self._unanswered:
                raise
            raise StreamBroken(
                f"worker {self._unanswered} did not answer the commit, and another try was refused: {error.message}",
                remedy="write the map again as a new attempt: its commit says which one has won",
                shuffle=self._target.shuffle,
                output=self._target.output,
            ) from error
        if winner is None:
            raise StreamBroken(f"worker {self._worker} did not answer the commit")
        return winner

    def _commit(self, blocks: Sequence[Block]) -> MapOutput | None:
        if self._append(blocks):
            winner = self._finalized()
            if winner is not None:
                return winner
            blocks = ()  # they were pushed with the others
        self._wait()
        return self._push(blocks, commit=True)

    def _note_unanswered(self, error: ShuffleError) -> None:
        if isinstance(error, _UNANSWERED):
            self._unanswered = self._unanswered or self._worker or ""

    @contextmanager
    def _noting_full(self) -> Iterator[None]:
        """A worker without room gets no further outputs of this process until the master is asked again."""
        try:
            yield
        except StorageFull:
            if self._worker is not None:
                self._connection.placements.failed(self._worker)
            raise

    def abort(self) -> None:
        """Have the worker forget it, if it can be told."""
        self._aborted = True
        if self._file is not None:
            self._drop_file()
        elif (worker := self._worker) is not None:
            try:
                self._connection.data(worker).abort(self._target)  # which ends the push that is under way
            except ShuffleError:
                pass  # the worker drops attempts that nobody writes to, and this one never commits
        if self._ahead is not None:
            self._ahead.join(self._options.timeout)

    # ------------------------------------------------------------------ by file

    def _append(self, blocks: Sequence[Block]) -> bool:
        """Whether the blocks are in the file; if not, all before them have been pushed."""
        if self._file is None:
            return False
        before = self._file.written
        try:
            self._file.append(blocks)
        except _FINAL:
            self._drop_file()
            raise
        except ShuffleError as error:
            self._push_file(error)
            return False
        self._connection.traffic.add(RemoteStatistics(handed_over_bytes=self._file.written - before))
        return True

    def _finalized(self) -> MapOutput | None:
        """The winner of the map; None when the file could not be handed over, and all of it has been pushed."""
        assert self._file is not None
        again = True
        while True:
            try:
                done = self._file.commit()
                break
            except (*_FINAL, DeadlineExceeded):
                self._drop_file()
                raise
            except ShuffleError as error:
                self._note_unanswered(error)
                if not again or not isinstance(error, StreamBroken):
                    self._push_file(error)
                    return None
                again = False  # it may well have been adopted: to ask costs less than to push
        self._file.close()
        self._file = None
        return _winner(done)

    def _push_file(self, why: ShuffleError) -> None:
        """Push what was to be handed over. Raises as `send`."""
        file, self._file = self._file, None
        assert file is not None
        assert self._worker is not None
        log.warning("map %d is pushed, not handed over: %s", self._target.output.map, why)
        self._connection.local_files.failed(self._worker, why)
        try:
            file.drop()
            for run in file.read_back(self._options.push_bytes):
                self._push(run, commit=False)
        finally:
            file.close()

    def _drop_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.drop()
            file.close()

    # ------------------------------------------------------------------ over the wire

    def _wait(self) -> None:
        """Until no push is under way. Raises what the last one raised, each time."""
        if self._ahead is not None:
            self._ahead.join()
            self._ahead = None
        if self._failure is not None:
            raise self._failure

    def _failed(self, error: ShuffleError) -> None:
        self._failure = error

    def _push(self, blocks: Sequence[Block], commit: bool) -> MapOutput | None:
        """Send blocks; they are the worker's when this returns. With `commit`, the winner of the map."""
        end = add_rows(self._held, table_rows(blocks))

        def push() -> MapOutput | None:
            if self._aborted:
                raise InvalidArgument("the writer has aborted", remedy="write the map again as a new attempt")
            if self._worker is None:
                self._worker = self._connection.place(self._target.shuffle, self._avoid)
            try:
                client = self._connection.data(self._worker)
                reply = client.push(self._target, blocks, first_block=self._held.blocks, end=end, commit=commit)
            except _UNANSWERED as error:
                if commit:
                    self._note_unanswered(error)
                if isinstance(error, ServerUnreachable | ShuttingDown) and not self._held.blocks:
                    # Nothing that could not be sent elsewhere. Should it have committed there, this is a copy of it.
                    self._avoid.append(self._worker)
                    self._worker = None
                raise
            return _winner(reply.committed) if reply.HasField("committed") else None

        winner = self._connection.retrying(push)
        self._connection.traffic.add(RemoteStatistics(pushed_bytes=end.bytes - self._held.bytes))
        self._held = end
        return winner


def _winner(done: pb.Committed) -> MapOutput:
    return MapOutput(messages.map_attempt(done.output), done.worker, messages.totals(done.totals))
