"""When a sender had to wait for credit, as far as the receiver can tell."""

from __future__ import annotations

import time

from shuffle_server.observe.traffic import Traffic


class CreditStalls:
    """Follows one push stream.

    A message that is larger than the credit its sender had left after the one before cannot have been sent before the
    next grant: that was a stall. It lasted, at this end, from the arrival of the message before to that grant; the way
    there and back is not in it.
    """

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._left = 0
        self._since = 0.0
        self._granted: float | None = None

    def arrived(self, size: int, credit: int) -> None:
        """A message of `size` payload bytes came; its sender had `credit` for it."""
        if self._granted is not None and size > self._left:
            self._traffic.stalled(self._granted - self._since)
        self._left, self._granted, self._since = credit - size, None, time.monotonic()

    def granted(self) -> None:
        """The sender was granted more."""
        self._granted = time.monotonic()
