"""How long to wait before something that failed is tried again: exponential pauses with full jitter, and a deadline.

Full jitter spreads the attempts of many clients that lost the same server at the same moment (Brooker, "Exponential
Backoff And Jitter", AWS Architecture Blog, 2015). Nothing here sleeps.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

INITIAL_SECONDS, MAXIMUM_SECONDS = 0.1, 1.0


class Backoff:
    """The pauses between the attempts of one caller; not thread-safe.

    :param deadline: seconds from now, or from the last `progress`, after which there is no further attempt.
    :param initial: longest first pause; each further one may be twice as long, up to `maximum`.
    """

    def __init__(
        self,
        deadline: float,
        *,
        initial: float = INITIAL_SECONDS,
        maximum: float = MAXIMUM_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        fraction: Callable[[], float] = random.random,
    ) -> None:
        self._seconds, self._initial, self._maximum = deadline, initial, maximum
        self._clock, self._fraction = clock, fraction
        self.progress()

    def progress(self) -> None:
        """Something was achieved: the deadline and the pauses begin anew."""
        self._give_up, self._longest = self._clock() + self._seconds, self._initial

    def pause(self) -> float | None:
        """Seconds to wait before the next attempt; None when the deadline comes first."""
        pause = self._fraction() * self._longest
        self._longest = min(2 * self._longest, self._maximum)
        return pause if self._clock() + pause < self._give_up else None
