"""What a thread is busy with, for its log records: application, shuffle, map, attempt, peer.

    with log_context(peer=context.peer()):
        add_log_fields(app="etl", shuffle=3)
        ...  # every record made in here, by whichever module, carries the three

One way everywhere: fields are set where a call comes in, and modules log plain sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

from shuffle_api.errors import ShuffleError
from shuffle_api.ids import MapAttempt, ShuffleId

FIELDS = ("app", "shuffle", "map", "attempt", "peer", "method", "code")
"""The names there are, in the order in which they are shown."""

_MOST = 128  # characters of a value: a peer may have chosen it
_NONE: Mapping[str, str | int] = MappingProxyType({})
_current: ContextVar[Mapping[str, str | int]] = ContextVar("log_context", default=_NONE)


@contextmanager
def log_context(**fields: str | int) -> Iterator[None]:
    """Add fields, or replace outer ones, for the records that this thread makes in the body."""
    token = _current.set(_with(fields))
    try:
        yield
    finally:
        _current.reset(token)


def add_log_fields(**fields: str | int) -> None:
    """Add fields for the rest of the `log_context` that this is called in: a request's subject is learned late.

    Outside of any it does nothing: the fields would stay with the thread for ever.
    """
    if _current.get() is not _NONE:
        _current.set(_with(fields))


def current_fields() -> Mapping[str, str | int]:
    """The fields of this thread now."""
    return _current.get()


def _with(fields: Mapping[str, str | int]) -> Mapping[str, str | int]:
    shortened = {name: value[:_MOST] if isinstance(value, str) else value for name, value in fields.items()}
    return {**_current.get(), **shortened}


def fields_of(shuffle: ShuffleId | None = None, output: MapAttempt | None = None) -> dict[str, str | int]:
    """The fields that name a shuffle and a map output."""
    fields: dict[str, str | int] = {}
    if shuffle is not None:
        fields.update(app=shuffle.app, shuffle=shuffle.shuffle)
    if output is not None:
        fields.update(map=output.map, attempt=output.attempt)
    return fields


def fields_of_error(error: ShuffleError) -> dict[str, str | int]:
    """The fields that say what was refused."""
    return {**fields_of(error.shuffle, error.output), "code": error.code.name}
