"""The one session of a master with its PostgreSQL database: it leads, or stands by for the master that leads.

Leadership is two things in the database. A session-level advisory lock, which the database takes back when the
session ends, so that a leader that crashed is replaced at once. And a lease, a row with a term that rises
with each leader and a count that rises with each renewal, so that a leader that is frozen or cut off while its session
goes on is replaced as well: a standby that sees no renewal ends that session, takes the lock and raises the term.

All that a leader writes goes through the session that has the lock, and each transaction begins by renewing the lease
of its own term. So no write of a former leader can be carried out after another one has begun to lead. There is no
second attempt on another connection: a master whose session or term ends is at its end.

The leader renews its lease, and relies on it for a while after it *asked* for the last renewal, counting the time in
which its machine was suspended. A standby takes over when it has seen the same renewal for the whole lease, from the
*answer* to its first look to the question of its last one, and does not count a span in which it stood still itself or
the database did not answer. So the leader falls silent before a standby takes over, however far their wall clocks are
apart, as long as their clocks run at the same speed within a fifth.

What a leader *answers* is no write. Therefore it answers nothing unless its lease is valid (`check`).
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from shuffle_api.clock import ServingClock, boot_seconds
from shuffle_api.errors import InvalidArgument, ShuttingDown, StorageFailed
from shuffle_api.periodic import PeriodicTask

log = logging.getLogger(__name__)

LEASE_SECONDS = 8.0
"""A leader that has not renewed its lease for so long is replaced, within ten seconds."""

VALID_SECONDS = 0.8 * LEASE_SECONDS
"""A leader relies on a renewal for so long."""

RENEW_SECONDS = LEASE_SECONDS / 5
LOOK_SECONDS = 0.25  # between two looks of a standby
LOOK_CAP_SECONDS = 2.0  # most of the time between two looks that counts as silence
CHECK_SECONDS = 2 * RENEW_SECONDS  # for which an answer waits for the lease to be renewed
KEEPALIVE_SECONDS = 2
VANISHED_SECONDS = 30
NAME_BYTES = 63  # of a session, as far as PostgreSQL keeps it
CONNECT_SECONDS = 10
LOCK = "hashtextextended('flight-shuffle master of ' || current_schema(), 0)"
TABLES_LOCK = "hashtextextended('flight-shuffle tables of ' || current_schema(), 0)"

TABLE = (
    "CREATE TABLE IF NOT EXISTS flight_shuffle_lease (one boolean PRIMARY KEY DEFAULT true CHECK (one),"
    " term bigint NOT NULL, renewal bigint NOT NULL, backend integer NOT NULL, leader text NOT NULL)"
)
TAKE = (
    "INSERT INTO flight_shuffle_lease (term, renewal, backend, leader)"
    f" SELECT 1, 0, pg_backend_pid(), %s WHERE pg_try_advisory_lock({LOCK})"
    " ON CONFLICT (one) DO UPDATE SET term = flight_shuffle_lease.term + 1, renewal = 0,"
    " backend = excluded.backend, leader = excluded.leader RETURNING term"
)
# A session is named for the schema of its masters: those of another schema are another cluster's.
NAMED = "'flight-shuffle ' || quote_ident(current_schema())::regnamespace::oid || ' '"
NAME = f"SELECT set_config('application_name', {NAMED} || %s, false)"
STANDBYS = (
    "SELECT split_part(application_name, ' ', 3) FROM pg_stat_activity WHERE datname = current_database()"
    f" AND starts_with(application_name, {NAMED}) AND pid <> pg_backend_pid() ORDER BY 1"
)
RENEW = "UPDATE flight_shuffle_lease SET renewal = renewal + 1 WHERE term = %s"
LOOK = "SELECT term, renewal, leader FROM flight_shuffle_lease"
# Only the backend of the leader whose lease has lapsed, and only while it has the lock: its number may be used again.
END_LEADER = (
    "SELECT pg_terminate_backend(held.pid) FROM flight_shuffle_lease AS lease JOIN pg_locks AS held"
    " ON held.pid = lease.backend WHERE lease.term = %s AND lease.renewal = %s AND held.granted"
    " AND held.locktype = 'advisory' AND held.objsubid = 1"
    f" AND ((held.classid::bigint << 32) | held.objid::bigint) = {LOCK}"
    " AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class HeldLease:
    """The leader's side of the lease, on a clock of its own. No I/O. Not valid before the first renewal."""

    def __init__(self, clock: Callable[[], float] = boot_seconds) -> None:
        self._clock = clock
        self._until = float("-inf")

    def now(self) -> float:
        """To be asked before a renewal is sent."""
        return self._clock()

    def renewed(self, asked: float) -> None:
        """A renewal that was sent after `asked` has been recorded."""
        self._until = max(self._until, asked + VALID_SECONDS)

    @property
    def valid(self) -> bool:
        """Whether nobody else can lead yet."""
        return self._clock() < self._until


