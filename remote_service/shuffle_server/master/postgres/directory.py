"""The registry's files as rows of a PostgreSQL database, where several masters can get at them.

The forms of the files are those on a disk, and so are the rules of recovery: only their bytes lie elsewhere. A piece
that is appended is one row, there as a whole or not at all, and durable when the statement returns (as far as the
database's `synchronous_commit` goes). So nothing is ever torn, and `sync` has nothing to do.
"""

from __future__ import annotations

import errno
import io
from typing import BinaryIO

from shuffle_server.master.postgres.session import PostgresSession

PIECES = 100  # read at a time

TABLES = (
    "CREATE TABLE IF NOT EXISTS flight_shuffle_file"
    " (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE)",
    "CREATE TABLE IF NOT EXISTS flight_shuffle_piece"
    " (file bigint NOT NULL REFERENCES flight_shuffle_file ON DELETE CASCADE, at bigint NOT NULL, data bytea NOT NULL,"
    " PRIMARY KEY (file, at))",
)


class PostgresDirectory:
    """A Directory (`files`) in the schema of a session that leads. Every call may raise OSError."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session
        for table in TABLES:
            session.execute(table)

    def names(self) -> list[str]:
        return sorted(name for (name,) in self._session.execute("SELECT name FROM flight_shuffle_file"))

    def open(self, name: str) -> BinaryIO:
        id, read = self._id(name), bytearray()
        while True:  # not in one transaction: the lease is renewed between them
            pieces = self._session.execute(
                "SELECT data FROM flight_shuffle_piece WHERE file = %s AND at >= %s ORDER BY at LIMIT %s",
                (id, len(read), PIECES),
            )
            read += b"".join(data for (data,) in pieces)
            if len(pieces) < PIECES:
                return io.BytesIO(read)

    def create(self, name: str) -> PostgresFile:
        [(id,)] = self._session.together(
            ("DELETE FROM flight_shuffle_file WHERE name = %s", (name,)),
            ("INSERT INTO flight_shuffle_file (name) VALUES (%s) RETURNING id", (name,)),
        )
        return PostgresFile(self._session, id, 0)

    def append(self, name: str) -> PostgresFile:
        id = self._id(name)
        [(size,)] = self._session.execute(
            "SELECT coalesce(max(at + length(data)), 0) FROM flight_shuffle_piece WHERE file = %s", (id,)
        )
        return PostgresFile(self._session, id, size)

    def rename(self, old: str, new: str) -> None:
        id = self._id(old)
        self._session.together(
            ("DELETE FROM flight_shuffle_file WHERE name = %s AND id <> %s", (new, id)),
            ("UPDATE flight_shuffle_file SET name = %s WHERE id = %s", (new, id)),
        )

    def remove(self, name: str) -> None:
        self._session.execute("DELETE FROM flight_shuffle_file WHERE id = %s", (self._id(name),))

    def sync(self) -> None:
        """Done already."""

    def describe(self, name: str) -> str:
        return f"{self._session.where}, {name}"

    def bytes(self) -> int:
        """The size of all files."""
        [(size,)] = self._session.execute("SELECT coalesce(sum(length(data)), 0)::bigint FROM flight_shuffle_piece")
        return int(size)

    def _id(self, name: str) -> int:
        rows = self._session.execute("SELECT id FROM flight_shuffle_file WHERE name = %s", (name,))
        if not rows:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", name)
        return int(rows[0][0])


class PostgresFile:
    """An AppendFile (`files`)."""

    def __init__(self, session: PostgresSession, id: int, size: int) -> None:
        self._session, self._id, self._size = session, id, size

    def write(self, data: bytes) -> None:
        self._session.execute(
            "INSERT INTO flight_shuffle_piece (file, at, data) VALUES (%s, %s, %s)", (self._id, self._size, data)
        )
        self._size += len(data)

    def sync(self) -> None:
        """Done already."""

    def truncate(self, size: int) -> None:
        self._session.together(
            ("DELETE FROM flight_shuffle_piece WHERE file = %s AND at >= %s", (self._id, size)),
            (
                "UPDATE flight_shuffle_piece SET data = substring(data FROM 1 FOR (%s - at)::int)"
                " WHERE file = %s AND at + length(data) > %s",
                (size, self._id, size),
            ),
        )
        self._size = min(self._size, size)

    def close(self) -> None:
        pass
