"""The memory of one pull: what was read for its reader, who may take it or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from shuffle_transport.pool import BufferPool, Reservation
from shuffle_transport.shares import Owner


class PullRoom:
    """Holds the reservation of one message after the other; a context manager. By one thread at a time.

    :param timeout: seconds to wait for memory.
    :param app: whose memory it is.
    :param give_up: ends the pull; called when its reader takes nothing while others wait for memory.
    """

    def __init__(self, pool: BufferPool, timeout: float, app: str, give_up: Callable[[], object]) -> None:
        self._pool, self._timeout, self._give_up = pool, timeout, give_up
        self._owner = Owner(app, outgoing=True)
        self._reservation: Reservation | None = None

    def begin(self, size: int) -> None:
        """A message of `size` bytes is about to be read; the one before it has been taken.

        Nothing is held while this waits. Raises Overloaded, ShuttingDown.
        """
        self.close()
        self._reservation = self._pool.reserve(size, self._timeout, self._owner, stalled=self._give_up)

    def grow(self, size: int) -> None:
        """It has `size` bytes by now."""
        if self._reservation is not None:
            self._reservation.cover(size)

    def close(self) -> None:
        """Nothing is held any more. Idempotent."""
        if self._reservation is not None:
            self._reservation.close()
            self._reservation = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
