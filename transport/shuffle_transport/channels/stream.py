"""The seam below a channel: one two-way stream of Flight messages. A channel outlives its streams if it may resume."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from shuffle_api.errors import DeadlineExceeded, ShuffleError, StreamBroken
from shuffle_transport import messages
from shuffle_transport.channels.disconnect import disconnect_from_peer, disconnect_own_end
from shuffle_transport.channels.wire import LEAVE, SERVED_SCHEMA
from shuffle_transport.connect import not_connected
from shuffle_transport.proto import flight_shuffle_pb2 as pb
from shuffle_transport.security import TlsFiles

Message = tuple[pa.RecordBatch | None, bytes | None]
"""A RecordBatch, or metadata: never both."""


class Stream(ABC):
    """One thread reads, one at a time writes. Every method that waits ends when `abort` is called by another thread.

    Errors are a ShuffleError: StreamBroken, ServerUnreachable, DeadlineExceeded, or the error that the server returned.
    """

    peer: str
    """The address of the other end, for messages."""
    seen_as = ""
    """The address of this end as the other sees it, if that has been said."""

    @abstractmethod
    def read(self) -> Message | None:
        """The next message; None once the other end has half-closed."""

    @abstractmethod
    def write(self, message: Message) -> None:
        """Write; returns when the transport has accepted the message."""

    @abstractmethod
    def half_close(self) -> None:
        """Nothing more will be written; never called while something is. At a server this does nothing: there the end
        of the call says so."""

    @abstractmethod
    def abort(self) -> None:
        """End the stream at once, in both directions; never waits. Idempotent."""

    @abstractmethod
    def sever(self) -> None:
        """As `abort`, and the connection with it: for a write that goes on in spite of `abort`."""

    @abstractmethod
    def close(self) -> None:
        """Free what the stream holds, by the thread that has read it to its end. Never raises for a broken stream."""


class FlightStream(Stream):
    """A DoExchange call, of either end.

    When a call ends, the thread that reads it half-closes it inside Arrow. Where another thread does so at that moment,
    gRPC aborts the process. So a client asks the server to end the call instead: LEAVE, which is written like any
    message. Whether the server takes that its schema says, which comes before its first message.

    :param abort: ends the call; None: nothing but `sever` does.
    :param tls: how the connection speaks TLS, for messages.
    """

    def __init__(
        self, peer: str, reader: Any, writer: Any, abort: Callable[[], None] | None, *, tls: TlsFiles | None = None
    ) -> None:
        self.peer = peer
        self._reader, self._writer, self._abort, self._tls = reader, writer, abort, tls
        self._client = isinstance(writer, fl.FlightStreamWriter)
        self._over = self._heard = self._asks = False
        self._leaving = threading.Lock()  # of the next two
        self._is_to_leave = self._left = False

    def read(self) -> Message | None:
        try:
            chunk = self._reader.read_chunk()
        except StopIteration:
            self._over = True
            return None
        except (pa.ArrowException, OSError) as error:
            self._over = True
            raise translated(error, self.peer, self._tls) from error
        if self._client and not self._heard:
            self._begun()
        if chunk.app_metadata is None:
            return chunk.data, None
        metadata = chunk.app_metadata.to_pybytes()
        if metadata == LEAVE and not self._client:
            self._over = True
            return None
        return chunk.data, metadata

    def write(self, message: Message) -> None:
        batch, metadata = message
        try:
            if batch is None:
                self._writer.write_metadata(metadata)
            else:
                self._writer.write_batch(batch)
        except (pa.ArrowException, OSError) as error:
            raise translated(error, self.peer, self._tls) from error

    def half_close(self) -> None:
        if self._client:
            with self._leaving:
                self._is_to_leave = True
            self._leave()

    def abort(self) -> None:
        if self._abort is None:
            self.sever()
        elif not self._over:
            self._abort()

    def sever(self) -> None:
        if self._client:
            disconnect_own_end(self.seen_as)
        elif not self._over:  # the connection of a call that has ended may serve others
            disconnect_from_peer(self.peer)

    def close(self) -> None:
        if self._client:
            try:
                self._writer.close()
            except (pa.ArrowException, OSError):
                pass  # whoever read the stream has heard why it broke

    def _begun(self) -> None:
        """The first message is there, and the schema was before it."""
        self._asks = (self._reader.schema.metadata or {}).items() >= (SERVED_SCHEMA.metadata or {}).items()
        with self._leaving:
            self._heard = True
        try:
            self._leave()
        except ShuffleError:
            pass  # the next read says what became of it

    def _leave(self) -> None:
        """Half-close, once, when that is wanted and it is known how."""
        with self._leaving:
            if self._left or not (self._is_to_leave and self._heard):
                return
            self._left = True
        if self._asks:
            self.write((None, LEAVE))
            return
        try:
            self._writer.done_writing()  # the server is of an older release
        except (pa.ArrowException, OSError) as error:
            raise translated(error, self.peer, self._tls) from error


def translated(error: Exception, peer: str, tls: TlsFiles | None) -> ShuffleError:
    """The typed error for what Flight or Arrow raised about a stream to `peer`."""
    extra = getattr(error, "extra_info", b"")
    if extra:
        return messages.typed_error(messages.parse(pb.Error, extra))
    text = str(error).partition(". gRPC client debug context")[0]
    if isinstance(error, fl.FlightTimedOutError):
        return DeadlineExceeded(f"{peer}: {text}", remedy="see whether the peer is stuck, or raise the timeout")
    if isinstance(error, fl.FlightUnavailableError):
        return not_connected(peer, text, tls)
    return StreamBroken(f"the stream to {peer} broke: {text}")
