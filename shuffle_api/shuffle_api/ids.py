"""Names of things. Ids are types, so that a map number cannot be passed for a shuffle number.

A retry or a speculative copy of a task is a new `MapAttempt`, never the same name again: that is what
lets a late message of a dead attempt be told from one of the living.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass

from shuffle_api.errors import InvalidArgument

MAX_ID = 2**63 - 1
"""Largest shuffle, map and attempt number: they travel as int64."""

_APP = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_REGISTRY = re.compile(r"[A-Za-z0-9_-]{1,32}")
_RUN = re.compile(rf"{_APP.pattern}(~[A-Za-z0-9_-]{{1,64}}(~{_REGISTRY.pattern})?)?")


def check_app(app: str) -> str:
    """Return `app` if it is a valid application name: 1-128 characters of [A-Za-z0-9._-], the first not a dot.

    Names become directory names and path segments, hence the narrow alphabet.

    :raises InvalidArgument: it is not.
    """
    if not isinstance(app, str) or not _APP.fullmatch(app):
        raise InvalidArgument(
            f"application id {app!r} is not valid",
            remedy="use 1 to 128 characters of A-Z a-z 0-9 . _ - and do not begin with a dot",
        )
    return app


def check_registry(name: str) -> str:
    """Return `name` if it is a valid name of a registry: 1-32 characters of [A-Za-z0-9_-].

    :raises InvalidArgument: it is not.
    """
    if not _REGISTRY.fullmatch(name):
        raise InvalidArgument(
            f"{name!r} is no name of a registry", remedy="use 1 to 32 characters of A-Z a-z 0-9 _ -, such as a"
        )
    return name


def is_run(run: str) -> bool:
    """Whether this is a valid run of an application: a name, `NAME~INSTANCE` or `NAME~INSTANCE~REGISTRY`."""
    return _RUN.fullmatch(run) is not None


def check_run(run: str) -> str:
    """Return `run` if it is a valid run of an application: a name, `NAME~INSTANCE` or `NAME~INSTANCE~REGISTRY`.

    :raises InvalidArgument: it is not.
    """
    if not isinstance(run, str) or not _RUN.fullmatch(run):
        raise InvalidArgument(
            f"application id {run!r} is not valid",
            remedy="use 1 to 128 characters of A-Z a-z 0-9 . _ - and do not begin with a dot;"
            " for one run of it add ~ and 1 to 64 characters of A-Z a-z 0-9 _ -, and for one in a registry that has a"
            " name ~ and that",
        )
    return run


def new_run(app: str) -> str:
    """A run of the application `app` that no other run equals: `NAME~INSTANCE`, the instance random.

    Runs are the namespaces of shuffles: two runs of one application share nothing. Tokens and quotas are those of the
    application.

    :raises InvalidArgument: the name is not valid.
    """
    return f"{check_app(app)}~{secrets.token_hex(8)}"


def name_of(run: str) -> str:
    """The application of which `run` is a run."""
    return run.partition("~")[0]


def registry_of(run: str) -> str:
    """The name of the registry that a run belongs to, empty for the one without a name.

    The run carries it, so a party that has the run needs no rule, and a new registry moves no run.
    """
    parts = run.split("~", 2)
    return parts[2] if len(parts) == 3 else ""


def run_at(run: str, registry: str) -> str:
    """The run `run`, which no registry has yet, as the registry of this name is to have it."""
    name, instance, *_ = [*run.split("~"), ""]
    return f"{name}~{instance}~{registry}" if registry else run


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

    `app` is the run (`new_run`), so that two runs with the same shuffle number never meet. `generation` separates
    the registrations of one number: the registry draws it, and files, requests and records of another one are
    refused. 0 is the current one, for clients that do not send it (protocol version 1).

    :raises InvalidArgument: the run or a number is not valid.
    """

    app: str
    shuffle: int
    generation: int = 0

    def __post_init__(self) -> None:
        check_run(self.app)
        check_number("shuffle number", self.shuffle)
        check_number("shuffle generation", self.generation)

    def __str__(self) -> str:
        return f"{self.app}/{self.shuffle}"

    def anew(self) -> ShuffleId:
        """The id of another registration of this number, with a generation that no other one has."""
        return ShuffleId(self.app, self.shuffle, secrets.randbits(63) | 1)

    def current(self) -> ShuffleId:
        """What names the current registration of this number."""
        return ShuffleId(self.app, self.shuffle)


@dataclass(frozen=True, slots=True, order=True)
class MapAttempt:
    """One attempt of one map task.

    :raises InvalidArgument: a number is negative or does not fit in int64.
    """

    map: int
    attempt: int

    def __post_init__(self) -> None:
        map, attempt = self.map, self.attempt
        if type(map) is type(attempt) is int and 0 <= map <= MAX_ID and 0 <= attempt <= MAX_ID:
            return  # a registry makes millions of them
        check_number("map number", map)
        check_number("attempt number", attempt)

    def __str__(self) -> str:
        return f"map {self.map} attempt {self.attempt}"
