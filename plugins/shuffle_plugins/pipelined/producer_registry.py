"""Where the writers of a shuffle are, and what was agreed about it: the driver's process keeps it, tasks ask.

The seam; see `driver_registry.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from shuffle_api.ids import MapAttempt, ShuffleId
from shuffle_api.streaming import Alignment, Guarantee
from shuffle_api.values import MapOutput


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """What was agreed about a shuffle when it was registered: the same for all its writers and readers."""

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


@dataclass(frozen=True, slots=True)
class ProducerLocation:
    """This attempt of a map is the one that counts, and is read at `address`."""

    output: MapAttempt
    address: str


@dataclass(frozen=True, slots=True)
class ProducerFailed:
    """This attempt is gone; another may follow."""

    output: MapAttempt
    reason: str


@dataclass(frozen=True, slots=True)
class ShuffleUnregistered:
    """The shuffle was unregistered."""

    reason: str


Event: TypeAlias = ProducerLocation | ProducerFailed | ShuffleUnregistered
Watcher: TypeAlias = Callable[[Event], None]


class ProducerRegistry(Protocol):
    """What tasks ask of the driver's process. Thread-safe; each call has a deadline."""

    def config(self, shuffle: ShuffleId) -> StreamConfig:
        """What was agreed.

        :raises UnknownShuffle: it is not registered.
        """

    def bind(self, shuffle: ShuffleId, output: MapAttempt, address: str) -> None:
        """`output` is written by this process from now on, and read at `address`.

        :raises UnknownShuffle: the shuffle is not registered.
        :raises AttemptSuperseded: a later attempt of the map, or this one, was bound before.
        """

    def fail(self, shuffle: ShuffleId, output: MapAttempt, reason: str) -> None:
        """`output` was given up. Without effect if another attempt is bound."""

    def commit(self, shuffle: ShuffleId, output: MapOutput) -> MapOutput:
        """`output` is complete; returns the one that counts.

        :raises UnknownShuffle: the shuffle is not registered.
        """

    def watch(self, shuffle: ShuffleId, watcher: Watcher) -> None:
        """Call `watcher` with the present state, then every change, in order; it must not wait for anything.

        :raises UnknownShuffle: the shuffle is not registered.
        """

    def unwatch(self, shuffle: ShuffleId, watcher: Watcher) -> None:
        """Stop calling it."""
