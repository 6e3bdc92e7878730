"""What became of the calls whose tokens were looked at."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shuffle_api.errors import ShuffleError, Unauthenticated
from shuffle_transport.tokens import ExpiredToken, MissingToken, RevokedApp

CHECKS = ("admitted", "missing", "wrong", "expired", "revoked", "unanswered")
"""Of a call's token: it was admitted, or why it was not; `unanswered`: the master could not be asked."""

ANSWERS = ("good", "refused", "unanswered")
"""Of a question to the master about a token."""

_REASONS: tuple[tuple[type[ShuffleError], str], ...] = (
    (MissingToken, "missing"),
    (ExpiredToken, "expired"),
    (RevokedApp, "revoked"),
    (Unauthenticated, "wrong"),
)


def reason_of(error: ShuffleError) -> str:
    """Which of CHECKS the refusal of a call is. A token that the master refuses is `wrong`: it counts the reasons."""
    return next((reason for kind, reason in _REASONS if isinstance(error, kind)), "unanswered")


@dataclass(frozen=True, slots=True)
class TokenStatistics:
    """:ivar known: tokens that are remembered to be good, so that nobody is asked about them."""

    checks: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(CHECKS, 0))
    questions: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(ANSWERS, 0))
    known: int = 0


class Counts:
    """How often each of some names was counted. Thread-safe."""

    def __init__(self, names: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(names, 0)

    def add(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def read(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)
