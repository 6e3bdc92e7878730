"""Bugs to be found, one of which a process of a schedule has when it is started with its name.

Each is put over the product's code in that process alone. A table of which seed finds which, and how soon, is in
docs/faults.md.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

from shuffle_api import clock
from shuffle_api.registry.outputs import ShuffleOutputs
from shuffle_plugins.pipelined import entries
from shuffle_server.master.files import LocalFile
from shuffle_server.master.postgres import session
from shuffle_server.master.postgres.session import PostgresSession
from shuffle_server.store import recovery
from shuffle_transport import flight_client
from shuffle_transport.channels import receiver
from shuffle_transport.checksum import crc32c
from shuffle_transport.local_files import local_fetch

LATE_S = 1.0


class _Same(int):
    """Equal to every checksum."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


def skip_crc() -> None:
    """A reader does not compare checksums."""
    for module in (local_fetch, flight_client, receiver):
        _put(module, "crc32c", lambda data, value=0: _Same())


def replay_unverified() -> None:
    """What is read from an in-flight log is not compared with the checksum made at the write, and gets a new one."""

    def read(self: entries.PayloadRange, size: int, checksum: int, block: str) -> memoryview:
        return memoryview(os.pread(self.file.fd, size, self.offset).ljust(size, b"\0"))

    _put(entries.PayloadRange, "read", read)
    _put(entries.SequencedBlock, "crc32c", property(lambda self: crc32c(self.payload)))


def acknowledge_before_durable() -> None:
    """The journal says that it is written, and is a second later; all but the beginning of a file."""
    write, truncate, close, lock = LocalFile.write, LocalFile.truncate, LocalFile.close, threading.RLock()
    waiting: dict[LocalFile, list[bytes]] = {}

    def flush(file: LocalFile) -> None:
        with lock:
            for data in waiting.pop(file, []):
                write(file, data)

    def later(self: LocalFile, data: bytes) -> None:
        if not os.fstat(self._fd).st_size:
            write(self, data)  # it begins as a file of its kind
            return
        with lock:
            if self not in waiting:
                timer = threading.Timer(LATE_S, flush, (self,))
                timer.daemon = True
                timer.start()
            waiting.setdefault(self, []).append(data)

    def flushed(call: Callable[..., None]) -> Callable[..., None]:
        def after(self: LocalFile, *arguments: int) -> None:
            flush(self)
            call(self, *arguments)

        return after

    _put(LocalFile, "write", later)
    _put(LocalFile, "truncate", flushed(truncate))
    _put(LocalFile, "close", flushed(close))


def swallow_journal_errors() -> None:
    """The journal's disk fails, and no error is raised."""
    write = LocalFile.write

    def silent(self: LocalFile, data: bytes) -> None:
        try:
            write(self, data)
        except OSError:
            pass

    _put(LocalFile, "write", silent)
    _put(LocalFile, "sync", lambda self: None)


def wall_clock_in_expiry() -> None:
    """Silence is measured by the wall clock."""
    _put(clock.ServingClock, "__call__", lambda self: time.time())


def own_standstill_counts() -> None:
    """A server that was stopped takes all others for silent."""
    _put(clock.ServingClock, "__call__", lambda self: time.monotonic())


def forget_epoch() -> None:
    """A master whose session with the database has ended goes on over a new one, whatever the term is by then."""

    def together(self: PostgresSession, *statements: tuple[str, Sequence[object]]) -> list[tuple[Any, ...]]:
        try:
            return call(self, *statements)
        except OSError:
            if self._term is None or not self._connection.closed:
                raise
        self._connection = self._connection.connect(self._connection.info.dsn, autocommit=True)
        return call(self, *statements)

    call = PostgresSession.together
    _put(PostgresSession, "together", together)
    _put(PostgresSession, "_end", lambda self, why: None)
    _put(session, "RENEW", "UPDATE flight_shuffle_lease SET renewal = renewal + 1 WHERE term >= %s")


def forget_an_output() -> None:
    """A worker that starts overlooks one of its outputs."""
    recover = recovery.recover_files

    def most(directory: Any, *, sync: bool) -> Iterator[Any]:
        found = list(recover(directory, sync=sync))
        return iter(found[:-1])

    _put(recovery, "recover_files", most)


def last_commit_wins() -> None:
    """An attempt that commits late takes the place of the winner."""
    commit = ShuffleOutputs.commit

    def overwrite(self: ShuffleOutputs, output: Any) -> Any:
        winner = self.winners.get(output.output.map)
        if winner is not None and winner.output != output.output:
            self.winners.lose(output.output.map)
        return commit(self, output)

    _put(ShuffleOutputs, "commit", overwrite)


def _put(owner: type | ModuleType, name: str, function: Callable[..., Any] | property | str) -> None:
    """What the owner has of that name becomes `function`. Raises AttributeError where it has nothing of that name."""
    getattr(owner, name)
    setattr(owner, name, function)


BUGS: dict[str, Callable[[], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        skip_crc,
        replay_unverified,
        acknowledge_before_durable,
        swallow_journal_errors,
        wall_clock_in_expiry,
        own_standstill_counts,
        forget_an_output,
        forget_epoch,
        last_commit_wins,
    )
}


def install(names: Iterable[str]) -> None:
    """Have this process behave as these bugs would."""
    for name in names:
        BUGS[name]()
