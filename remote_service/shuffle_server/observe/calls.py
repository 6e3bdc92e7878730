"""The control endpoint's calls, watched from outside of it: how long, refused with which code, and for whom."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict

from shuffle_api.errors import ShuffleError, WrongMaster
from shuffle_server.observe.instruments import Instruments
from shuffle_server.observe.log_context import fields_of_error, log_context
from shuffle_transport import messages

log = logging.getLogger(__name__)

LINES = 5  # that the refusals of one host may make in SECONDS
SECONDS = 10.0
HOSTS = 1000  # of which the lines are counted


class CallObserver:
    """Notes each call: to it each request of a stream is a call. Thread-safe.

    :param instruments: None: nothing is counted.
    """

    def __init__(self, instruments: Instruments | None = None) -> None:
        self._instruments, self._lines = instruments, LineLimit()

    def answered(self, method: str, seconds: float) -> None:
        """A request has its reply or its refusal."""
        if self._instruments is not None:
            self._instruments.control_call(method, seconds)

    def refused(self, peer: str, method: str, error: ShuffleError) -> None:
        """A request, or a call without one, has been refused."""
        if self._instruments is None:
            return
        self._instruments.refused("control", error)
        host = peer.rpartition(":")[0]
        with log_context(peer=peer, method=method, **fields_of_error(error)):
            self._lines.warn(host, f"of {host}", error)


class StrangersObserver:
    """Notes calls that the data endpoint refuses before it reads anything of them. Thread-safe.

    Arrow does not say where they come from. So they share the lines of one host.
    """

    def __init__(self, instruments: Instruments) -> None:
        self._instruments, self._lines = instruments, LineLimit()

    def refused(self, error: ShuffleError) -> None:
        """A call has been refused by its headers."""
        self._instruments.refused("data", error)
        with log_context(**fields_of_error(error)):
            self._lines.warn("", "to the data endpoint", error)


class LineLimit:
    """How many lines of the log a host may still have. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: OrderedDict[str, list[float]] = OrderedDict()  # since when, and how many it wanted

    def warn(self, host: str, whose: str, error: ShuffleError) -> None:
        """Log a refusal, if the host may still have a line, and how many calls before it have none."""
        omitted = self.omitted(host)
        if omitted is None:
            return
        if omitted:
            log.warning("%d more calls %s were refused", omitted, whose)
        # A client that is sent to another master goes there.
        level = logging.INFO if isinstance(error, WrongMaster) else logging.WARNING
        log.log(level, "call refused: %s", messages.status_text(error))

    def omitted(self, host: str) -> int | None:
        """How many lines of this host were left out before the one that it may have now; None: it may have none."""
        now = time.monotonic()
        with self._lock:
            since, wanted = self._hosts.setdefault(host, [now, 0])
            if now - since >= SECONDS:
                del self._hosts[host]
                self._hosts[host] = [now, 1]
                return max(0, int(wanted) - LINES)
            self._hosts[host][1] += 1
            while len(self._hosts) > HOSTS:
                self._hosts.popitem(last=False)
            return 0 if wanted < LINES else None
