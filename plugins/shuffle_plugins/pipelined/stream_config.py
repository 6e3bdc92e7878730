"""What was agreed about a shuffle when it was registered."""

from __future__ import annotations

from dataclasses import dataclass

from shuffle_api.streaming import Alignment, Guarantee


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """The same for all its writers and readers."""

    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    alignment: Alignment = Alignment.ALIGNED
    alignment_timeout: float = 1.0

    @property
    def keeps(self) -> bool:
        """Writers keep what is sent until it is acknowledged."""
        return self.guarantee is not Guarantee.AT_MOST_ONCE

    @property
    def overtakes_at_once(self) -> bool:
        """Barriers do not wait for the data before them."""
        return self.guarantee is Guarantee.EXACTLY_ONCE and self.alignment is Alignment.UNALIGNED

    @property
    def overtakes_late(self) -> bool:
        """Barriers overtake after `alignment_timeout`."""
        return self.guarantee is Guarantee.EXACTLY_ONCE and self.alignment is Alignment.ALIGNED_WITH_TIMEOUT
