"""Where a master's registry lies: in files below its data directory, or in a database that several masters share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from shuffle_server.master.files import Directory, LocalDirectory
from shuffle_server.master.postgres.directory import PostgresDirectory
from shuffle_server.master.postgres.session import PostgresSession
from shuffle_server.observe.figures import Writable, files_bytes
from shuffle_server.observe.health import WriteProbe
from shuffle_server.options import ServerOptions
from shuffle_server.store.directories import split_directories

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Storage:
    """`sure` raises StorageFailed unless this master alone may speak; `writable` and `bytes` are for monitoring."""

    directory: Directory
    sure: Callable[[], None]
    writable: Callable[[], Writable]
    bytes: Callable[[], int]
    close: Callable[[], None]


def open_storage(options: ServerOptions, stopping: Callable[[], bool]) -> Storage:
    """Where `options` say that it lies. In a database this stands by until no other master leads.

    :raises InvalidArgument, StorageFailed: it cannot be used.
    :raises ShuttingDown: `stopping` said so while this stood by.
    """
    if options.metadata:
        return _in_database(options.metadata, stopping)
    path = split_directories(options.data_dir)[0] / "master"
    return Storage(LocalDirectory(path), lambda: None, WriteProbe(path).look, partial(files_bytes, path), lambda: None)


def _in_database(url: str, stopping: Callable[[], bool]) -> Storage:
    session = PostgresSession(url, _end_process)
    try:
        session.lead(stopping)
        directory = PostgresDirectory(session)
    except BaseException:
        session.close()
        raise
    return Storage(directory, session.check, lambda: Writable(session.ended), partial(_bytes, directory), session.close)


def _bytes(directory: PostgresDirectory) -> int:
    try:
        return directory.bytes()
    except OSError:
        return 0  # /health says so


def _end_process(why: str) -> None:
    """Another master leads now, or will soon: this one says nothing any more, and has nothing to put in order."""
    log.critical("this master does not lead any more and ends; start it again to stand by: %s", why)
    logging.shutdown()
    os._exit(1)
