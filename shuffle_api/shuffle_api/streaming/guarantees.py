"""What a streaming shuffle promises when a task fails."""

from __future__ import annotations

from enum import StrEnum


class Guarantee(StrEnum):
    """What may happen to a record when a producer or a consumer fails. Chosen per shuffle, by who registers it."""

    AT_MOST_ONCE = "at_most_once"
    """It may be lost; it is never repeated. Nothing is kept."""
    AT_LEAST_ONCE = "at_least_once"
    """It may be repeated; it is never lost. Replay begins at what was acknowledged last."""
    EXACTLY_ONCE = "exactly_once"
    """It counts once in every state that a checkpoint holds. Barriers cut all inputs at the same place."""


class Alignment(StrEnum):
    """How a reader makes one cut through all inputs of an `exactly_once` shuffle."""

    ALIGNED = "aligned"
    """An input whose barrier has come waits for the others. Nothing in flight is stored."""
    UNALIGNED = "unaligned"
    """A barrier overtakes the data before it, which becomes part of the checkpoint: independent of the backlog."""
    ALIGNED_WITH_TIMEOUT = "aligned_with_timeout"
    """Aligned, and unaligned from the moment that takes too long."""
