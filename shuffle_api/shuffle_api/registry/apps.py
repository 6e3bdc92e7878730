"""The applications: alive, or expired and remembered so that their late tasks learn why their data is gone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shuffle_api.errors import AppExists, AppExpired, UnknownApp
from shuffle_api.ids import name_of
from shuffle_api.registry.operations import RegisterApp

EXPIRED_REMEMBERED = 10_000
"""Expired applications remembered, the latest ones, so that a server that runs for months stays small."""


@dataclass(frozen=True, slots=True)
class AppRecord:
    """A registered application."""

    app: str
    instance: str
    name: str
    only: str = ""

    @property
    def operation(self) -> RegisterApp:
        """That leads to it."""
        return RegisterApp(self.app, self.instance, self.name, self.only)


@dataclass(slots=True)
class Apps:
    """`live` and `expired` by application id, `expired` in the order of expiry; an id is in one of them at most.

    `runs` counts the live ones of each application (`ids.name_of`).
    """

    live: dict[str, AppRecord] = field(default_factory=dict)
    expired: dict[str, AppRecord] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)

    def clone(self) -> Apps:
        """An equal one; the records are shared, as nothing changes them."""
        return Apps(dict(self.live), dict(self.expired), dict(self.runs))

    def get(self, app: str) -> AppRecord:
        """The live application `app`.

        :raises AppExpired: it fell silent.
        :raises UnknownApp: it is not registered.
        """
        self.check_not_expired(app)
        if app not in self.live:
            raise UnknownApp(f"application {app!r} is not registered")
        return self.live[app]

    def check_not_expired(self, app: str) -> None:
        """:raises AppExpired: it fell silent."""
        if app in self.expired:
            raise AppExpired(f"application {app!r} was silent for too long; its data is gone")

    def register(self, record: AppRecord) -> None:
        """Begin a run; the repeated call of a run that has begun changes nothing.

        The id of an expired run is free, for the same run too: its shuffles are gone, and are registered anew.

        :raises AppExists: another run has this id.
        """
        present = self.live.get(record.app)
        if present is None:
            self.expired.pop(record.app, None)
            self.live[record.app] = record
            name = name_of(record.app)
            self.runs[name] = self.runs.get(name, 0) + 1
        elif present.instance != record.instance:
            raise AppExists(f"application {record.app!r} is registered by another run")

    def expire(self, apps: Iterable[str]) -> list[str]:
        """Move these applications to the expired ones; return the ids of those that were live."""
        dead = [app for app in dict.fromkeys(apps) if app in self.live]
        for app in dead:
            record = self.end(app)
            assert record is not None
            self.expired[app] = record
        for app in list(self.expired)[:-EXPIRED_REMEMBERED]:
            del self.expired[app]
        return dead

    def end(self, app: str) -> AppRecord | None:
        """A run is over; None if there is no such one."""
        record = self.live.pop(app, None)
        if record is not None:
            name = name_of(app)
            self.runs[name] -= 1
            if not self.runs[name]:
                del self.runs[name]
        return record
