"""The applications: alive, or expired and remembered so that their late tasks learn why their data is gone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from shuffle_api.errors import AppExists, AppExpired, UnknownApp

EXPIRED_REMEMBERED = 10_000
"""Expired applications remembered, the latest ones, so that a server that runs for months stays small."""


@dataclass(frozen=True, slots=True)
class AppRecord:
    """A registered application; `seen` is its last sign of life, in seconds since the epoch."""

    app: str
    instance: str
    name: str
    seen: float


@dataclass(slots=True)
class Apps:
    """`live` and `expired` by application id; an id is in one of them at most."""

    live: dict[str, AppRecord] = field(default_factory=dict)
    expired: dict[str, AppRecord] = field(default_factory=dict)

    def clone(self) -> Apps:
        """An equal one; the records are shared, as nothing changes them."""
        return Apps(dict(self.live), dict(self.expired))

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
        """Begin a run, or take the repeated call of a run that has begun for a sign of life.

        The id of an expired run is free for the next run, but not for the same one: its data is gone.

        :raises AppExists: another run has this id.
        :raises AppExpired: this very run has expired.
        """
        app = record.app
        if app in self.expired and self.expired[app].instance == record.instance:
            self.check_not_expired(app)
        if app not in self.live:
            self.expired.pop(app, None)
            self.live[app] = record
        elif self.live[app].instance == record.instance:
            self.heartbeat(app, record.seen)
        else:
            raise AppExists(f"application {app!r} is registered by another run")

    def heartbeat(self, app: str, at: float) -> None:
        """Note a sign of life; a late one does not set the clock back. Raises what `get` raises."""
        record = self.get(app)
        self.live[app] = replace(record, seen=max(record.seen, at))

    def expire(self, before: float) -> list[str]:
        """Move the applications last seen before `before` to the expired ones; return their ids."""
        dead = [record for record in self.live.values() if record.seen < before]
        for record in dead:
            del self.live[record.app]
        # Which ones are forgotten depends on the records alone, not on the order of history.
        remembered = sorted([*self.expired.values(), *dead], key=lambda record: (record.seen, record.app))
        self.expired = {record.app: record for record in remembered[-EXPIRED_REMEMBERED:]}
        return [record.app for record in dead]
