"""Where a master's registry lies: in files below its data directory, or in a database that several masters share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from shuffle_api.periodic import PeriodicTask
from shuffle_server.master.files import Around, FlatDirectory, LocalDirectory
from shuffle_server.master.postgres.directory import PostgresDirectory
from shuffle_server.master.postgres.session import PostgresSession
from shuffle_server.observe.figures import Writable, files_bytes
from shuffle_server.observe.health import WriteProbe
from shuffle_server.options import ServerOptions, split_directories

log = logging.getLogger(__name__)


LOOK_SECONDS = 10.0  # between two questions how large the registry's files are, and who stands by
CLOSE_SECONDS = 1.0

StandingBy = Callable[[Callable[[], str]], None]


@dataclass(frozen=True, slots=True)
class Storage:
    """`sure` raises ShuttingDown unless this master alone may answer, None where there is only one; `leads`,
    `writable`, `bytes` and `standbys` are for monitoring."""

    directory: FlatDirectory
    sure: Callable[[], None] | None
    leads: Callable[[], bool]
    writable: Callable[[], Writable]
    bytes: Callable[[], int]
    close: Callable[[], None]
    standbys: Callable[[], Sequence[str]] = tuple


def open_storage(
    options: ServerOptions, stopping: Callable[[], bool], standing_by: StandingBy, around: Around
) -> Storage:
    """Where `options` say that it lies. In a database this stands by until no other master leads.

    :param around: see `LocalDirectory`.
    :param standing_by: called when another one does, with a question: why this one could not take over now.
    :raises InvalidArgument, StorageFailed: it cannot be used.
    :raises ShuttingDown: `stopping` said so while this stood by.
    """
    if options.metadata:
        return _in_database(options.metadata, stopping, standing_by)
    path = split_directories(options.data_dir)[0] / "master"
    looks = WriteProbe(path).look
    return Storage(LocalDirectory(path, around), None, lambda: True, looks, partial(files_bytes, path), lambda: None)


def _in_database(url: str, stopping: Callable[[], bool], standing_by: StandingBy) -> Storage:
    session = PostgresSession(url, _end_process)
    try:
        session.lead(stopping, standing_by=partial(standing_by, session.silent))
        directory = PostgresDirectory(session)
    except BaseException:
        session.close()
        raise
    looked = _Looked(session, directory)

    def close() -> None:
        looked.task.close(CLOSE_SECONDS)
        session.close()

    return Storage(
        directory,
        session.check,
        lambda: session.leads,
        lambda: Writable(session.ended),
        lambda: looked.bytes,
        close,
        lambda: looked.standbys,
    )


class _Looked:
    """How large the files in a database are, and who stands by. A thread asks, since a database may not answer, and a
    scrape must not wait for it."""

    def __init__(self, session: PostgresSession, directory: PostgresDirectory) -> None:
        self._session, self._directory = session, directory
        self.bytes = 0
        self.standbys: Sequence[str] = ()
        self.task = PeriodicTask("database-figures", self._ask, LOOK_SECONDS, at_once=True)
        self.task.start()

    def _ask(self) -> None:
        try:
            self.bytes = self._directory.bytes()
            self.standbys = self._session.standbys()
        except OSError:
            pass  # /ready says so


def _end_process(why: str) -> None:
    """Another master leads now, or will soon: this one says nothing any more, and has nothing to put in order."""
    log.critical("this master does not lead any more and ends; start it again to stand by: %s", why)
    logging.shutdown()
    os._exit(1)
