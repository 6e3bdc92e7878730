"""Which workers' files this process sees, and the actions on them (docs/protocol.md).

A worker is asked once where its nonce lies. A process that can read it is on its host; for all others, and whenever
anything of this fails, there is the wire.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import Message

from shuffle_api.errors import (
    AppExpired,
    DeadlineExceeded,
    Overloaded,
    PermissionDenied,
    ProtocolMismatch,
    QuotaExceeded,
    ServerUnreachable,
    ShuffleError,
    ShuttingDown,
    StorageFull,
    StreamBroken,
    UnknownApp,
    UnknownShuffle,
)
from shuffle_transport import messages
from shuffle_transport.flight_client import FlightClient
from shuffle_transport.local_files.index_cache import OutputIndexCache
from shuffle_transport.proto import flight_shuffle_pb2 as pb

log = logging.getLogger(__name__)

PAUSE_SECONDS = 30.0  # for which the wire is used after a failure
ACTION_SECONDS = 10.0  # that an action may take which waits for no disk

_PASSING = (ServerUnreachable, StreamBroken, ShuttingDown, DeadlineExceeded, Overloaded)
# Errors about the shuffle or about room, not about local files: a push or pull over the wire gets them as well.
_NOT_ITS_FAULT = (UnknownShuffle, UnknownApp, AppExpired, QuotaExceeded, StorageFull)


@dataclass(frozen=True, slots=True)
class _Probed:
    """What is known of a worker: its nonce, or when to ask again; and where it was then."""

    address: str
    nonce: bytes | None
    ask_again: float = 0.0


class LocalFileAccess:
    """The workers whose files one application's tasks in this process see. Thread-safe.

    :param allowed: False: none.
    """

    def __init__(self, app: str, *, allowed: bool = True) -> None:
        self._app, self._allowed = app, allowed
        self.known = OutputIndexCache()
        self._lock = threading.Lock()
        self._probed: dict[str, _Probed] = {}
        self._refused: dict[str, bytes] = {}

    @property
    def allowed(self) -> bool:
        """Whether local files may be used at all."""
        return self._allowed

    def nonce(self, worker: str, client: FlightClient) -> bytes | None:
        """What opens the worker's files; None: push and pull. The first call for a worker asks it, and blocks."""
        if not self._allowed:
            return None
        with self._lock:
            probed = self._probed.get(worker)
        # A worker at another address was restarted: its entry is void.
        if probed is not None and probed.address != client.address:
            probed = None
        if probed is not None and (probed.nonce is not None or time.monotonic() < probed.ask_again):
            return probed.nonce
        probed = self._probe(worker, client)
        with self._lock:
            self._probed[worker] = probed
        return probed.nonce

    def act(
        self, client: FlightClient, action: str, request: Message, timeout: float | None = ACTION_SECONDS
    ) -> list[bytes]:
        """The results of one action; `timeout` None: that of the client. Raises what `FlightClient.acts` raises."""
        return client.acts(f"hand-over.{action}", request.SerializeToString(), timeout)

    def failed(self, worker: str, error: ShuffleError | OSError) -> None:
        """An action was refused, or a file was not what the worker said. The caller goes on over the wire."""
        if isinstance(error, _NOT_ITS_FAULT):
            return
        with self._lock:
            probed = self._probed.pop(worker, None)
            if isinstance(error, PermissionDenied) and probed is not None and probed.nonce is not None:
                self._refused[worker] = probed.nonce
            elif not isinstance(error, _PASSING) and probed is not None:
                self._probed[worker] = _Probed(probed.address, None, time.monotonic() + PAUSE_SECONDS)
        log.log(
            logging.INFO if isinstance(error, (*_PASSING, PermissionDenied)) else logging.WARNING,
            "hand-over to worker %s failed: %s; map outputs go over the wire",
            worker,
            error,
        )

    def _probe(self, worker: str, client: FlightClient) -> _Probed:
        later = time.monotonic() + PAUSE_SECONDS
        try:
            nonce, why = self._read_nonce(client)
        except _PASSING as error:
            log.info("%s; map outputs go over the wire", error)
            return _Probed(client.address, None, later)
        except ShuffleError as error:  # it knows nothing of it, or this is not our application
            log.info("worker %s hands nothing over: %s", worker, error)
            return _Probed(client.address, None, math.inf)
        if nonce is None:
            log.info("worker %s is on another host or belongs to another user (%s)", worker, why)
            return _Probed(client.address, None, math.inf)
        with self._lock:
            same = self._refused.pop(worker, None) == nonce
        if same:  # a worker of this host has its files under the same path as that one has on its own
            log.debug("worker %s is on another host", worker)
            return _Probed(client.address, None, later)
        log.info("map outputs are handed over to worker %s as files", worker)
        return _Probed(client.address, nonce)

    def _read_nonce(self, client: FlightClient) -> tuple[bytes | None, str]:
        """The nonce, or None and why it cannot be read."""
        results = self.act(client, "probe", pb.ProbeRequest(protocol=messages.PROTOCOL, app=self._app))
        if len(results) != 1:
            raise ProtocolMismatch(f"{client.address} answered a probe with {len(results)} results")
        path = messages.parse(pb.ProbeReply, results[0]).nonce_file
        try:
            return Path(path).read_bytes(), ""
        except (OSError, ValueError) as error:
            return None, str(error)
