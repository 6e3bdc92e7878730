"""The one session of a master with its PostgreSQL database. Who has it leads; what it cannot say any more, nobody says.

Leadership is a session-level advisory lock. The database gives it up when the session ends, and everything a master
writes goes through the very session that holds it: so a write of a former leader cannot be carried out after another
one has begun to lead. There is no second attempt on another connection. A master whose session ends is at its end.

What a leader *tells* is no write. Therefore it tells nothing unless the session was known to live a moment ago
(`SURE_SECONDS`), and the database is asked to believe in a peer that has vanished for longer than that
(`VANISHED_SECONDS`).
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from shuffle_api.errors import InvalidArgument, ShuttingDown, StorageFailed

log = logging.getLogger(__name__)

SURE_SECONDS = 10.0
PROBE_SECONDS = 1.0
VANISHED_SECONDS = 30
CONNECT_SECONDS = 10
LOCK = "hashtextextended('flight-shuffle master of ' || current_schema(), 0)"


class PostgresSession:
    """A connection to the database at `url`; stands by in `lead`. Thread-safe; close it at the end.

    Statements raise OSError: ENOSPC when the database's disk is full, EIO otherwise.

    :param lost: called once, in any thread, when the session has ended by itself. Nothing can be recorded after that.
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
        self._one = threading.Lock()  # transaction at a time
        self._sure = threading.Condition()
        self._sure_at = time.monotonic()
        self._closing = threading.Event()
        self._probe = threading.Thread(target=self._go_on_probing, name="leadership", daemon=True)
        try:
            self._connection: psycopg.Connection[Any] = psycopg.connect(
                url,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                tcp_user_timeout=int(SURE_SECONDS * 1000),
                keepalives_idle=int(SURE_SECONDS),
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
        except self._errors as error:
            raise InvalidArgument(
                f"--metadata: {error}", remedy="check the URL, and that this user may create tables there"
            ) from error
        if schema is None:
            self._connection.close()
            raise InvalidArgument(
                f"--metadata: {self.where} has no schema for this user", remedy="create one, or name it in search_path"
            )

    def lead(self, stopping: Callable[[], bool], pause: float = PROBE_SECONDS) -> None:
        """Return when this master leads; until then it stands by.

        :raises ShuttingDown: `stopping` says so.
        :raises StorageFailed: the database is gone.
        """
        standing_by = False
        while True:
            try:
                [(leads,)] = self.execute(f"SELECT pg_try_advisory_lock({LOCK})")
            except OSError as error:
                raise StorageFailed(f"{self.where}: {error}", remedy="start the master again") from error
            if leads:
                log.info("leads: %s", self.where)
                self._probe.start()
                return
            if not standing_by:
                log.info("stands by: another master leads in %s", self.where)
                standing_by = True
            if stopping() or self._closing.wait(pause):
                raise ShuttingDown("stopped while it stood by")

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement, which is a transaction of its own."""
        return self.together((statement, values))

    def together(self, *statements: tuple[str, Sequence[object]]) -> list[tuple[Any, ...]]:
        """Statements of one transaction; the rows of the last."""
        if self._ended:
            raise OSError(errno.EIO, f"the session with the database has ended: {self._ended}")
        try:
            with self._one, self._connection.transaction():
                asked = time.monotonic()
                for statement, values in statements:
                    cursor = self._connection.execute(statement, values)
                rows = cursor.fetchall() if cursor.description else []
        except self._errors as error:
            if self._connection.closed:
                self._end(str(error))
            kind = errno.ENOSPC if isinstance(error, self._full) else errno.EIO
            raise OSError(kind, str(error).strip()) from error
        with self._sure:
            self._sure_at = max(self._sure_at, asked)
            self._sure.notify_all()
        return rows

    def check(self) -> None:
        """Return when the session lived a moment ago, so that nobody else leads.

        :raises StorageFailed: the database does not answer, or the session has ended.
        """
        if time.monotonic() - self._sure_at < SURE_SECONDS and not self._ended:
            return
        with self._sure:
            self._sure.wait_for(lambda: self._ended or time.monotonic() - self._sure_at < SURE_SECONDS, SURE_SECONDS)
            if not self._ended and time.monotonic() - self._sure_at < SURE_SECONDS:
                return
        raise StorageFailed(
            f"{self.where}: {self._ended or 'it does not answer'}: another master may lead",
            remedy="try again; another master, or this one when it is started again, will lead",
        )

    @property
    def ended(self) -> str:
        """Why the session has ended; empty while it goes on."""
        return self._ended

    def _go_on_probing(self) -> None:
        while not self._closing.wait(PROBE_SECONDS):
            try:
                self.execute("SELECT 1")
            except OSError as error:
                log.error("the session with the database: %s", error)
                if self._ended:
                    return

    def _end(self, why: str) -> None:
        with self._sure:
            first, self._ended = not self._ended, self._ended or why.strip()
            self._sure.notify_all()
        if first and not self._closing.is_set():
            self._lost(why)

    def close(self) -> None:
        """End the session, and with it the leadership; idempotent."""
        self._closing.set()
        if self._probe.ident:
            self._probe.join()
        self._connection.close()
