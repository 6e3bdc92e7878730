"""A fresh peer and the clients of all it serves. Each case has its own, so that none inherits another's memory."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from types import TracebackType
from typing import Protocol, Self

from shuffle_transport.bench.child import Peer
from shuffle_transport.bench.credit import CreditSide
from shuffle_transport.bench.job import Job
from shuffle_transport.bench.raw import RawSide
from shuffle_transport.bench.remote import RemoteSide
from shuffle_transport.bench.tcp import TcpSide

CREDIT, RAW, TCP, REMOTE = "credit", "raw_flight", "raw_tcp", "remote"
"""The contenders' names in reports: the credit stream; pyarrow's Flight; a socket; `FlightClient`'s push and pull."""
CHECKED = "credit_checked"
"""The credit stream whose receiver checks every block's checksum, which raw Flight has none of."""

DEFAULT_BUDGET = 256 << 20


class Mover(Protocol):
    """What every contender can do: one stream per call, which returns when the receiver has all of it."""

    def put(self, job: Job) -> None: ...
    def get(self, job: Job) -> None: ...


class Ends:
    """Peer and clients; a context manager.

    :param budget: bytes of either process's buffer pool.
    """

    def __init__(self, budget: int = DEFAULT_BUDGET) -> None:
        with ExitStack() as opening:  # closes what there is if something fails
            peer = opening.enter_context(Peer(budget))
            self.client_pid, self.peer_pid, ports = os.getpid(), peer.pid, peer.ports
            self.tcp = TcpSide(ports["tcp"])
            self.raw, self.control = (opening.enter_context(closing(RawSide(ports["raw"]))) for _ in range(2))
            self.raw_ipc = {
                codec: opening.enter_context(closing(RawSide(ports["raw"], compression=codec)))
                for codec in ("lz4", "zstd")
            }
            self.remote = opening.enter_context(closing(RemoteSide(ports["remote"])))
            self.credit = opening.enter_context(closing(CreditSide(ports["credit"], budget)))
            self._closing = opening.pop_all()

    def close(self) -> None:
        """Close the clients, then end the peer. Idempotent."""
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
