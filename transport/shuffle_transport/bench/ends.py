"""A fresh peer and the clients of what it serves, in this process: for cases that look at the memory of both.

Each case has its own, so that none inherits another's memory.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from types import TracebackType
from typing import Self

from shuffle_transport.bench.child import PeerProcess
from shuffle_transport.bench.credit import CreditSide
from shuffle_transport.bench.raw import RawSide


class Ends:
    """Peer and clients; a context manager.

    :param budget: bytes of either process's buffer pool.
    """

    def __init__(self, budget: int) -> None:
        with ExitStack() as opening:  # closes what there is if something fails
            peer = opening.enter_context(PeerProcess(budget, "credit", "raw"))
            self.client_pid, self.peer_pid, ports = os.getpid(), peer.pid, peer.ports
            self.credit = opening.enter_context(closing(CreditSide(ports["credit"], budget)))
            self.raw, self.control = (opening.enter_context(closing(RawSide(ports["raw"]))) for _ in range(2))
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