class SeenLease:
    """A standby's side of the lease, on a clock of its own: how long the leader has not renewed."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self._clock = clock or ServingClock(LOOK_CAP_SECONDS)
        self._seen: object = None
        self._since = self._asked = self._clock()

    def ask(self) -> None:
        """The database is about to be asked."""
        self._asked = self._clock()

    def answer(self, renewal: object) -> bool:
        """It has answered which renewal is the last, None if there never was one; whether the lease has lapsed."""
        answered = self._clock()
        if renewal is None or renewal != self._seen:
            self._seen, self._since = renewal, answered
        return self._asked - self._since >= LEASE_SECONDS


class _Replaced(Exception):
    """Another master has raised the term."""


class PostgresSession:
    """A connection to the database at `url`; stands by in `lead`. Thread-safe; close it at the end.

    Statements raise OSError: ENOSPC when the database's disk is full, EIO otherwise.

    :param lost: called once, in any thread, when the session or the leadership has ended by itself. Nothing can be
        recorded after that.
    :raises InvalidArgument: psycopg is not installed, or the database does not let this user in or work.
    """

    def __init__(self, url: str, lost: Callable[[str], None]) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise InvalidArgument(
                f"--metadata postgresql:// needs psycopg: {error}", remedy="pip install 'flight-shuffle[postgres]'"
            ) from error
        self._errors, self._full = psycopg.Error, psycopg.errors.DiskFull
        self._lost = lost
        self._ended = ""
        self._term: int | None = None  # None: it does not lead
        self._one = threading.Lock()  # transaction at a time
        self._lease = HeldLease()
        self._changed = threading.Condition()  # the lease is renewed, or the session has ended
        self._answered = time.monotonic()
        self._closing = threading.Event()
        self._renewals = PeriodicTask("leadership", self._renew, RENEW_SECONDS)
        try:
            self._connection: psycopg.Connection[Any] = psycopg.connect(
                url,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                tcp_user_timeout=int(LEASE_SECONDS * 1000),
                keepalives_idle=KEEPALIVE_SECONDS,  # a reply that is lost on the way leaves nothing to acknowledge
                keepalives_interval=KEEPALIVE_SECONDS,
            )
            idle, between, times = VANISHED_SECONDS // 2, VANISHED_SECONDS // 6, 3
            for setting, value in (
                ("tcp_keepalives_idle", idle),
                ("tcp_keepalives_interval", between),
                ("tcp_keepalives_count", times),
                ("tcp_user_timeout", VANISHED_SECONDS * 1000),
                ("idle_session_timeout", 0),
            ):
                self._connection.execute("SELECT set_config(%s, %s, false)", (setting, str(value)))
            self.where = f"PostgreSQL {self._connection.info.host} database {self._connection.info.dbname}"
            (schema,) = self._connection.execute("SELECT current_schema()").fetchone() or (None,)
            if schema is not None:
                with self._connection.transaction():
                    self._connection.execute(f"SELECT pg_advisory_xact_lock({TABLES_LOCK})")
                    self._connection.execute(TABLE)
                self._connection.execute(NAME, (_own_name(),))
        except self._errors as error:
            raise InvalidArgument(
                f"--metadata: {' '.join(str(error).split())}",
                remedy="check the URL, and that this user may create tables there",
            ) from error
        if schema is None:
            self._connection.close()
            raise InvalidArgument(
                f"--metadata: {self.where} has no schema for this user", remedy="create one, or name it in search_path"
            )

    def lead(
        self,
        stopping: Callable[[], bool],
        pause: float = LOOK_SECONDS,
        standing_by: Callable[[], None] = lambda: None,
    ) -> None:
        """Return when this master leads; until then it stands by.

        :param standing_by: called when another master turns out to lead.
        :raises ShuttingDown: `stopping` says so.
        :raises StorageFailed: the database is gone.
        """
        seen, told = SeenLease(), False
        while True:
            try:
                if self._take():
                    log.info("leads: %s, term %s", self.where, self._term)
                    self._renewals.start()
                    return
                leader = self._look(seen)
            except OSError as error:
                raise StorageFailed(f"{self.where}: {error}", remedy="start the master again") from error
            if not told:
                log.info("stands by: another master leads in %s: %s", self.where, leader)
                standing_by()
                told = True
            if stopping() or self._closing.wait(pause):
                raise ShuttingDown("stopped while it stood by")

    def _take(self) -> bool:
        asked = self._lease.now()
        rows = self.execute(TAKE, (f"{socket.gethostname()}, process {os.getpid()}",))
        if rows:
            self._lease.renewed(asked)
            [(self._term,)] = rows
        return bool(rows)

    def _look(self, seen: SeenLease) -> str:
        """Who leads; a leader whose lease has lapsed is ended."""
        seen.ask()
        rows = self.execute(LOOK)
        if not rows:
            seen.answer(None)
            return "one without a lease"
        [(term, renewal, leader)] = rows
        if seen.answer((term, renewal)):
            log.warning(
                "the leader (%s) has not renewed its lease for %g s; its session is ended", leader, LEASE_SECONDS
            )
            try:
                self.execute(END_LEADER, (term, renewal))
            except OSError as error:
                if self._ended:
                    raise
                log.error("the leader's session cannot be ended: %s. Let all masters use one database role", error)
        return str(leader)

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement, which is a transaction of its own."""
        return self.together((statement, values))

    def together(self, *statements: tuple[str, Sequence[object]]) -> list[tuple[Any, ...]]:
        """Statements of one transaction; the rows of the last. If this master leads it renews the lease with them, or
        does nothing because another one leads."""
        if self._ended:
            raise OSError(errno.EIO, f"the session with the database has ended: {self._ended}")
        rows: list[tuple[Any, ...]] = []
        try:
            with self._one, self._connection.transaction():
                asked, term = self._lease.now(), self._term
                if term is not None and not self._connection.execute(RENEW, (term,)).rowcount:
                    raise _Replaced
                for statement, values in statements:
                    cursor = self._connection.execute(statement, values)
                    rows = cursor.fetchall() if cursor.description else []
        except _Replaced as error:
            self._end("another master leads")
            raise OSError(errno.EIO, "another master leads") from error
        except self._errors as error:
            if self._connection.closed:
                self._end(str(error))
            kind = errno.ENOSPC if isinstance(error, self._full) else errno.EIO
            raise OSError(kind, str(error).strip()) from error
        self._answered = time.monotonic()
        if term is not None:
            self._lease.renewed(asked)
            with self._changed:
                self._changed.notify_all()
        return rows

    def check(self) -> None:
        """Return when the lease is valid, so that nobody else leads.

        :raises ShuttingDown: the lease cannot be renewed now, or the session has ended.
        """
        if self.leads:
            return
        self._renewals.wake()
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self.leads, CHECK_SECONDS)
        if not self.leads:
            raise ShuttingDown(
                f"this master may not lead any more: {self._ended or f'{self.where} does not answer'}",
                remedy="ask the master that leads; give clients the addresses of all masters",
            )

    @property
    def leads(self) -> bool:
        """Whether nobody else can lead now."""
        return self._lease.valid and not self._ended

    @property
    def ended(self) -> str:
        """Why the session has ended; empty while it goes on."""
        return self._ended

    def standbys(self) -> list[str]:
        """The other masters, by host and process: `HOST/PID`."""
        return [name for (name,) in self.execute(STANDBYS)]

    def silent(self) -> str:
        """Why this standby could not take over now; empty if it could."""
        seconds = time.monotonic() - self._answered
        return f"{self.where} has not answered for {seconds:.0f} s" if seconds > LEASE_SECONDS else ""

    def _renew(self) -> None:
        try:
            self.together()
        except OSError as error:
            if not self._closing.is_set():
                log.error("the lease is not renewed: %s", error)

    def _end(self, why: str) -> None:
        with self._changed:
            first, self._ended = not self._ended, self._ended or why.strip()
            self._changed.notify_all()
        if first and not self._closing.is_set():
            self._lost(why)

    def close(self) -> None:
        """End the session, and with it the leadership; idempotent."""
        self._closing.set()
        self._renewals.close()
        self._connection.close()


def _own_name() -> str:
    """HOST/PID; the host is cut so that PostgreSQL keeps the rest."""
    process = f"/{os.getpid()}"
    return socket.gethostname()[: NAME_BYTES // 2 - len(process)] + process
