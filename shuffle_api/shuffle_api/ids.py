"""Names of things. Ids are types, so that a map number cannot be passed for a shuffle number.

A retry or a speculative copy of a task is a new `MapAttempt`, never the same name again: that is what
lets a late message of a dead attempt be told from one of the living.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shuffle_api.errors import InvalidArgument

MAX_ID = 2**63 - 1
"""Largest shuffle, map and attempt number: they travel as int64."""

_APP = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


def check_app(app: str) -> str:
    """Return `app` if it is a valid application id: 1-128 characters of [A-Za-z0-9._-], the first not a dot.

    Application ids become directory names and path segments, hence the narrow alphabet.

    :raises InvalidArgument: it is not.
    """
    if not isinstance(app, str) or not _APP.fullmatch(app):
        raise InvalidArgument(
            f"application id {app!r} is not valid",
            remedy="use 1 to 128 characters of A-Z a-z 0-9 . _ - and do not begin with a dot",
        )
    return app


def check_number(what: str, value: int) -> int:
    """Return `value` if it is an int in [0, 2**63); `what` names it in the error.

    :raises InvalidArgument: it is not.
    """
    if not isinstance(value, int) or not 0 <= value <= MAX_ID:
        raise InvalidArgument(f"{what} {value!r} is not valid", remedy="use an integer from 0 to 2**63 - 1")
    return value


@dataclass(frozen=True, slots=True, order=True)
class ShuffleId:
    """One exchange between two stages of one application run.

    `app` is unique per run, so that two applications with the same shuffle number never meet.

    :raises InvalidArgument: the application id or the number is not valid.
    """

    app: str
    shuffle: int

    def __post_init__(self) -> None:
        check_app(self.app)
        check_number("shuffle number", self.shuffle)

    def __str__(self) -> str:
        return f"{self.app}/{self.shuffle}"


@dataclass(frozen=True, slots=True, order=True)
class MapAttempt:
    """One attempt of one map task.

    :raises InvalidArgument: a number is negative or does not fit in int64.
    """

    map: int
    attempt: int

    def __post_init__(self) -> None:
        check_number("map number", self.map)
        check_number("attempt number", self.attempt)

    def __str__(self) -> str:
        return f"map {self.map} attempt {self.attempt}"
