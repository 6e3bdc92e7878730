"""A sink whose transactions are those of PostgreSQL: PREPARE TRANSACTION at the barrier, COMMIT PREPARED later.

The server needs `max_prepared_transactions`, two for each sink. A prepared transaction holds its locks until it is
committed: `SELECT * FROM pg_prepared_xacts` shows those of a job that nobody went on with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql

TABLE = "CREATE TABLE IF NOT EXISTS records (record text NOT NULL)"
PREPARED = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database() AND starts_with(gid, %s)"
LOCK = "SELECT pg_advisory_lock(hashtextextended(%s, 0))"


class PostgresSink:
    """Writes to the table `records`.

    :param attempt: of the task.
    """

    def __init__(self, url: str, sink: int, attempt: int) -> None:
        self._name = f"flight-shuffle-{sink}-"
        # A transaction is open in one session while an earlier one is committed in the other.
        self._writes = _session(url, f"{self._name}writes")
        self._commits = _session(url, f"{self._name}commits")
        self._open = False

    def write(self, records: Sequence[bytes]) -> None:
        if not self._open:
            self._writes.execute("BEGIN")
            self._open = True
        with self._writes.cursor() as cursor:
            cursor.executemany("INSERT INTO records VALUES (%s)", [(record.decode(),) for record in records])

    def prepare(self, checkpoint: int) -> None:
        if self._open:
            self._writes.execute(sql.SQL("PREPARE TRANSACTION {}").format(self._transaction(checkpoint)))
            self._open = False

    def commit(self, checkpoint: int) -> None:
        if checkpoint in self._prepared():  # else it was committed before
            self._commits.execute(sql.SQL("COMMIT PREPARED {}").format(self._transaction(checkpoint)))

    def recover(self, checkpoint: int) -> None:
        for prepared in self._prepared():
            if prepared <= checkpoint:
                self.commit(prepared)
            else:  # its records come again
                self._commits.execute(sql.SQL("ROLLBACK PREPARED {}").format(self._transaction(prepared)))

    def _prepared(self) -> list[int]:
        found = self._commits.execute(PREPARED, (self._name,)).fetchall()
        return [int(name.removeprefix(self._name)) for (name,) in found]

    def _transaction(self, checkpoint: int) -> sql.Literal:
        return sql.Literal(f"{self._name}{checkpoint}")


def _session(url: str, name: str) -> psycopg.Connection[Any]:
    """A session that begins when that of an earlier attempt has ended: its last statement may still be at work."""
    session = psycopg.connect(url, autocommit=True)
    session.execute(LOCK, (name,))
    return session
